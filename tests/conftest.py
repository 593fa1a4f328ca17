"""Settings of all tests."""

from __future__ import annotations

import os

# The models of the tests are tiny: one thread computes them faster than several that wait for each
# other, in this process and in those that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")
