"""Test sets: read, translated, compared with their references and with another system's
translations, and written beside the model.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from transformer.config import Config
from transformer.data.corpus import load_corpora
from transformer.data.lines import open_lines
from transformer.decoding.options import SearchOptions
from transformer.decoding.results import Summary
from transformer.errors import UserError
from transformer.evaluation import Comparison, Evaluation, compare, evaluate
from transformer.systems import System
from transformer.training.logger import log

NAMES = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER"}


@dataclass(frozen=True)
class TestSet:
    """Source lines and one or more references of each.

    Attributes:
        name: what results call it.
        sources: one sentence a line; none if nothing is to be translated.
        references: for each reference translation, all of its lines.
    """

    __test__ = False  # not a test, whatever pytest thinks of its name

    name: str
    sources: list[str]
    references: list[list[str]]


@dataclass(frozen=True)
class Scoring:
    """How translations are compared with references.

    Attributes:
        target_language: chooses sacreBLEU's tokenizer.
        tokenize: sacreBLEU's tokenizer; None chooses it by the target language.
        lowercase: ignores case.
    """

    target_language: str = ""
    tokenize: str | None = None
    lowercase: bool = False


@dataclass(frozen=True)
class Result:
    """How a system did on a test set.

    Attributes:
        name: of the test set.
        evaluation: scores and signatures.
        options: of the search; None if there was none.
        seconds: that translating took.
        path: where the translations are; None if they were not written.
        summary: what was translated, and how much of it was cut or came out empty; None for a file.
        precision: numbers that the model computed with; None for a file.
        against: the other system's name, if there is one.
        comparisons: with the other system, by metric.
    """

    name: str
    evaluation: Evaluation
    options: SearchOptions | None
    seconds: float
    path: Path | None
    summary: Summary | None = None
    precision: str | None = None
    against: str | None = None
    comparisons: dict[str, Comparison] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Returns the result for people."""
        found, options = self.evaluation, self.options
        head = f"{self.name}: {found.lines} lines"
        if options is not None:
            head += f", beam {options.beam_size}, length penalty {options.length_penalty:g}"
            head += f", {self.precision}"
            head += f", {self.seconds:.1f} s"
        if self.path is not None:
            head += f", translations in {self.path}"
        scores = [f"  {NAMES[k]:5}{m.score:6.2f}  {m.signature}" for k, m in found.metrics.items()]
        return [head, *scores, *self._comparison_lines()]

    def _comparison_lines(self) -> list[str]:
        if self.against is None:
            return []
        lines = [f"  against {self.against}, paired bootstrap, mean and 95 % interval of each:"]
        for name, c in self.comparisons.items():
            lines.append(
                f"  {NAMES[name]:5}{c.difference:+6.2f}  p {c.p_value:.4f}"
                f"  {c.this.mean:.2f} ± {c.this.interval:.2f}"
                f" against {c.other.mean:.2f} ± {c.other.interval:.2f}  {c.signature}"
            )
        return lines

    def to_json(self) -> dict[str, Any]:
        """Returns the result for machines."""
        values: dict[str, Any] = {
            **asdict(self.evaluation),
            "search": None if self.options is None else asdict(self.options),
            "seconds": self.seconds,
            "translations": None if self.path is None else str(self.path),
        }
        if self.summary is not None:
            values["precision"] = self.precision
            values["cut"], values["empty"] = self.summary.num_cut, self.summary.num_empty
            values["longer_than_in_training"] = self.summary.num_long
        if self.against is not None:
            compared = {
                name: {"difference": found.difference, **asdict(found)}
                for name, found in self.comparisons.items()
            }
            values["against"] = {"system": self.against, "metrics": compared}
        return values


