"""Trains a model on its data and on translations of its data (data diversification, Nguyen et al.
2020, of one round): a teacher of each direction translates its side of the training pairs, and the
model learns from (source, target), (source, translation) and (translation, target). With --n-best N
these are the N best translations of each text, or with --keep K those K of them that are nearest to
its translation in the data (sequence-level interpolation, Kim and Rush 2016, section 3.3); with
--teachers T those of T teachers of each direction, which differ by their seeds. Its data is there
as often.

    python scripts/diversify.py configs/small_data.yaml --teacher training.max_steps=2000

The run is that of CONFIG.yaml; teachers and translations are in a folder beside it,
RUN_DIR-teachers. What is finished is not done again, and what was interrupted goes on. It uses
several processes if torchrun starts them:

    torchrun --nproc-per-node=2 scripts/diversify.py configs/small_data.yaml
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer import Translator
from transformer.cli_options import configure_search
from transformer.config import Config
from transformer.config_data import CorpusConfig
from transformer.config_file import load_config
from transformer.data.corpus import load_corpora
from transformer.decoding.results import Translation
from transformer.decoding.translator import CHUNK_LINES
from transformer.errors import InterruptedRun, UserError
from transformer.evaluation import sentence_metric
from transformer.training.checkpoint import find_checkpoint, list_checkpoints, read_checkpoint
from transformer.training.distributed import start_ranks
from transformer.training.logger import log, log_to_console
from transformer.training.run import train


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(description="Train on translations of the data too.")
    parser.add_argument("config", metavar="CONFIG.yaml")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="of all models")
    parser.add_argument(
        "--teacher",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="of all teachers; may be given several times",
    )
    parser.add_argument(
        "--from-teacher",
        action="store_true",
        help="begin with the weights and vocabulary of the teacher of the same direction",
    )
    parser.add_argument(
        "--teachers", type=int, default=1, metavar="T", help="of each direction (%(default)s)"
    )
    parser.add_argument(
        "--n-best", type=int, default=1, metavar="N", help="translations of a text by each teacher"
    )
    parser.add_argument(
        "--keep",
        type=int,
        metavar="K",
        help="those nearest to the data by sentence BLEU; default N",
    )
    chosen = parser.parse_intermixed_args(arguments)
    log_to_console()
    try:
        config = load_config(chosen.config, chosen.settings)
        teacher = load_config(chosen.config, [*chosen.settings, *chosen.teacher])
        keep = chosen.n_best if chosen.keep is None else chosen.keep
        wanted = Translations(chosen.teachers, chosen.n_best, keep)
        diversify(config, teacher, wanted, chosen.from_teacher)
    except UserError as error:
        print(f"diversify: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # while it translates
        print("diversify: stopped; the same command goes on", file=sys.stderr)
        return 130
    except OSError as error:
        print(f"diversify: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    except InterruptedRun as interrupted:
        print("diversify: stopped; the same command goes on", file=sys.stderr)
        return 128 + interrupted.signal_number
    return 0


@dataclass(frozen=True)
class Translations:
    """What is added to the data.

    Attributes:
        teachers: of each direction.
        n_best: translations that each searches for, for each text.
        keep: those of them that are nearest to the data.
    """

    teachers: int = 1
    n_best: int = 1
    keep: int = 1

    def check(self, beam_size: int) -> None:
        """Makes sure that there can be so many.

        Raises:
            UserError: they cannot be.
        """
        if self.teachers < 1:
            raise UserError(f"--teachers {self.teachers}: one of each direction is the least")
        if not 1 <= self.n_best <= beam_size:
            raise UserError(
                f"--n-best {self.n_best}: a beam of {beam_size} finds 1 to {beam_size}"
                " (--teacher decoding.beam_size)"
            )
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
        file: of what it translates, paired with the translations.
    """

    own: int
    number: int
    run_dir: Path
    file: Path


