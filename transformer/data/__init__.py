"""From raw text to ids: reading, segmenting, filtering, batching."""