@dataclass(frozen=True)
class Place:
    """Where translations of test sets go: a file each.

    Attributes:
        folder: of the files.
        prefix: what their names begin with.
    """

    folder: Path
    prefix: str = ""

    @classmethod
    def of(cls, model: Path, output: Path | None) -> Place:
        """Returns the folder asked for, else `translations` in the run directory or beside the
        model's file, whose name the files then bear.

        Raises:
            UserError: a file stands where the folder should be.
        """
        if output is not None:
            if output.is_file():
                raise UserError(f"{output}: is a file; --output names a folder for translations")
            return cls(output)
        if model.is_file():
            return cls(model.parent / "translations", f"{model.name.removesuffix('.safetensors')}.")
        return cls(model / "translations")

    def file(self, name: str) -> Path:
        """Returns the path of a test set's translations."""
        return self.folder / f"{self.prefix}{name}.txt"


def read_pairs(source: Path, target: Path) -> tuple[list[str], list[str]]:
    """Reads two text files line by line.

    Raises:
        UserError: they have not the same number of lines.
    """
    sources, targets = list(open_lines(source)), list(open_lines(target))
    if len(sources) != len(targets):
        raise UserError(f"{source} has {len(sources)} lines, {target} has {len(targets)}")
    return sources, targets


def read_test_set(source: Path | None, references: Sequence[Path]) -> TestSet:
    """Reads a test set from text files; without a source, nothing of it can be translated."""
    if source is None:
        return TestSet(_stem(references[0]), [], [list(open_lines(path)) for path in references])
    pairs = [read_pairs(source, reference) for reference in references]
    return TestSet(_stem(source), pairs[0][0], [lines for _, lines in pairs])


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz")


def named_test_sets(config: Config) -> list[TestSet]:
    """Reads the test sets of a configuration.

    Raises:
        UserError: it names none.
    """
    if not config.data.test:
        raise UserError("the configuration names no test sets: give --source and --reference")
    found = []
    for name, corpus in config.data.test.items():
        pairs = load_corpora([corpus], config.data)
        found.append(TestSet(name, list(pairs["src"]), [list(pairs["tgt"])]))
    return found


def run_test_sets(
    system: System,
    test_sets: Sequence[TestSet],
    scoring: Scoring,
    place: Place | None,
    against: System | None = None,
) -> list[Result]:
    """Translates and scores test sets; writes a model's translations to their place.

    Args:
        system: what is evaluated.
        test_sets: what to translate.
        scoring: how it is scored.
        place: where the translations go; None writes none.
        against: another system, with which it is compared.

    Raises:
        UserError: a file of translations does not fit.
    """
    for each in (system, against):
        if each is not None and each.lines is not None and len(test_sets) > 1:
            raise UserError(
                f"{each.name}: a file of translations goes with one test set, and here are"
                f" {len(test_sets)}: give --source and --reference"
            )
    return [_run(system, test_set, scoring, place, against) for test_set in test_sets]


def _run(
    system: System,
    test_set: TestSet,
    scoring: Scoring,
    place: Place | None,
    against: System | None,
) -> Result:
    num_lines = len(test_set.references[0])
    started_at = time.monotonic()
    outputs, summary = system.translate(test_set.sources, num_lines, test_set.name)
    seconds = time.monotonic() - started_at
    found = evaluate(outputs, test_set.references, **asdict(scoring))
    for warning in found.warnings:
        log.warning("%s: %s", test_set.name, warning)
    path = None
    if system.translator is not None and place is not None:
        path = _write(place.file(test_set.name), outputs)
    precision = system.translator.precision if system.translator else None
    result = Result(test_set.name, found, system.options, seconds, path, summary, precision)
    if against is None:
        return result
    others, _ = against.translate(test_set.sources, num_lines, test_set.name)
    comparisons = compare(outputs, others, test_set.references, **asdict(scoring))
    return replace(result, against=against.name, comparisons=comparisons)


def _write(path: Path, lines: Sequence[str]) -> Path | None:
    """Writes translations; a folder that cannot be written costs a warning, not the result."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    except OSError as error:
        log.warning("%s: the translations could not be written: %s", path, error.strerror)
        return None
    return path
