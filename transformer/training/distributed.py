"""The processes of a run: which one this is, and what they say to each other. One process says
nothing.

`torchrun` starts them, on one machine or several; each takes its share of every update's
micro-batches.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from transformer.errors import UserError

PATIENCE = timedelta(days=2)
"""How long a process waits for others that prepare data or validate; torchrun ends it sooner if one
of them has died."""

MEETING = timedelta(minutes=10)
"""How long a process waits for the others to start."""


class LostProcess(UserError):
    """Another process of the run has ended, which says why itself."""


@dataclass(frozen=True)
class Ranks:
    """The processes of this run.

    Attributes:
        rank: this process, from 0.
        size: how many there are.
        device: where this process computes.
        local_rank: this process among those of its machine, from 0.
        group: carries Python objects; None = there is one process.
    """

    rank: int
    size: int
    device: torch.device
    local_rank: int = 0
    group: dist.ProcessGroup | None = None

    @property
    def is_first(self) -> bool:
        """Whether this process writes the files and the log."""
        return self.rank == 0

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Adds up tensors over all ranks, in place, in one exchange.

        Raises:
            LostProcess: another process has ended.
        """
        if self.size == 1 or not tensors:
            return
        flat = torch.cat([x.reshape(-1) for x in tensors])
        with lost_processes_named():
            dist.all_reduce(flat)
        parts = flat.split([x.numel() for x in tensors])
        for x, part in zip(tensors, parts, strict=True):
            x.copy_(part.view_as(x))

    def gather(self, value: object) -> list:
        """Returns every rank's value, in the order of ranks.

        Raises:
            LostProcess: another process has ended.
        """
        if self.size == 1:
            return [value]
        values: list = [None] * self.size
        with lost_processes_named():
            dist.all_gather_object(values, value, self.group)
        return values

    def agree(self, facts: Mapping[str, object]) -> None:
        """Makes sure that all ranks found the same.

        Args:
            facts: what was found, by what it is called in a sentence.

        Raises:
            UserError: one found something else than rank 0, for instance on another machine.
        """
        told = self.gather((socket.gethostname(), dict(facts)))
        host, expected = told[0]
        for rank, (other, found) in enumerate(told):
            for name, value in found.items():
                if value != expected[name]:
                    raise UserError(
                        f"{name}: {value} for rank {rank} on {other}, {expected[name]} for rank 0"
                        f" on {host}; all machines must see the same files, for instance on one"
                        " shared file system, and run the same version"
                    )

    @contextmanager
    def first_alone(self) -> Iterator[None]:
        """Lets rank 0 run the block, then the first rank of each other machine, then the others,
        who find the files of those before them; an error of one stops all.
        """
        turn = 0 if self.is_first else 1 if self.local_rank == 0 else 2
        error: Exception | None = None
        for now in range(3):
            if now == turn and error is None:
                try:
                    yield
                except Exception as raised:
                    error = raised
            told = self.gather(str(error) if error else None)
            failed = [rank for rank, text in enumerate(told) if text is not None]
            if error is not None:
                raise error
            if failed:
                raise LostProcess(f"rank {failed[0]} stopped: {told[failed[0]]}")


@contextmanager
def lost_processes_named() -> Iterator[None]:
    """Turns what torch says when another process has gone into a sentence."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise LostProcess(
            f"another process of this run has ended or cannot be reached ({reason:.200}); its own"
            " message says why"
        ) from None


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
        if local_rank >= torch.cuda.device_count():
            raise UserError(
                f"device cuda: process {local_rank} of this machine needs a GPU of its own, torch"
                f" sees {torch.cuda.device_count()}; start that many with --nproc-per-node"
            )
        return torch.device("cuda", local_rank)
    if name == "mps" and not torch.backends.mps.is_available():
        raise UserError("device mps: torch sees no Apple GPU here; use device=cpu")
    return torch.device(name)


def fresh_store(store: dist.Store, rank: int, size: int) -> dist.Store:
    """Returns a part of a store that the processes of this start share, and nobody else has used.

    torchrun keeps its store when it starts processes again, and the addresses in it of those that
    have died would be taken for those of the new ones. So each rank asks under a name that it has
    made up, and rank 0 tells each the name of the part until it has answered from there.

    Raises:
        RuntimeError: not all have come in time.
    """
    store.set_timeout(MEETING)
    own = uuid.uuid4().hex
    if rank > 0:
        store.set(f"who is rank {rank}", own)
        part = store.get(f"part for {own}").decode()
        store.set(f"{part}/{rank} is here", "")
        return dist.PrefixStore(part, store)
    waited_for = set(range(1, size))
    deadline = time.monotonic() + MEETING.total_seconds()
    while waited_for:
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited in vain for ranks {sorted(waited_for)}")
        for other in sorted(waited_for):
            if store.check([f"{own}/{other} is here"]):
                waited_for.remove(other)
            elif store.check([f"who is rank {other}"]):
                name = store.get(f"who is rank {other}").decode()
                store.set(f"part for {name}", own)
        time.sleep(0.01)
    return dist.PrefixStore(own, store)


@contextmanager
def start_ranks(device: str) -> Iterator[Ranks]:
    """Joins the processes that torchrun started, or stands alone, until the block ends.

    Raises:
        UserError: the device is not there, or the processes do not find each other.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    chosen = choose_device(device, local_rank)
    if size == 1:
        yield Ranks(0, 1, chosen)
        return
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    with lost_processes_named():
        store, rank, size = next(dist.rendezvous("env://"))
        dist.init_process_group(
            "nccl" if chosen.type == "cuda" else "gloo",
            store=fresh_store(store, rank, size),
            rank=rank,
            world_size=size,
        )
        group = dist.new_group(backend="gloo", timeout=PATIENCE)
    try:
        yield Ranks(dist.get_rank(), size, chosen, local_rank, group)
    finally:
        dist.destroy_process_group()
