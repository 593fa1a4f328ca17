"""Trains a model on its data and on translations of its data (data diversification, Nguyen et al.
2020, of one round): a teacher of each direction translates its side of the training pairs, and the
model learns from (source, target), (source, translation) and (translation, target). With --n-best N
these are the N best translations of each text, or with --keep K those K of them that are nearest to
its translation in the data (sequence-level interpolation, Kim and Rush 2016, section 3.3); with
--teachers T those of T teachers of each direction, which differ by their seeds. Its data is there
as often. With --students S so many models learn from all that, which begin with the same weights
and differ by their seeds, and RUN_DIR/mean.safetensors holds the mean of their weights.

    python scripts/diversify.py configs/small_data.yaml --from-teacher --student model.dropout=0.1

The run is that of CONFIG.yaml; teachers and translations are in a folder beside it,
RUN_DIR-teachers. What is finished is not done again, and what was interrupted goes on. It uses
several processes if torchrun starts them:

    torchrun --nproc-per-node=2 scripts/diversify.py configs/small_data.yaml
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from diversify_data import Translations, corpus_of, plan_teachers, reversed_config, translate

from transformer.config import Config, ModelConfig
from transformer.config_file import load_config
from transformer.data.corpus import load_corpora
from transformer.errors import InterruptedRun, UserError
from transformer.training.averaging import average_models
from transformer.training.checkpoint import list_checkpoints, read_checkpoint
from transformer.training.distributed import start_ranks
from transformer.training.logger import log, log_to_console
from transformer.training.run import train


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(description="Train on translations of the data too.")
    parser.add_argument("config", metavar="CONFIG.yaml")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="of all models")
    parser.add_argument(
        "--student",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="of the model that learns from all; may be given several times",
    )
    parser.add_argument(
        "--from-teacher",
        action="store_true",
        help="begin with the weights and vocabulary of the teacher of the same direction",
    )
    parser.add_argument(
        "--students", type=int, default=1, metavar="S", help="models to average (%(default)s)"
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
        teacher = load_config(chosen.config, chosen.settings)
        config = load_config(chosen.config, [*chosen.settings, *chosen.student])
        keep = chosen.n_best if chosen.keep is None else chosen.keep
        wanted = Translations(chosen.teachers, chosen.n_best, keep)
        diversify(config, teacher, wanted, chosen.from_teacher, chosen.students)
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


def diversify(
    config: Config,
    teacher: Config,
    wanted: Translations,
    from_teacher: bool = False,
    num_students: int = 1,
) -> None:
    """Trains the teachers, translates, and trains the model.

    Args:
        config: of the model.
        teacher: of the teachers; its run_dir is not used, and the seed is that of the first.
        wanted: what is added to the data.
        from_teacher: whether the model begins with the weights of the first teacher of its
            direction.
        num_students: models that are averaged.

    Raises:
        UserError: a configuration, the data or a run is not right.
        InterruptedRun: a signal asked to stop; the same call goes on.
    """
    if any(corpus.tag for corpus in config.data.train):
        raise UserError("data.train.tag: a tagged corpus has several directions; leave the tag out")
    wanted.check()
    if num_students < 1 or (num_students > 1 and not from_teacher):
        raise UserError(
            f"--students {num_students}: at least one, and several begin with the same weights"
            " (--from-teacher)"
        )
    if from_teacher:
        refuse_other_shape(config.model, teacher.model)
    home = Path(f"{config.run_dir}-teachers")
    teachers = plan_teachers(home, wanted)
    data = config.data.model_copy(
        update={
            "train": [
                *config.data.train * (wanted.keep * wanted.teachers),
                *(corpus_of(each.file) for each in teachers),
            ]
        }
    )
    start = str(teachers[0].run_dir) if from_teacher else config.init_from
    model = config.model_copy(update={"data": data, "init_from": start})
    students = plan_students(model, num_students)
    for student in students:
        refuse_other_run(student)
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
        for student in students:
            refuse_older_translations(student, each.file)
    for student in students:
        train(student, resume=True)
    if num_students > 1:
        mean = Path(config.run_dir) / "mean.safetensors"
        with start_ranks(device) as ranks:
            if ranks.is_first:
                average_models([Path(student.run_dir) for student in students], mean)
        log.info("%s: the mean of %d models", mean, num_students)


def plan_students(config: Config, number: int) -> list[Config]:
    """Returns so many runs, each with a seed and a directory of its own."""
    run_dirs = [config.run_dir, *(f"{config.run_dir}-{i + 1}" for i in range(1, number))]
    return [
        config.model_copy(update={"run_dir": run_dir, "seed": config.seed + i})
        for i, run_dir in enumerate(run_dirs)
    ]


def refuse_other_shape(student: ModelConfig, teacher: ModelConfig) -> None:
    """Makes sure that a model can begin with the weights of another.

    Raises:
        UserError: it cannot.
    """
    for name in ModelConfig.model_fields:
        own, theirs = getattr(student, name), getattr(teacher, name)
        if "dropout" not in name and own != theirs:
            raise UserError(
                f"--from-teacher: model.{name} is {own} for the student and {theirs} for the"
                " teacher; it can only be the same for both"
            )


def refuse_other_run(student: Config) -> None:
    """Makes sure that a run, if it is there, has learned from these files.

    Raises:
        UserError: it has not.
    """
    saved = list_checkpoints(Path(student.run_dir))
    if saved and read_checkpoint(saved[-1][1]).config.data.train != student.data.train:
        raise UserError(
            f"{student.run_dir}: holds a run without these translations; name another run_dir"
        )


def refuse_older_translations(student: Config, file: Path) -> None:
    """Makes sure that a run, if it is there, has learned from a file as it is now.

    Raises:
        UserError: it has not.
    """
    saved = list_checkpoints(Path(student.run_dir))
    if saved and min(path.stat().st_mtime_ns for _, path in saved) < file.stat().st_mtime_ns:
        raise UserError(
            f"{student.run_dir} has learned from older translations than {file}; delete it, or"
            " name another run_dir"
        )


if __name__ == "__main__":
    sys.exit(main())
