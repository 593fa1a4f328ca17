"""What `diversify.py` adds to the data: who translates it, and the files of pairs they make."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformer import Translator
from transformer.cli_options import configure_search
from transformer.config import Config
from transformer.config_data import CorpusConfig
from transformer.config_types import WIDEST_BEAM
from transformer.data.cache import fingerprint, stored
from transformer.data.corpus import load_corpora
from transformer.decoding.options import SearchOptions
from transformer.decoding.results import Translation
from transformer.decoding.translator import CHUNK_LINES
from transformer.errors import UserError
from transformer.evaluation import sentence_metric
from transformer.training.checkpoint import find_checkpoint, read_checkpoint
from transformer.training.logger import log


@dataclass(frozen=True)
class Translations:
    """What is added to the data.

    Attributes:
        teachers: of each direction.
        n_best: translations that each searches for, for each text; the beam is at least as wide.
        keep: those of them that are nearest to the data.
    """

    teachers: int = 1
    n_best: int = 1
    keep: int = 1

    def check(self) -> None:
        """Makes sure that there can be so many.

        Raises:
            UserError: they cannot be.
        """
        if self.teachers < 1:
            raise UserError(f"--teachers {self.teachers}: one of each direction is the least")
        if self.n_best < 1:
            raise UserError(f"--n-best {self.n_best}: one translation is the least")
        if self.n_best > WIDEST_BEAM:
            raise UserError(f"--n-best {self.n_best}: a beam has {WIDEST_BEAM} at most")
        if not 1 <= self.keep <= self.n_best:
            raise UserError(
                f"--keep {self.keep}: of {self.n_best} translations (--n-best), 1 to {self.n_best}"
                " are left"
            )


@dataclass(frozen=True)
class Teacher:
    """A model that translates one side of the data.

    Attributes:
        own: the side that it translates, 0 for the source and 1 for the target.
        number: of the teacher among those of its direction, from 0.
        run_dir: of its run.
    """

    own: int
    number: int
    run_dir: Path


def plan_teachers(home: Path, number_of_each: int) -> list[Teacher]:
    """Returns the teachers of both directions; the first one translates from the source."""
    teachers = []
    for number in range(number_of_each):
        for own, direction in enumerate(("forward", "backward")):
            name = f"{direction}-{number + 1}" if number else direction
            teachers.append(Teacher(own, number, home / name))
    return teachers


def reversed_config(config: Config, home: Path) -> Config:
    """Returns the configuration of the other direction; its pairs are written into a folder."""

    def turned(name: str, corpora: Sequence[CorpusConfig]) -> list[CorpusConfig]:
        if not corpora:
            return []
        pairs = [(row["tgt"], row["src"]) for row in load_corpora(corpora, config.data)]
        path = home / name
        if _pairs_of(path) != pairs:  # a run may know it as it is
            write_pairs(path, pairs)
        return [_corpus_of(path)]

    data = config.data.model_copy(
        update={
            "source_language": config.data.target_language,
            "target_language": config.data.source_language,
            "train": turned("train.jsonl", config.data.train),
            "validation": turned("validation.jsonl", config.data.validation),
            "test": {},
        }
    )
    tokenizer = config.tokenizer.model_copy(
        update={
            "source_sampling": config.tokenizer.target_sampling,
            "target_sampling": config.tokenizer.source_sampling,
        }
    )
    own = {"data": data, "tokenizer": tokenizer, "init_from": None}  # a start has one direction
    return config.model_copy(update=own)


def translate(
    teacher: Teacher, config: Config, pairs: Sequence[tuple[str, str]], wanted: Translations
) -> CorpusConfig:
    """Returns what a teacher makes of its side of the data, after translating it if need be.

    The name of its folder tells what it is made of: both sides of the data, the teacher's weights,
    the search and how many translations are kept.

    Args:
        teacher: that translates; it has been trained.
        config: of the teacher, as it is now.
        pairs: of source and target.
        wanted: how many translations, and how many of them are kept.
    """
    made_of = fingerprint(
        pairs,
        read_checkpoint(find_checkpoint(teacher.run_dir)).metadata["digest"],
        config.decoding.model_dump(mode="json", exclude={"processes", "batch_tokens"}),
    )
    name = f"{teacher.run_dir.name}-{wanted.keep}-of-{wanted.n_best}-{made_of}"
    file = "pairs.jsonl"
    folder = stored(
        teacher.run_dir.with_name(name),
        lambda aside: _write_translations(aside / file, teacher, config, pairs, wanted),
    )
    return _corpus_of(folder / file)


def _write_translations(
    path: Path,
    teacher: Teacher,
    config: Config,
    pairs: Sequence[tuple[str, str]],
    wanted: Translations,
) -> None:
    own, decoding = teacher.own, config.decoding
    log.info("%s translates %s sentences", teacher.run_dir, f"{len(pairs):,}")
    device, precision = config.training.device, decoding.precision
    translator = Translator.load(teacher.run_dir, device=device, precision=precision)
    translator.options = SearchOptions.from_config(decoding)
    translator.batch_tokens = decoding.batch_tokens
    started = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # the others of this machine wait
    processes = started if started > 1 else decoding.processes
    options = configure_search(translator, {"n_best": wanted.n_best, "processes": processes})
    score, notes = sentence_metric("bleu", config.data.target_language)
    for note in notes if wanted.keep < wanted.n_best else []:
        log.warning("%s", note)
    found = translator.translate_stream([pair[own] for pair in pairs], options)
    made = (
        (pair[own], text)
        for pair, best in zip(pairs, with_progress(found), strict=True)
        for text in nearest(best, pair[1 - own], wanted.keep, score)
    )
    write_pairs(path, (pair[:: 1 - 2 * own] for pair in made))
    for line in translator.summary.lines():
        log.info(line)


def nearest(
    found: Sequence[Translation], reference: str, keep: int, score: Callable[[str, str], float]
) -> list[str]:
    """Returns so many different texts: of more the ones that the score puts nearest to the
    reference; if there are fewer, the best one is there again. What was cut at its greatest length,
    and mostly says the same over and over, is taken if there is nothing else.
    """
    whole = [each for each in found if each.finished] or found
    texts = list(dict.fromkeys(each.text for each in whole if each.text.strip()))
    texts = texts or [whole[0].text]
    if len(texts) > keep:
        texts.sort(key=lambda text: -score(text, reference))  # of equal ones the first stays first
    return [*texts[:keep], *texts[:1] * (keep - len(texts))]


def with_progress(found: Iterable[list[Translation]]) -> Iterator[list[Translation]]:
    """Yields the same; the log says how many there were."""
    for number, best in enumerate(found, 1):
        yield best
        if number % CHUNK_LINES == 0:
            log.info("%s translated", f"{number:,}")


def _pairs_of(path: Path) -> list[tuple[str, str]] | None:
    """Reads what `write_pairs` wrote; None if it is not there, or damaged."""
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            rows = [json.loads(line) for line in file]
        return [(row["source"], row["target"]) for row in rows]
    except (OSError, ValueError, LookupError, TypeError):
        return None


def write_pairs(path: Path, pairs: Iterable[tuple[str, ...]]) -> None:
    """Writes pairs into a file of JSON lines, which is there as a whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("w", encoding="utf-8", newline="\n") as file:
            for src, tgt in pairs:
                json.dump({"source": src, "target": tgt}, file, ensure_ascii=False)
                file.write("\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise UserError(f"{path}: could not be written: {error.strerror}") from None
    os.replace(part, path)


def _corpus_of(path: Path) -> CorpusConfig:
    """Returns the setting that names a file of pairs."""
    return CorpusConfig(path=str(path), source_column="source", target_column="target")
