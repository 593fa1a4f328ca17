"""The ids that mean the same in every vocabulary."""

PAD, UNK, BOS, EOS = 0, 1, 2, 3
