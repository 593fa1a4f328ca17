"""Trains with several processes, as torchrun would start them, but as forks of one process that has
loaded everything; and writes down what they did.

    python ranks_at_work.py JOBS.json

JOBS is a list of objects: `name`; `config`, a file; `others`, that of ranks after the first, if it
is another; `ranks`, how many processes; `resume`; `double`, for arithmetic in float64;
`patience_seconds`, after which what processes compute together fails; `validation_seconds`, which
validation takes on rank 0. Each job adds NAME-RANK.json beside JOBS: how many micro-batches each
update had here, how often gradients were shared, which lines were translated, how it ended.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch.distributed as dist
import torch.distributed.fsdp
import torch.distributed.tensor

from transformer.config_file import load_config
from transformer.decoding.translator import Translator
from transformer.errors import UserError
from transformer.model.transformer import Transformer
from transformer.training import run, trainer, validation


def work(jobs: Path) -> None:
    """Does all jobs, one after the other."""
    for job in json.loads(jobs.read_text()):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        processes = []
        for rank in range(job["ranks"]):
            process = os.fork()
            if process == 0:
                be_rank(job, rank, port, jobs.parent / f"{job['name']}-{rank}.json")
            processes.append(process)
        for process in processes:
            os.waitpid(process, 0)


def be_rank(job: dict[str, Any], rank: int, port: int, report: Path) -> None:
    """Is one process of a job."""
    size = job["ranks"]
    if size > 1:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    if job.get("double"):
        torch.set_default_dtype(torch.float64)
    did: dict[str, Any] = {"exchanges": 0, "updates": [], "translated": [], "error": None}
    count(did)
    if "patience_seconds" in job:
        patience = timedelta(seconds=job["patience_seconds"])
        dist.init_process_group = partial(dist.init_process_group, timeout=patience)
    if rank == 0:
        slow_down(job.get("validation_seconds", 0))
    status = 0
    try:
        config = job.get("others", job["config"]) if rank else job["config"]
        run.train(load_config(config), resume=job.get("resume", False))
    except UserError as error:
        did["error"] = str(error)
    except BaseException:
        did["error"], status = traceback.format_exc(), 1
    report.write_text(json.dumps(did))
    os._exit(status)


def slow_down(seconds: float) -> None:
    """Lets each validation take so long in this process."""
    run = validation.Validator.run

    def slow_run(self: validation.Validator, model: Transformer) -> validation.Validation:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            torch.ones(1000).sum()
        return run(self, model)

    validation.Validator.run = slow_run  # type: ignore[method-assign]


def count(did: dict[str, Any]) -> None:
    """Counts updates, exchanges of gradients in them, and lines that were translated."""
    update, all_reduce, translate = (
        trainer.Trainer.update,
        dist.all_reduce,
        Translator.translate,
    )

    def counted_update(self: trainer.Trainer, what: trainer.Update) -> bool:
        did["updates"].append(len(what.batches))
        dist.all_reduce = counted_all_reduce
        try:
            return update(self, what)
        finally:
            dist.all_reduce = all_reduce

    def counted_all_reduce(*args: Any, **kwargs: Any) -> Any:
        did["exchanges"] += 1
        return all_reduce(*args, **kwargs)

    def counted_translate(self: Translator, lines: Sequence[str], *args: Any) -> list[str]:
        did["translated"] += lines
        return translate(self, lines, *args)

    trainer.Trainer.update = counted_update  # type: ignore[method-assign]
    Translator.translate = counted_translate  # type: ignore[method-assign]


if __name__ == "__main__":
    work(Path(sys.argv[1]))
