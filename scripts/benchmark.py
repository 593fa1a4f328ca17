"""Measures training, translation and data preparation against plain baselines, in one run.

    python scripts/benchmark.py train --d-model 128 256 512 --repeats 5 --json train.json
    python scripts/benchmark.py train --contenders ours@bfloat16 plain@float32 compiled@bfloat16
    python scripts/benchmark.py translate
    python scripts/benchmark.py data --pairs 100000 1000000 --text-folder /tmp/text

Every measurement is a fresh process, so that peaks of memory do not mix. The contenders take turns,
each second round in the opposite order, and the table gives medians over the rounds. No data is
needed: sentences are random, from a fixed seed.

Contenders are named NAME or NAME@PRECISION.
  train      ours; plain: a tutorial's loop around torch.nn.Transformer, random batches padded to
             the longest; sorted: the same loop on our length-sorted micro-batches; compiled: plain
             through torch.compile; marian: Hugging Face's MarianMTModel in the plain loop
             (a default where `transformers` is installed)
  translate  greedy, beam5: ours; ct2-greedy, ct2-beam5: CTranslate2 with the same weights, a small
             batch on each core at once (a default where `ctranslate2` is installed); plain:
             torch.nn.Transformer, greedy, reading the prefix anew; hf-greedy, hf-beam5: `generate`
             of Hugging Face, with the same weights in its M2M100. With --run and --lines a trained
             model translates text, else random ids
  data       ours: read, filter, train a tokenizer, encode; start: a run on what is prepared;
             spm, spm-all-cores: SentencePiece alone, encoding the same lines
Columns of train and translate: `all tokens` are source and target without padding; `GFLOP/s` counts
the matrix products that the real tokens need; `of ceiling` is its share of what matrix products of
the model's shapes reach on this device; `peak` is the growth of resident memory since before the
model was built (on a GPU: memory allocated there); `/ plain` is the speed over that of the first
contender `plain`.
Columns of data: `pairs/s` leaves out the training of the tokenizer, which sees a sample and does
not grow with the corpus; `resident` is the most memory of the whole process; `start` goes from the
start of the interpreter until data is ready, `first update` from there; `waiting` is the share of
time that the training of a small model then waits for data; the plan is that of an epoch.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast, get_args

import benchmark_measures as measures
from benchmark_data import measure_preparation, write_text
from benchmark_translation import OURS, measure_translation
from benchmark_work import Precision, Work, machine

from transformer.errors import UserError

Numbers = dict[str, float]
PRECISIONS = get_args(Precision)
CONTENDERS = {
    "train": ("ours", "plain", "sorted", "compiled", "marian"),
    "translate": (*OURS, "ct2-greedy", "ct2-beam5", "hf-greedy", "hf-beam5", "plain"),
    "data": ("ours", "start", "spm", "spm-all-cores"),
}
HAS_MARIAN = find_spec("transformers") is not None
HAS_CT2 = find_spec("ctranslate2") is not None
DEFAULTS = {
    "train": ["ours", "plain", "sorted", *(["marian"] if HAS_MARIAN else [])],
    "translate": ["greedy", "beam5", *(["ct2-greedy", "ct2-beam5"] if HAS_CT2 else []), "plain"],
    "data": ["ours", "start", "spm", "spm-all-cores"],
}
PATHS = ("json", "text_folder")
BASELINES = ("plain", "sorted", "spm-all-cores", "ct2-greedy", "ct2-beam5")
SIZES = ("d_model", "pairs")
SPEEDS = {"train": "target_tokens_per_s", "translate": "tokens_per_s", "data": "pairs_per_s"}
LOADED_FIRST = {
    "train": ["torch._dynamo"],
    "translate": ["ctranslate2"] if HAS_CT2 else [],
    "data": ["datasets"],
}
"""Large libraries that the first use of others loads; loaded before, they are in no measurement."""
COLUMNS = {
    "d_model": ("d_model", "{}"),
    "pairs": ("pairs", "{:,}"),
    "contender": ("", "{}"),
    "precision": ("precision", "{}"),
    "target_tokens_per_s": ("target tokens/s", "{:,.0f}"),
    "seconds": ("seconds", "{:.2f}"),
    "sentences_per_s": ("sentences/s", "{:,.1f}"),
    "tokens_per_s": ("all tokens/s", "{:,.0f}"),
    "pairs_per_s": ("pairs/s", "{:,.0f}"),
    "gflop_per_s": ("GFLOP/s", "{:,.1f}"),
    "ceiling_share": ("of ceiling", "{:.0%}"),
    "read_s": ("read s", "{:.2f}"),
    "tokenizer_s": ("tokenizer s", "{:.2f}"),
    "encode_s": ("encode s", "{:.2f}"),
    "total_s": ("total s", "{:.2f}"),
    "resident_mib": ("resident MiB", "{:,.0f}"),
    "disk_bytes": ("disk bytes/pair", "{:,.0f}"),
    "start_s": ("start s", "{:.2f}"),
    "first_update_s": ("first update s", "{:.2f}"),
    "waiting": ("waiting", "{:.2%}"),
    "plan_s": ("plan s/million", "{:.2f}"),
    "plan_bytes": ("plan bytes/pair", "{:.1f}"),
    "peak_mib": ("peak MiB", "{:,.0f}"),
    "bleu": ("BLEU", "{:.2f}"),
    "padding": ("padding", "{:.0%}"),
    "times_plain": ("/ plain", "{:.2f}x"),
    "times_sorted": ("/ sorted", "{:.2f}x"),
    "times_ct2-greedy": ("/ ct2-greedy", "{:.2f}x"),
    "times_ct2-beam5": ("/ ct2-beam5", "{:.2f}x"),
    "times_spm-all-cores": ("/ spm-all-cores", "{:.2f}x"),
}
"""Key in the JSON -> head and format of the column, left out where no row has it."""


def in_fresh_process(function: Callable[..., Any], *arguments: object) -> Any:
    """Calls a function in a new process; this one has loaded the libraries and computes nothing."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        return pool.submit(function, *arguments).result()


