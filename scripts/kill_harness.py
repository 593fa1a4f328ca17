"""Kills training runs at random moments and shows that nothing of them is lost.

    python scripts/kill_harness.py --kills 50 --seed 1
    python scripts/kill_harness.py --kills 50 --signal SIGTERM
    python scripts/kill_harness.py --kills 50 --processes 2
    python scripts/kill_harness.py --each-file-operation

A small run (dropout, subword sampling, a moving average, validation, early stopping) is trained
once undisturbed. Then the same run is started again and again, killed with SIGKILL while it reads
data, trains its vocabulary, updates, saves, validates or resumes, and gone on with by `train
--resume`, until it is done; and that from the start, until there have been as many kills as asked.
With `--each-file-operation` it is killed once before each thing that it does to a file, in turn.

Every killed run must leave what the undisturbed one left: the same checkpoints with the same bits,
the same best model, the same mean of the newest checkpoints, and records in metrics.jsonl and
TensorBoard that are equal in all but times, each step once. Exit status 1 if one does not. A signal
that asks to stop, such as SIGTERM, leaves a checkpoint of its own; then the last one is compared.
Of several processes one at random is killed; the first then saves if it can, and again the last
checkpoint is compared.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path

from kill_comparison import differences
from kill_lives import Life, live, preload, write_task
from kill_moments import PHASES, Killer, Moment

FIRST_TIME_ONLY = ("data preparation", "tokenizer training")
"""Phases that a run passes once, since what they make is kept."""


def shuffled_phases(rng: random.Random) -> list[str]:
    """Returns the phases in which one run is to be killed, in that order."""
    first = [*FIRST_TIME_ONLY, rng.choice(FIRST_TIME_ONLY), "data preparation"]
    others = [phase for phase in PHASES if phase not in FIRST_TIME_ONLY] * 5
    rng.shuffle(others)
    return first + others


def kill_at_random(
    task: Path,
    seconds: dict[str, float],
    rng: random.Random,
    signal_number: int,
    num_processes: int,
) -> list[Life]:
    """Trains a run that is killed in one phase after the other; returns its lives but the last.

    Args:
        task: folder of the run.
        seconds: how long each phase takes, undisturbed.
        rng: decides the moments.
        signal_number: what kills.
        num_processes: that train together.
    """

    def moment(phase: str) -> Moment:
        entry = rng.randint(1, PHASES[phase].most_entries)
        return Moment(phase, entry, rng.random() * seconds[phase])

    lives: list[Life] = []
    for phase in shuffled_phases(rng):
        # A phase that does not come again is replaced by an update.
        moments = (moment(phase), moment("updates"))
        rank = rng.randrange(num_processes)
        killer = Killer(moments, signal_number=signal_number, rank=rank)
        lives.append(live(task, killer, num_processes))
        if not lives[-1].was_killed:
            return lives[:-1]
    live(task, num_processes=num_processes)
    return lives


def random_kills(
    folder: Path, num_kills: int, seed: int, signal_number: int, num_processes: int
) -> tuple[list[Life], list[str]]:
    """Returns the lives that ended by a signal, and what was lost by them."""
    reference = write_task(folder / "undisturbed")
    life = live(reference, num_processes=num_processes)
    own_steps = signal_number != signal.SIGKILL or num_processes > 1
    rng, lives, lost, run = random.Random(seed), list[Life](), list[str](), 0
    while len(lives) < num_kills:
        run += 1
        task = write_task(folder / f"run-{run}")
        lives += kill_at_random(task, life.phase_seconds, rng, signal_number, num_processes)
        found = differences(reference, task, own_steps)
        lost += [f"run {run}: {text}" for text in found]
        print(f"run {run}: {len(lives)} kills so far", file=sys.stderr, flush=True)
    return lives, lost


def kills_at_file_operations(folder: Path, stride: int) -> tuple[list[Life], list[str]]:
    """Kills a run before its first file operation, another `stride` operations later, and so on."""
    reference = write_task(folder / "undisturbed", max_steps=8)
    live(reference)
    lives, lost = list[Life](), list[str]()
    for operation in range(1, 10_000, stride):
        task = write_task(folder / f"operation-{operation}", max_steps=8)
        life = live(task, Killer(operation=operation))
        if not life.was_killed:
            break
        lives.append(life)
        live(task)
        lost += [f"file operation {operation}: {text}" for text in differences(reference, task)]
        shutil.rmtree(task)
    return lives, lost


def table(kills: Counter[str], lost: list[str]) -> str:
    """Returns the kills by phase in Markdown, and what was lost."""
    rows = [f"| {phase} | {count} |" for phase, count in kills.most_common()]
    head = ["| killed in | times |", "|---|---|"]
    end = [f"| all | {kills.total()} |", "", f"differences to the undisturbed run: {len(lost)}"]
    return "\n".join([*head, *rows, *end, *lost])


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=50, help="fewest kills at random moments")
    parser.add_argument("--seed", type=int, default=1, help="decides the moments")
    parser.add_argument("--each-file-operation", action="store_true", help="instead of at random")
    parser.add_argument("--stride", type=int, default=1, help="only each so manyth of these")
    signals = ["SIGKILL", "SIGTERM", "SIGINT"]
    parser.add_argument("--signal", choices=signals, default="SIGKILL", help="what kills at random")
    parser.add_argument("--processes", type=int, default=1, help="that train together")
    parser.add_argument("--json", type=Path, help="file for the figures")
    args = parser.parse_args()
    preload()
    number = signal.Signals[args.signal]
    with tempfile.TemporaryDirectory(prefix="killed-") as name:
        if args.each_file_operation:
            lives, lost = kills_at_file_operations(Path(name), args.stride)
        else:
            lives, lost = random_kills(Path(name), args.kills, args.seed, number, args.processes)
    kills = Counter(life.died_in for life in lives)
    figures: dict[str, object] = {"kills": kills, "lost": lost}
    print(table(kills, lost))
    if number != signal.SIGKILL:
        figures["longest_seconds"] = max(life.seconds_to_end for life in lives)
        print(f"longest time from {args.signal} to the end: {figures['longest_seconds']:.1f} s")
    if args.json is not None:
        args.json.write_text(json.dumps(figures, indent=2))
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    main()