def diversify(
    config: Config, teacher: Config, wanted: Translations, from_teacher: bool = False
) -> None:
    """Trains the teachers, translates, and trains the model.

    Args:
        config: of the model.
        teacher: of the teachers; its run_dir is not used, and the seed is that of the first.
        wanted: what is added to the data.
        from_teacher: whether the model begins with the weights of the first teacher of its
            direction.

    Raises:
        UserError: a configuration, the data or a run is not right.
        InterruptedRun: a signal asked to stop; the same call goes on.
    """
    if any(corpus.tag for corpus in config.data.train):
        raise UserError("data.train.tag: a tagged corpus has several directions; leave the tag out")
    wanted.check(teacher.decoding.beam_size)
    home = Path(f"{config.run_dir}-teachers")
    teachers = plan_teachers(home, wanted)
    extra = [corpus_of(each.file) for each in teachers]
    own_data = config.data.train * (wanted.keep * wanted.teachers)
    changes: dict[str, Any] = {
        "data": config.data.model_copy(update={"train": [*own_data, *extra]})
    }
    if from_teacher:
        changes["init_from"] = str(teachers[0].run_dir)
    model = config.model_copy(update=changes)
    saved = list_checkpoints(Path(model.run_dir))
    if saved and read_checkpoint(saved[-1][1]).config.data.train[len(own_data) :] != extra:
        raise UserError(
            f"{model.run_dir}: holds a run without these translations; name another run_dir"
        )
    device = config.training.device
    with start_ranks(device) as ranks, ranks.first_alone():  # others find what the first has done
        home.mkdir(parents=True, exist_ok=True)
        pairs = [(row["src"], row["tgt"]) for row in load_corpora(config.data.train, config.data)]
        directions = [teacher, reversed_config(teacher, home)]
    for each in teachers:
        own = {"run_dir": str(each.run_dir), "seed": teacher.seed + each.number}
        train(directions[each.own].model_copy(update=own), resume=True)
        with start_ranks(device) as ranks, ranks.first_alone():
            translate(each, pairs, wanted, processes=ranks.size)
        if saved and min(x.stat().st_mtime_ns for _, x in saved) < each.file.stat().st_mtime_ns:
            raise UserError(
                f"{model.run_dir} has learned from older translations than {each.file}; delete it,"
                " or name another run_dir"
            )
    train(model, resume=True)


def plan_teachers(home: Path, wanted: Translations) -> list[Teacher]:
    """Returns the teachers of both directions; the first one translates from the source."""
    teachers = []
    for number in range(wanted.teachers):
        for own, direction in enumerate(("forward", "backward")):
            name = f"{direction}-{number + 1}" if number else direction
            file = home / f"{name}-{wanted.keep}-of-{wanted.n_best}.jsonl"
            teachers.append(Teacher(own, number, home / name, file))
    return teachers


def reversed_config(config: Config, home: Path) -> Config:
    """Returns the configuration of the other direction; its pairs are written into a folder."""

    def turned(name: str, corpora: Sequence[CorpusConfig]) -> list[CorpusConfig]:
        if not corpora:
            return []
        pairs = [(row["tgt"], row["src"]) for row in load_corpora(corpora, config.data)]
        path = home / name
        if not path.exists() or read_pairs(path) != pairs:  # a run may know it as it is
            write_pairs(path, pairs)
        return [corpus_of(path)]

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
    return config.model_copy(update={"data": data, "tokenizer": tokenizer})


def translate(
    teacher: Teacher, pairs: Sequence[tuple[str, str]], wanted: Translations, processes: int
) -> None:
    """Writes what a teacher makes of its side of the data, unless it is there already.

    Args:
        teacher: that translates; it has been trained.
        pairs: of source and target.
        wanted: how many translations, and how many of them are kept.
        processes: that translate, on a CPU; 1 = as many as there are cores.
    """
    own, path = teacher.own, teacher.file
    learned_at = find_checkpoint(teacher.run_dir).stat().st_mtime_ns
    is_newer = path.exists() and path.stat().st_mtime_ns >= learned_at
    expected = [pair[own] for pair in pairs for _ in range(wanted.keep)]
    if is_newer and [pair[own] for pair in read_pairs(path)] == expected:
        return
    log.info("%s translates %s sentences", teacher.run_dir, f"{len(pairs):,}")
    translator = Translator.load(teacher.run_dir)
    search = {"n_best": wanted.n_best} | ({"processes": processes} if processes > 1 else {})
    options = configure_search(translator, search)
    score = sentence_metric("bleu", translator.config.data.target_language)
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
    reference; if there are fewer, the best one is there again.
    """
    texts = list(dict.fromkeys(each.text for each in found if each.ids))
    if len(texts) > keep:
        texts.sort(key=lambda text: -score(text, reference))  # of equal ones the first stays first
    return [*texts[:keep], *[found[0].text] * (keep - len(texts))]


def with_progress(found: Iterable[list[Translation]]) -> Iterator[list[Translation]]:
    """Yields the same; the log says how many there were."""
    for number, best in enumerate(found, 1):
        yield best
        if number % CHUNK_LINES == 0:
            log.info("%s translated", f"{number:,}")


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """Reads what `write_pairs` wrote."""
    with path.open(encoding="utf-8", newline="\n") as file:
        rows = [json.loads(line) for line in file]
    return [(row["source"], row["target"]) for row in rows]


def write_pairs(path: Path, pairs: Iterable[tuple[str, ...]]) -> None:
    """Writes pairs into a file of JSON lines, which is there as a whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    with part.open("w", encoding="utf-8", newline="\n") as file:
        for src, tgt in pairs:
            json.dump({"source": src, "target": tgt}, file, ensure_ascii=False)
            file.write("\n")
    os.replace(part, path)


def corpus_of(path: Path) -> CorpusConfig:
    """Returns the setting that names a file of pairs."""
    return CorpusConfig(path=str(path), source_column="source", target_column="target")


if __name__ == "__main__":
    sys.exit(main())
