"""How the processes of a run find each other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import torch.distributed as dist

from transformer.training.distributed import fresh_store


def test_processes_that_are_started_again_do_not_hear_those_that_have_died() -> None:
    """torchrun keeps its store over its restarts, and in it what the dead ones have said."""
    store = dist.HashStore()
    for _ in range(3):
        with ThreadPoolExecutor(3) as pool:
            meetings = [pool.submit(fresh_store, store, rank, 3) for rank in range(3)]
            first, second, third = (meeting.result(timeout=60) for meeting in meetings)
        assert not first.check(["address"])
        second.set("address", "here")
        assert first.get("address") == third.get("address") == b"here"
