"""What a sweep found: each run evaluated once, and a table that compares the recipes."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from sweep_plan import Job, SweepFile

from transformer.config import Config
from transformer.data.cache import fingerprint
from transformer.data.corpus import load_corpora
from transformer.data.lines import open_lines
from transformer.decoding.search import SearchOptions
from transformer.decoding.translator import Translator
from transformer.evaluation import compare
from transformer.systems import System
from transformer.test_sets import Place, Scoring, TestSet, named_test_sets, run_test_sets
from transformer.training.averaging import average_checkpoints
from transformer.training.checkpoint import find_checkpoint, list_checkpoints, read_checkpoint
from transformer.training.logger import clock

VALIDATION = "validation"


@dataclass(frozen=True)
class Found:
    """The result of one job on one test set, as it is kept beside the run.

    Attributes:
        asked: what was evaluated and how; a result is used again as long as this is the same.
        bleu: corpus BLEU.
        chrf: corpus chrF.
        signature: of that BLEU.
        num_parameters: of the model.
        seconds: that its training took.
        translations: the file with them.
        evaluated_at: when; for a test set, when it was looked at.
    """

    asked: dict[str, Any]
    bleu: float
    chrf: float
    signature: str
    num_parameters: int
    seconds: float
    translations: str
    evaluated_at: str


def sets_of(config: Config, is_test: bool) -> list[TestSet]:
    """Returns the validation set, or the test sets, of a configuration."""
    return named_test_sets(config) if is_test else [validation_set(config)]


def validation_set(config: Config) -> TestSet:
    """Returns the validation set of a configuration."""
    pairs = load_corpora(config.data.validation, config.data)
    return TestSet(VALIDATION, list(pairs["src"]), [list(pairs["tgt"])])


def scoring_of(sweep: SweepFile, config: Config) -> Scoring:
    """Returns how translations are scored."""
    return Scoring(config.data.target_language, sweep.tokenize, sweep.lowercase)


def kept_result(job: Job, sweep: SweepFile, test_set: TestSet) -> Found | None:
    """Returns the result that is there, if it is of what the recipe asks for now."""
    try:
        text = (job.home / f"{test_set.name}.json").read_text(encoding="utf-8")
        found = Found(**json.loads(text))
    except (OSError, ValueError, TypeError):  # not there, or damaged
        return None
    whole = Path(found.translations).is_file()
    return found if whole and found.asked == _asked(job, sweep, test_set) else None


def is_done(job: Job, sweep: SweepFile) -> bool:
    """Says whether a job has been validated as its recipe asks, on the text as it is now."""
    there = (job.home / f"{VALIDATION}.json").is_file()  # else the text need not be
    return there and kept_result(job, sweep, validation_set(job.config)) is not None


def evaluate_job(job: Job, sweep: SweepFile, is_test: bool) -> dict[str, Found]:
    """Returns the job's results by test set, translating only what was not yet translated.

    Each look at a test set leaves a line in the sweep's looks.tsv.
    """
    results = {}
    system = None
    for test_set in sets_of(job.config, is_test):
        found = kept_result(job, sweep, test_set)
        if found is None:
            system = system or _system(job)
            found = _evaluate(job, sweep, system, test_set)
            if is_test:
                with (Path(sweep.folder) / "looks.tsv").open("a", encoding="utf-8") as looks:
                    told = (found.evaluated_at, job.name, test_set.name, f"{found.bleu:.2f}")
                    looks.write("\t".join(told) + "\n")
        results[test_set.name] = found
    return results


def _asked(job: Job, sweep: SweepFile, test_set: TestSet) -> dict[str, Any]:
    step = 0
    if checkpoints := list_checkpoints(job.run_dir):
        step = checkpoints[-1][0]
    return {
        "run": str(job.run_dir),
        "step": step,
        "lines": fingerprint(test_set.sources, test_set.references),
        "average": job.average,
        "search": asdict(SearchOptions.from_config(job.config.decoding)),
        "tokenize": sweep.tokenize,
        "lowercase": sweep.lowercase,
    }


def _system(job: Job) -> System:
    path = find_checkpoint(job.run_dir)
    if job.average:
        path = job.home / "average.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        average_checkpoints(job.run_dir, job.average, path)
    translator = Translator.load(path, device=job.config.training.device)
    return System(job.name, translator, SearchOptions.from_config(job.config.decoding))


def _evaluate(job: Job, sweep: SweepFile, system: System, test_set: TestSet) -> Found:
    scoring = scoring_of(sweep, job.config)
    job.home.mkdir(parents=True, exist_ok=True)
    (result,) = run_test_sets(system, [test_set], scoring, Place(job.home / "translations"))
    newest = read_checkpoint(list_checkpoints(job.run_dir)[-1][1])
    metrics = result.evaluation.metrics
    found = Found(
        _asked(job, sweep, test_set),
        metrics["bleu"].score,
        metrics["chrf"].score,
        metrics["bleu"].signature,
        sum(weight.numel() for weight in newest.weights().values()),
        newest.metadata["progress"]["seconds"],
        str(result.path),
        datetime.now(UTC).isoformat(timespec="seconds"),
    )
    text = json.dumps(asdict(found), indent=2)
    aside = job.home / f"{test_set.name}.json.{os.getpid()}.partial"
    aside.write_text(text, encoding="utf-8")
    aside.replace(job.home / f"{test_set.name}.json")
    return found


def make_table(jobs: Sequence[Job], sweep: SweepFile, test_set: TestSet) -> str:
    """Returns the table of one test set in Markdown, from the results that are there."""
    found = {
        (job.recipe, job.seed): result
        for job in jobs
        if (result := kept_result(job, sweep, test_set)) is not None
    }
    if not found:
        return ""
    baseline = next(iter(sweep.recipes))
    config = jobs[0].config
    lines = [
        f"### {test_set.name}, {len(test_set.references[0]):,} lines",
        "",
        f"| recipe | BLEU | spread | seeds | chrF | against {baseline} | p | parameters | time |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for recipe in sweep.recipes:
        results = {seed: found[recipe, seed] for seed in sweep.seeds if (recipe, seed) in found}
        others = {seed: found[baseline, seed] for seed in results if (baseline, seed) in found}
        if results:
            others = {} if recipe == baseline else others
            lines.append(_row(recipe, results, others, test_set, scoring_of(sweep, config)))
    signatures = sorted({result.signature for result in found.values()})
    return "\n".join([*lines, "", *(f"`{signature}`" for signature in signatures), ""])


def _row(
    recipe: str,
    results: dict[int, Found],
    others: dict[int, Found],
    test_set: TestSet,
    scoring: Scoring,
) -> str:
    scores = [result.bleu for result in results.values()]
    gains, p_values = [], []
    for seed, other in others.items():
        gains.append(results[seed].bleu - other.bleu)
        both = [(x.translations, x.evaluated_at) for x in (results[seed], other)]
        p_values.append(_p_value(*both, tuple(map(tuple, test_set.references)), scoring))
    cells = [
        recipe,
        f"{statistics.mean(scores):.2f}",
        f"{statistics.stdev(scores):.2f}" if len(scores) > 1 else "",
        " ".join(f"{score:.2f}" for score in scores),
        f"{statistics.mean(result.chrf for result in results.values()):.2f}",
        f"{statistics.mean(gains):+.2f}" if gains else "",
        " ".join(f"{p:.3f}" for p in p_values),
        f"{next(iter(results.values())).num_parameters:,}",
        clock(statistics.mean(result.seconds for result in results.values())),
    ]
    return f"| {' | '.join(cells)} |"


@cache
def _p_value(
    mine: tuple[str, str],
    theirs: tuple[str, str],
    references: tuple[tuple[str, ...], ...],
    scoring: Scoring,
) -> float:
    """Returns the p value of the BLEU of two files of translations, each with its time."""
    outputs, others = (list(open_lines(path)) for path, _ in (mine, theirs))
    found = compare(outputs, others, references, metrics=("bleu",), **asdict(scoring))
    return found["bleu"].p_value


def explain_table(sweep: SweepFile) -> str:
    """Returns what the columns mean and what the recipes are, in Markdown."""
    lines = [
        "BLEU and chrF: mean over seeds; spread: standard deviation of BLEU over seeds. p: paired"
        f" bootstrap against {next(iter(sweep.recipes))}, seed by seed. Time: mean hours,"
        " minutes and seconds of training.",
        "",
        f"All recipes: `{sweep.config}` {_told(sweep.settings)}".rstrip(),
        "",
    ]
    lines += [f"- {recipe}: {_told(told) or 'as it is'}" for recipe, told in sweep.recipes.items()]
    return "\n".join([*lines, ""])


def _told(settings: dict[str, Any]) -> str:
    return " ".join(f"`{key}={value}`" for key, value in settings.items())


def write_tables(jobs: Sequence[Job], sweep: SweepFile) -> str:
    """Writes the tables of all that has been evaluated to table.md, and returns them."""
    config = jobs[0].config
    sets = sets_of(config, is_test=False)
    if any((job.home / f"{name}.json").exists() for job in jobs for name in config.data.test):
        sets += named_test_sets(config)
    tables = [table for test_set in sets if (table := make_table(jobs, sweep, test_set))]
    text = "\n".join([*tables, explain_table(sweep)])
    path = Path(sweep.folder) / "table.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return text