def rounds(contenders: Sequence[str], repeats: int) -> Iterator[list[str]]:
    """Yields the contenders so many times, each second time in the opposite order."""
    for i in range(repeats):
        yield list(contenders) if i % 2 == 0 else list(reversed(contenders))


def medians(found: list[Numbers]) -> Numbers:
    """Returns the median of each number over the rounds."""
    return {key: statistics.median(numbers[key] for numbers in found) for key in found[0]}


def run_models(command: str, work: Work, contenders: list[str], repeats: int) -> list[dict]:
    """Measures training or translation at one size; returns a row for each contender."""
    jobs = {}
    for contender in contenders:
        name, _, named = contender.partition("@")
        precision = cast(Precision, named or work.precision)
        jobs[contender] = (name, replace(work, precision=precision))
    ceilings = {f"ceiling@{job.precision}": job for _, job in jobs.values()}
    found: dict[str, list[Numbers]] = {label: [] for label in [*jobs, *ceilings]}
    measure = measures.measure_training if command == "train" else measure_translation
    for order in rounds(list(found), repeats):
        for label in order:
            if label in jobs:
                name, job = jobs[label]
                found[label].append(in_fresh_process(measure, job, name))
            elif command == "train":
                found[label].append(in_fresh_process(measures.measure_ceiling, ceilings[label]))
            tell(work, label, found[label])
    rows = []
    for label, (name, job) in jobs.items():
        row: dict[str, Any] = {
            "d_model": work.d_model,
            "contender": name,
            "precision": job.precision,
        }
        row |= medians(found[label])
        if command == "train":
            ceiling = medians(found[f"ceiling@{job.precision}"])["gflop_per_s"]
            row |= {"ceiling_gflop_per_s": ceiling, "ceiling_share": row["gflop_per_s"] / ceiling}
        rows.append(row | {"rounds": found[label]})
    return rows


def run_data(
    work: Work, contenders: list[str], repeats: int, text_folder: Path | None
) -> list[dict]:
    """Measures preparation of a corpus; `ours` is always first, as the others use its cache."""
    found: dict[str, list[Numbers]] = {name: [] for name in dict.fromkeys(["ours", *contenders])}
    with tempfile.TemporaryDirectory() as folder:
        text = text_folder or Path(folder)
        in_fresh_process(write_text, work, text)
        for order in rounds([name for name in found if name != "ours"], repeats):
            with tempfile.TemporaryDirectory(dir=text) as cache:
                for name in ["ours", *order]:
                    numbers = in_fresh_process(measure_preparation, work, name, text, Path(cache))
                    found[name].append(numbers)
                    tell(work, name, found[name])
    return [
        {"pairs": work.pairs, "contender": name, **medians(numbers), "rounds": numbers}
        for name, numbers in found.items()
    ]


