"""Trains a model on its data and on translations of its data (data diversification, Nguyen et al.
2020, of one round): a teacher of each direction translates its side of the training pairs, and the
model learns from (source, target), (source, translation) and (translation, target). With --n-best N
these are the N best translations of each text, or with --keep K those K of them that are nearest to
its translation in the data (sequence-level interpolation, Kim and Rush 2016, section 3.3); with
--teachers T those of T teachers of each direction, which differ by their seeds. Its data is there
as often.

    python scripts/diversify.py configs/small_data.yaml --from-teacher --student model.dropout=0.1

The run is that of CONFIG.yaml; teachers and translations are in a folder beside it,
RUN_DIR-teachers. What is finished is not done again, and training that was interrupted goes on. It
uses several processes if torchrun starts them:

    torchrun --nproc-per-node=2 scripts/diversify.py configs/small_data.yaml
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from diversify_data import Translations, plan_teachers, reversed_config, translate

from transformer.config import Config, ModelConfig
from transformer.config_data import CorpusConfig
from transformer.config_file import load_config
from transformer.data.corpus import load_corpora
from transformer.data.updates import settle_steps
from transformer.errors import InterruptedRun, OtherDataError, UserError, sentence_of
from transformer.training.checkpoint import list_checkpoints, read_checkpoint
from transformer.training.distributed import start_ranks
from transformer.training.logger import log, log_to_console
from transformer.training.run import model_to_start_from, prepare_data, train


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        description="Train on translations of the data too.", allow_abbrev=False
    )
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
        diversify(config, teacher, wanted, chosen.from_teacher)
    except UserError as error:
        print(f"diversify: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # while it translates
        print("diversify: stopped; the same command goes on", file=sys.stderr)
        return 130
    except OSError as error:
        print(f"diversify: {sentence_of(error)}", file=sys.stderr)
        return 1
    except InterruptedRun as interrupted:
        print("diversify: stopped; the same command goes on", file=sys.stderr)
        return 128 + interrupted.signal_number
    return 0


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
    refuse_what_cannot_be(config, teacher, wanted, from_teacher)
    run_dir = Path(config.run_dir)
    home = home_of_teachers(run_dir)
    teachers = plan_teachers(home, wanted.teachers)
    refuse_other_run(run_dir, home, config, wanted)
    device = config.training.device
    with start_ranks(device) as ranks, ranks.first_alone():  # others find what the first has done
        home.mkdir(parents=True, exist_ok=True)
        pairs = [(row["src"], row["tgt"]) for row in load_corpora(config.data.train, config.data)]
        directions = [teacher, reversed_config(teacher, home)]
        config = lasting_as_long(config, teacher)
    extra = []
    for each in teachers:
        own = {"run_dir": str(each.run_dir), "seed": teacher.seed + each.number}
        own_config = directions[each.own].model_copy(update=own)
        try:
            train(own_config, resume=True, same_data=True)
        except OtherDataError:
            raise UserError(
                f"{home}: its teachers have learned from other data; delete it, or name another"
                " run_dir"
            ) from None
        with start_ranks(device) as ranks, ranks.first_alone():
            extra.append(translate(each, own_config, pairs, wanted))
    data = config.data.model_copy(update={"train": [*own_data(config, wanted), *extra]})
    start = str(teachers[0].run_dir) if from_teacher else config.init_from
    config = config.model_copy(update={"data": data, "init_from": start})
    try:
        train(config, resume=True, same_data=True)
    except OtherDataError:
        raise other_run(run_dir) from None
    log.info(
        "%s: has learned from the data and from its translations by %d teachers",
        run_dir,
        len(extra),
    )


def home_of_teachers(run_dir: Path) -> Path:
    """Returns the folder beside a run.

    Raises:
        UserError: nothing is beside it.
    """
    named = run_dir if run_dir.name not in ("", "..") else run_dir.resolve()
    if not named.name:
        raise UserError(
            f"run_dir {run_dir}: has no place beside it for the teachers; name a folder"
        )
    return named.with_name(f"{named.name}-teachers")


def own_data(config: Config, wanted: Translations) -> list[CorpusConfig]:
    """Returns the data itself, as often as there are translations of it in one direction."""
    return config.data.train * (wanted.keep * wanted.teachers)


def refuse_other_run(run_dir: Path, home: Path, config: Config, wanted: Translations) -> None:
    """Makes sure that a run which is there may have learned from these translations, as far as that
    is seen before they are made.

    Raises:
        UserError: it has not.
    """
    saved = list_checkpoints(run_dir)
    if not saved:
        return
    learned = read_checkpoint(saved[-1][1]).config.data.train
    if not home.exists() or len(learned) != len(own_data(config, wanted)) + 2 * wanted.teachers:
        raise other_run(run_dir)


def lasting_as_long(config: Config, teacher: Config) -> Config:
    """Returns the configuration with as many updates as the teacher takes where both are told by
    epochs alike: those of the model have several times the data.

    Raises:
        UserError: they are too few for the schedule of one of them.
    """
    training, theirs = config.training, teacher.training
    limits = ("max_steps", "max_epochs", "min_steps")
    if theirs.max_epochs is None or any(getattr(training, x) != getattr(theirs, x) for x in limits):
        return config
    corpus = prepare_data(teacher, model_to_start_from(teacher))[1]
    steps = settle_steps(teacher, corpus.lengths).training.total_steps
    changed = training.model_copy(update={"max_steps": steps, "max_epochs": None, "min_steps": 0})
    try:
        changed.lasting(steps)
    except ValueError as error:
        raise UserError(f"--student: takes {steps} updates as its teacher does; {error}") from None
    return config.model_copy(update={"training": changed})


def refuse_what_cannot_be(
    config: Config, teacher: Config, wanted: Translations, from_teacher: bool
) -> None:
    """Makes sure, before hours of training, that all of it can be done.

    Raises:
        UserError: it cannot.
    """
    if any(corpus.tag for corpus in config.data.train):
        raise UserError("data.train.tag: a tagged corpus has several directions; leave the tag out")
    wanted.check()
    if config.data.drop_duplicates and wanted.keep * wanted.teachers > 1:
        raise UserError("data.drop_duplicates: the data is there several times; must be false")
    if teacher.decoding.shortlist:
        raise UserError("decoding.shortlist: is for one direction; leave it out")
    if config.run_dir != teacher.run_dir:
        raise UserError("--student run_dir: the teachers are beside it; name it for all models")
    last = teacher.seed + wanted.teachers - 1
    if last >= 2**31:
        raise UserError(f"seed {teacher.seed}: the last teacher would have {last}, too large a one")
    if from_teacher and config.init_from != teacher.init_from:
        raise UserError(
            "--student init_from: with --from-teacher it begins with its teacher's weights"
        )
    if from_teacher:
        refuse_other_model(config.model, teacher.model)


def refuse_other_model(student: ModelConfig, teacher: ModelConfig) -> None:
    """Makes sure that a model can begin with the weights of another.

    Raises:
        UserError: it cannot.
    """
    for name, own in student.architecture.items():
        theirs = teacher.architecture[name]
        if own != theirs:
            raise UserError(
                f"--from-teacher: model.{name} is {own} for the student and {theirs} for the"
                " teacher; it can only be the same for both"
            )


def other_run(run_dir: Path) -> UserError:
    """Returns what to say of a run that has not learned from these translations."""
    return UserError(
        f"{run_dir}: holds a run without these translations; delete it (its teachers are beside"
        " it), or name another run_dir"
    )


if __name__ == "__main__":
    sys.exit(main())
