"""The processes of a run: which one this is, and what they say to each other. One process says
nothing.

`torchrun` starts them; each holds the whole model and takes its share of every update's
micro-batches.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from transformer.errors import UserError


@dataclass(frozen=True)
class Ranks:
    """The processes of this run.

    Attributes:
        rank: this process, from 0.
        size: how many there are.
        device: where this process computes.
    """

    rank: int
    size: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Whether this process writes the files and the log."""
        return self.rank == 0

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Adds up tensors over all ranks, in place, in one exchange."""
        if self.size == 1 or not tensors:
            return
        flat = torch.cat([x.reshape(-1) for x in tensors])
        dist.all_reduce(flat)
        parts = flat.split([x.numel() for x in tensors])
        for x, part in zip(tensors, parts, strict=True):
            x.copy_(part.view_as(x))

    def gather(self, value: object) -> list:
        """Returns every rank's value, in the order of ranks."""
        if self.size == 1:
            return [value]
        values: list = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    @contextmanager
    def first_alone(self) -> Iterator[None]:
        """Lets rank 0 run the block before the others do, who then find its files; its error stops
        all.
        """
        error = None
        if self.is_first:
            try:
                yield
            except Exception as raised:
                error = raised
            told = self.gather(str(error) if error else None)
        else:
            told = self.gather(None)
            if told[0] is None:
                yield
        if error is not None:
            raise error
        if told[0] is not None:
            raise UserError(f"rank 0 stopped: {told[0]}")


def choose_device(name: str, local_rank: int = 0) -> torch.device:
    """Returns the device meant by `auto`, `cpu`, `cuda` or `mps`.

    Raises:
        UserError: the device is not there.
    """
    if name not in ("auto", "cpu", "cuda", "mps"):
        raise UserError(f"device {name}: there are auto, cpu, cuda and mps")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda":
        if not torch.cuda.is_available():
            raise UserError("device cuda: torch sees no CUDA device here; use device=cpu")
        return torch.device("cuda", local_rank)
    if name == "mps" and not torch.backends.mps.is_available():
        raise UserError("device mps: torch sees no Apple GPU here; use device=cpu")
    return torch.device(name)


@contextmanager
def start_ranks(device: str) -> Iterator[Ranks]:
    """Joins the processes that torchrun started, or stands alone, until the block ends."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    chosen = choose_device(device, int(os.environ.get("LOCAL_RANK", "0")))
    if size == 1:
        yield Ranks(0, 1, chosen)
        return
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    try:
        yield Ranks(dist.get_rank(), size, chosen)
    finally:
        dist.destroy_process_group()