def tell(work: Work, label: str, found: list[Numbers]) -> None:
    """Says on stderr what the last measurement of a contender gave."""
    if found:
        key, value = next(iter(found[-1].items()))
        size = f"d_model {work.d_model}  " if work.d_model else f"{work.pairs:,} pairs  "
        print(f"{size}{label}: {key} {value:,.1f}", file=sys.stderr)


def add_speeds(rows: list[dict], key: str) -> None:
    """Adds to each row how many times as fast it is as each baseline of the same size."""
    for row in rows:
        for name in BASELINES:
            same = [r for r in rows if r["contender"] == name]
            base = next((r for r in same if all(r.get(x) == row.get(x) for x in SIZES)), None)
            if base is not None and key in row:
                row[f"times_{name}"] = row[key] / base[key]


def table(rows: list[dict]) -> str:
    """Lays rows out as a Markdown table."""
    keys = [key for key in COLUMNS if any(key in row for row in rows)]
    lines = [[COLUMNS[key][0] for key in keys], ["---"] * len(keys)]
    lines += [[COLUMNS[k][1].format(row[k]) if k in row else "" for k in keys] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def contender(command: str) -> Callable[[str], str]:
    """Returns the check of a contender's name on the command line."""

    def check(text: str) -> str:
        name, at, precision = text.partition("@")
        if name not in CONTENDERS[command] or (at and precision not in PRECISIONS):
            raise argparse.ArgumentTypeError(
                f"{text!r} is none of {', '.join(CONTENDERS[command])}, with"
                f" @{' or @'.join(PRECISIONS)}"
            )
        return text

    return check


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in CONTENDERS:
        sub = commands.add_parser(name, formatter_class=argparse.ArgumentDefaultsHelpFormatter)

        def option(flag: str, default: int, text: str, sub: Any = sub) -> None:
            sub.add_argument(flag, type=int, default=default, help=text)

        option("--repeats", 3, "rounds")
        option("--vocab-size", 8000, "entries of the vocabulary")
        option("--batch-tokens", 4096, "tokens of an update or a batch")
        option("--threads", 0, "threads of each process; 0 is torch's choice")
        option("--seed", 1, "seed of the workload")
        if name == "data":
            sub.add_argument("--pairs", type=int, nargs="+", default=[100_000], help="sizes")
            sub.add_argument("--text-folder", type=Path, help="keeps the text for another time")
        else:
            sub.add_argument("--d-model", type=int, nargs="+", default=[256], help="widths")
            option("--layers", 3, "layers of encoder and of decoder")
            sub.add_argument("--precision", choices=PRECISIONS, default="float32", help=" ")
            sub.add_argument("--device", default="auto", help="auto, cpu, cuda or mps")
        if name == "train":
            option("--updates", 10, "updates that are timed")
            option("--max-tokens", 2048, "padded tokens of a micro-batch of ours")
        if name == "translate":
            option("--sentences", 200, "sentences to translate")
            sub.add_argument("--run", help="run whose model translates; else random weights do")
            sub.add_argument("--lines", help="file of source lines for --run")
            sub.add_argument("--references", help="their translations, for BLEU")
            sub.add_argument("--shortlist", help="file of `transformer shortlist`")
        sub.add_argument(
            "--contenders", nargs="+", type=contender(name), default=DEFAULTS[name], help=" "
        )
        sub.add_argument("--json", type=Path, help="file for all figures")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> dict:
    """Measures what the command line asks for; returns all figures."""
    settings = {name: value for name, value in vars(options).items() if name not in PATHS}
    names = {field.name for field in fields(Work)} & settings.keys() - {"d_model", "pairs"}
    work = Work(**{name: settings[name] for name in names})
    rows: list[dict] = []
    if options.command == "train" and not HAS_MARIAN:
        print("without marian, which needs: pip install transformers", file=sys.stderr)
    for library in LOADED_FIRST[options.command]:
        import_module(library)
    if options.command == "data":
        for pairs in options.pairs:
            sized = replace(work, pairs=pairs)
            rows += run_data(sized, options.contenders, options.repeats, options.text_folder)
    else:
        for d_model in options.d_model:
            sized = replace(work, d_model=d_model)
            rows += run_models(options.command, sized, options.contenders, options.repeats)
    add_speeds(rows, SPEEDS[options.command])
    return {"settings": settings, "machine": in_fresh_process(machine, work), "rows": rows}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    options = parse(arguments)
    try:
        figures = run(options)
    except UserError as error:
        print(f"benchmark: {error}", file=sys.stderr)
        return 1
    print(table(figures["rows"]))
    print("\n" + ", ".join(f"{key} {value}" for key, value in figures["machine"].items()))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
