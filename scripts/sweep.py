"""Trains what a file of recipes and seeds asks for, run after run, and compares them in a table.

    python scripts/sweep.py SWEEP.yaml --dry-run        # says what there is to do
    python scripts/sweep.py SWEEP.yaml                  # does it, and goes on where it was stopped
    python scripts/sweep.py SWEEP.yaml --test r_drop    # evaluates a recipe on the test sets too

SWEEP.yaml:

    config: configs/multi30k_en_de.yaml
    folder: runs/sweep           # runs in RECIPE/seed-N, the table in table.md
    seeds: [1, 2, 3]
    settings: {training.max_steps: 3000}
    recipes:                     # the first one is the baseline of the comparisons
      plain: {}
      r_drop: {training.r_drop: 2.5}
      tuned: {init_from: "{folder}/r_drop/seed-{seed}", training.learning_rate: 1e-4}
      averaged: {runs_of: r_drop, average: 3, decoding.length_penalty: 0.8}

A run that is finished is not repeated and one that was interrupted goes on; a run that another
process is training is left to it, so that several sweeps of one file share the work. All is scored
on the validation set, and on the test sets only what `--test` names.
"""

from __future__ import annotations

import argparse
import fcntl
import sys
from collections.abc import Sequence
from pathlib import Path

from sweep_plan import Job, SweepFile, plan_jobs, read_sweep
from sweep_results import evaluate_job, is_done, write_tables

from transformer.config_file import load_config
from transformer.errors import InterruptedRun, OtherDataError, UserError, sentence_of
from transformer.evaluation import check_tokenizer
from transformer.training.checkpoint import list_checkpoints, read_checkpoint
from transformer.training.logger import log, log_to_console
from transformer.training.run import refuse_changed_data, train


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(description="Train and compare recipes.")
    parser.add_argument("file", type=Path, metavar="SWEEP.yaml", help="recipes and seeds")
    parser.add_argument("--dry-run", action="store_true", help="say what there is to do")
    parser.add_argument("--test", nargs="+", default=[], metavar="RECIPE", help="use the test sets")
    chosen = parser.parse_args(arguments)
    log_to_console()
    try:
        sweep = read_sweep(chosen.file)
        if sweep.tokenize is not None:
            check_tokenizer(sweep.tokenize)
        unknown = [name for name in chosen.test if name not in sweep.recipes]
        if unknown:
            there = ", ".join(sweep.recipes)
            raise UserError(f"--test {unknown[0]}: no such recipe in {chosen.file}; it has {there}")
        jobs = plan_jobs(sweep)
        if chosen.dry_run:
            print("\n".join(describe(job, sweep) for job in jobs))
            return 0
        num_failed = run_jobs(jobs, sweep, chosen.test)
        print(write_tables(jobs, sweep), end="")
    except UserError as error:
        print(f"sweep: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # while it evaluates
        print(f"sweep: stopped; the same command goes on: {chosen.file}", file=sys.stderr)
        return 130
    except OSError as error:
        print(f"sweep: {sentence_of(error)}", file=sys.stderr)
        return 1
    except InterruptedRun as interrupted:
        print(f"sweep: stopped; the same command goes on: {chosen.file}", file=sys.stderr)
        return 128 + interrupted.signal_number
    return 1 if num_failed else 0


def describe(job: Job, sweep: SweepFile) -> str:
    """Says how far a job is and what it changes."""
    own = load_config(sweep.config).model_dump(mode="json")
    now = job.config.model_dump(mode="json")
    changes = [
        f"{section}.{key}={value}"
        for section in ("data", "tokenizer", "model", "training", "validation", "decoding")
        for key, value in now[section].items()
        if own[section][key] != value
    ]
    return f"{job.name}: {state(job, sweep)}: {' '.join(changes) or 'as it is'}"


def state(job: Job, sweep: SweepFile) -> str:
    """Says how far a job is."""
    if is_done(job, sweep):
        return "done"
    checkpoints = list_checkpoints(job.run_dir)
    if not job.trains or not checkpoints:
        return "to do"
    training = job.config.training
    epochs = training.max_epochs
    limit = f" of {training.max_steps}" if epochs is None else f", epochs: {epochs}"
    return f"after step {checkpoints[-1][0]}{limit}"


def run_jobs(jobs: Sequence[Job], sweep: SweepFile, tested: Sequence[str]) -> int:
    """Trains and evaluates what is not done yet; returns how many jobs could not be done."""
    num_failed = 0
    for number, job in enumerate(jobs, 1):
        if is_held(job.run_dir):
            log.info("%s: another process is training it", job.name)
            continue
        log.info("%s (%d of %d): %s", job.name, number, len(jobs), state(job, sweep))
        try:
            if job.trains:
                train_job(job, sweep)
            evaluate_job(job, sweep, is_test=False)
            if job.recipe in tested:
                evaluate_job(job, sweep, is_test=True)
        except UserError as error:
            num_failed += 1
            log.error("%s: %s", job.name, error)
            continue
        write_tables(jobs, sweep)
    return num_failed


def train_job(job: Job, sweep: SweepFile) -> None:
    """Trains what is not trained yet.

    Raises:
        UserError: the run cannot be trained, or has learned from other data than there is now.
    """
    try:
        if is_done(job, sweep):
            newest = read_checkpoint(list_checkpoints(job.run_dir)[-1][1])
            refuse_changed_data(newest, job.config)
        else:
            train(job.config, resume=True, same_data=True)
    except OtherDataError:
        raise UserError(
            "was trained on data that has changed since; delete its folder, or give the recipe"
            " another name"
        ) from None


def is_held(run_dir: Path) -> bool:
    """Tells whether another process is training in a run directory."""
    lock = run_dir / ".lock"
    if not lock.is_file():
        return False
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


if __name__ == "__main__":
    sys.exit(main())
