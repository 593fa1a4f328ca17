"""Trains a model on its data and on translations of its data (data diversification, Nguyen et al.
2020, of one round): a teacher of each direction translates its side of the training pairs, and the
model learns from (source, target), (source, translation) and (translation, target).

    python scripts/diversify.py configs/small_data.yaml --teacher training.max_steps=2500

The run is that of CONFIG.yaml; teachers and translations are in a folder beside it,
RUN_DIR-teachers. What is finished is not done again, and what was interrupted goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from transformer import Translator
from transformer.config import Config
from transformer.config_data import CorpusConfig
from transformer.config_file import load_config
from transformer.data.corpus import load_corpora
from transformer.decoding.processes import num_processes
from transformer.errors import InterruptedRun, UserError
from transformer.training.checkpoint import find_checkpoint, list_checkpoints
from transformer.training.logger import log, log_to_console
from transformer.training.run import train


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(description="Train on translations of the data too.")
    parser.add_argument("config", metavar="CONFIG.yaml")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="of all three models")
    parser.add_argument("--teacher", nargs="+", default=[], metavar="KEY=VALUE", help="of both")
    parser.add_argument(
        "--from-teacher",
        action="store_true",
        help="begin with the weights and vocabulary of the teacher of the same direction",
    )
    chosen = parser.parse_args(arguments)
    log_to_console()
    try:
        config = load_config(chosen.config, chosen.settings)
        teacher = load_config(chosen.config, [*chosen.settings, *chosen.teacher])
        diversify(config, teacher, chosen.from_teacher)
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


def diversify(config: Config, teacher: Config, from_teacher: bool) -> None:
    """Trains both teachers, translates, and trains the model.

    Args:
        config: of the model.
        teacher: of the teachers; its run_dir is not used.
        from_teacher: whether the model begins with the weights of the teacher of its direction.

    Raises:
        UserError: a configuration, the data or a run is not right.
        InterruptedRun: a signal asked to stop; the same call goes on.
    """
    if any(corpus.tag for corpus in config.data.train):
        raise UserError("data.train.tag: a tagged corpus has several directions; leave the tag out")
    home = Path(f"{config.run_dir}-teachers")
    home.mkdir(parents=True, exist_ok=True)
    pairs = [(row["src"], row["tgt"]) for row in load_corpora(config.data.train, config.data)]
    directions = {"forward": teacher, "backward": reversed_config(teacher, home)}
    found = {}
    for number, (name, direction) in enumerate(directions.items()):
        run_dir = str(home / name)
        train(direction.model_copy(update={"run_dir": run_dir}), resume=True)
        texts = [pair[number] for pair in pairs]
        found[name] = translations(run_dir, texts, home / f"{name}.txt")
    forward = [(src, text) for (src, _), text in zip(pairs, found["forward"], strict=True)]
    backward = [(text, tgt) for (_, tgt), text in zip(pairs, found["backward"], strict=True)]
    extra = [
        write_pairs(home / "forward.jsonl", forward),
        write_pairs(home / "backward.jsonl", backward),
    ]
    refuse_older(Path(config.run_dir), extra)
    data = config.data.model_copy(update={"train": [*config.data.train, *extra]})
    changes: dict[str, Any] = {"data": data}
    if from_teacher:
        changes["init_from"] = str(home / "forward")
    train(config.model_copy(update=changes), resume=True)


def reversed_config(config: Config, home: Path) -> Config:
    """Returns the configuration of the other direction; its pairs are written into a folder."""

    def turned(name: str, corpora: Sequence[CorpusConfig]) -> list[CorpusConfig]:
        rows = load_corpora(corpora, config.data) if corpora else []
        pairs = [(row["tgt"], row["src"]) for row in rows]
        return [write_pairs(home / name, pairs)] if pairs else []

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


def translations(run_dir: str, texts: Sequence[str], path: Path) -> list[str]:
    """Returns what a run's model makes of texts; a file keeps it, one a line."""
    model = find_checkpoint(run_dir)
    if not path.exists() or path.stat().st_mtime_ns < model.stat().st_mtime_ns:
        translator = Translator.load(run_dir)
        if translator.device.type == "cpu":
            translator.processes = num_processes(0)
        log.info("%s translates %s sentences", run_dir, f"{len(texts):,}")
        write_whole(path, (f"{each[0].text}\n" for each in translator.translate_stream(texts)))
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    if len(lines) != len(texts):
        raise UserError(
            f"{path} has {len(lines):,} lines, the training data {len(texts):,}: the data changed;"
            f" delete {path.parent}, or name another run_dir"
        )
    return lines


def refuse_older(run_dir: Path, corpora: Sequence[CorpusConfig]) -> None:
    """Raises an error if a run is there that has learned from other translations than these."""
    saved = [path.stat().st_mtime_ns for _, path in list_checkpoints(run_dir)]
    if saved and min(saved) < max(Path(str(x.path)).stat().st_mtime_ns for x in corpora):
        raise UserError(
            f"{run_dir} has learned from older translations than {corpora[0].path}; delete it, or"
            " name another run_dir"
        )


def write_pairs(path: Path, pairs: Iterable[tuple[str, str]]) -> CorpusConfig:
    """Writes pairs into a file of JSON lines, unless it holds them already, and names it."""
    text = "".join(
        json.dumps({"source": src, "target": tgt}, ensure_ascii=False) + "\n" for src, tgt in pairs
    )
    if not path.exists() or path.read_text(encoding="utf-8") != text:  # it may be a run's already
        write_whole(path, iter([text]))
    return CorpusConfig(path=str(path), source_column="source", target_column="target")


def write_whole(path: Path, parts: Iterator[str]) -> None:
    """Writes a file that is there as a whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    with part.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(parts)
    os.replace(part, path)


if __name__ == "__main__":
    sys.exit(main())
