"""Test sets: read, translated, compared with their references, and written beside the model."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from transformer.config import Config
from transformer.data.corpus import load_corpora
from transformer.data.lines import open_lines
from transformer.decoding.options import SearchOptions
from transformer.decoding.translator import Translator
from transformer.errors import UserError
from transformer.evaluation import Evaluation, evaluate
from transformer.training.logger import log


@dataclass(frozen=True)
class TestSet:
    """Source lines and one or more references of each.

    Attributes:
        name: what results call it.
        sources: one sentence a line.
        references: for each reference translation, all of its lines.
    """

    __test__ = False  # not a test, whatever pytest thinks of its name

    name: str
    sources: list[str]
    references: list[list[str]]


@dataclass(frozen=True)
class Result:
    """How a model did on a test set.

    Attributes:
        name: of the test set.
        evaluation: scores and signatures.
        options: of the search.
        seconds: that translating took.
        path: where the translations are; None if they could not be written.
    """

    name: str
    evaluation: Evaluation
    options: SearchOptions
    seconds: float
    path: Path | None

    def lines(self) -> list[str]:
        """Returns the result for people."""
        found, options = self.evaluation, self.options
        head = f"{self.name}: {found.lines} lines, beam {options.beam_size}, length penalty"
        head += f" {options.length_penalty:g}, {self.seconds:.1f} s"
        if self.path is not None:
            head += f", translations in {self.path}"
        names = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER"}
        scores = [f"  {names[k]:5}{m.score:6.2f}  {m.signature}" for k, m in found.metrics.items()]
        return [head, *scores]

    def to_json(self) -> dict[str, Any]:
        """Returns the result for machines."""
        return {
            **asdict(self.evaluation),
            "search": asdict(self.options),
            "seconds": self.seconds,
            "translations": None if self.path is None else str(self.path),
        }


def read_pairs(source: Path, target: Path) -> tuple[list[str], list[str]]:
    """Reads two text files line by line.

    Raises:
        UserError: they have not the same number of lines.
    """
    sources, targets = list(open_lines(source)), list(open_lines(target))
    if len(sources) != len(targets):
        raise UserError(f"{source} has {len(sources)} lines, {target} has {len(targets)}")
    return sources, targets


def read_test_set(source: Path, references: Sequence[Path]) -> TestSet:
    """Reads a test set from text files."""
    pairs = [read_pairs(source, reference) for reference in references]
    return TestSet(source.name.removesuffix(".gz"), pairs[0][0], [lines for _, lines in pairs])


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
    translator: Translator,
    test_sets: Sequence[TestSet],
    options: SearchOptions,
    tokenize: str | None,
    lowercase: bool,
    folder: Path,
) -> list[Result]:
    """Translates and scores test sets; writes the translations under `folder`.

    Args:
        translator: the model.
        test_sets: what to translate.
        options: of the search.
        tokenize: sacreBLEU's tokenizer; None chooses it by the target language.
        lowercase: ignores case.
        folder: a run directory or other folder, or a checkpoint file, beside which they then lie.
    """
    results = []
    for test_set in test_sets:
        started_at = time.monotonic()
        naming = replace(translator, warn=_naming(test_set.name, translator.warn))
        outputs = naming.translate(test_set.sources, options)
        seconds = time.monotonic() - started_at
        for line in naming.summary.lines()[1:]:  # the first is about time, as the result is
            log.warning("%s: %s", test_set.name, line)
        found = evaluate(
            outputs,
            test_set.references,
            target_language=translator.config.data.target_language,
            tokenize=tokenize,
            lowercase=lowercase,
        )
        for warning in found.warnings:
            log.warning("%s: %s", test_set.name, warning)
        path = _write(folder, test_set.name, outputs)
        results.append(Result(test_set.name, found, options, seconds, path))
    return results


def _naming(name: str, warn: Callable[[str], object] | None) -> Callable[[str], object] | None:
    """Returns what passes on warnings with the name of the test set that they are about."""
    return None if warn is None else lambda sentence: warn(f"{name}: {sentence}")


def _write(folder: Path, name: str, lines: Sequence[str]) -> Path | None:
    """Writes translations; a folder that cannot be written costs a warning, not the result."""
    folder = folder.parent if folder.is_file() else folder
    path = folder / "translations" / f"{name}.txt"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    except OSError as error:
        log.warning("%s: the translations could not be written: %s", path, error.strerror)
        return None
    return path
