"""A configuration that is right, for tests that read it, change it or break it."""

from hypothesis import HealthCheck, settings

GOOD = """\
run_dir: runs/first
data:
  train:
    - source: a.en
      target: a.de
model:
  d_model: 64
  num_heads: 4
training:
  max_steps: 500
"""
FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
