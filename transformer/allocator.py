"""How this process treats memory that tensors on a CPU have freed."""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # <malloc.h>


def keep_freed_memory() -> None:
    """Keeps freed memory for the next tensor instead of giving it back to the system.

    Every update, and every step of a search, allocates and frees the same activations. By default
    glibc takes each large one anew from the kernel, which then has to clear its pages: a fifth of
    the time of a small model. Does nothing where there is no glibc.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
