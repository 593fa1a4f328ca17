"""From a model to translations: search, forced scores, and lines of text."""
