"""The Transformer: attention, layers, positions, and the model made of them."""
