"""A root user who is held to file permissions, for as long as a test needs that."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

DAC_OVERRIDE, DAC_READ_SEARCH = 1 << 1, 1 << 2  # <linux/capability.h>
VERSION_3 = 0x20080522


@contextmanager
def no_privileges() -> Iterator[None]:
    """Takes from root, in this thread, the right to write what its mode says is read-only."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable: low bits, then high
    assert libc.capget(header, sets) == 0, os.strerror(ctypes.get_errno())
    before = sets[0]
    sets[0] &= ~(DAC_OVERRIDE | DAC_READ_SEARCH)
    assert libc.capset(header, sets) == 0, os.strerror(ctypes.get_errno())
    try:
        yield
    finally:
        sets[0] = before
        assert libc.capset(header, sets) == 0, os.strerror(ctypes.get_errno())
