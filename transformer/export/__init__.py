"""A model in the form that other engines read."""
