"""From a configuration to a trained run directory: everything that comes before the first
update.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import torch

from transformer.config import Config
from transformer.config_file import dump_config
from transformer.data.corpus import EncodedCorpus, encode_corpus, load_corpora, prepare_tokenizers
from transformer.data.tokenizer import Tokenizers
from transformer.errors import UserError
from transformer.model.transformer import Transformer
from transformer.training.allocator import keep_freed_memory
from transformer.training.checkpoint import (
    BEST,
    FOLDER,
    Checkpoint,
    find_checkpoint,
    list_checkpoints,
    load_weights,
    read_checkpoint,
)
from transformer.training.distributed import Ranks, start_ranks
from transformer.training.logger import log, log_to_file
from transformer.training.state import TrainingState
from transformer.training.trainer import Trainer, choose_precision

FIXED = (
    "seed",
    "init_from",
    "data.train",
    "data.max_length",
    "data.max_ratio",
    "data.drop_duplicates",
    "tokenizer",
    "model",
    "training.batch_tokens",
    "training.optimizer",
    "training.ema_decay",
)
"""Settings that a run keeps for good: they say what its updates, weights and optimizer mean."""


def train(config: Config, resume: bool = False, overwrite: bool = False) -> None:
    """Trains what the configuration describes, from the start or from its newest checkpoint.

    Args:
        config: the run.
        resume: goes on from the newest checkpoint, or starts if there is none.
        overwrite: deletes the run that is there.

    Raises:
        UserError: the directory holds a run already, the data or the checkpoint is not right, or
        the
            configuration is not the one that the run was made with.
        InterruptedRun: a signal asked to stop; the state is saved.
    """
    with start_ranks(config.training.device) as ranks:
        checkpoint = None
        with ranks.first_alone():
            if ranks.is_first and not resume:
                _make_way(Path(config.run_dir), overwrite)
            if resume:
                checkpoint = newest_checkpoint(Path(config.run_dir))
                if checkpoint is not None:
                    for line in changed_settings(checkpoint, config):
                        log.info("%s", line)
            if ranks.is_first:
                _write_config(config)
        with log_to_file(Path(config.run_dir) / "train.log"):
            _train(config, checkpoint, ranks)


def _train(config: Config, checkpoint: Checkpoint | None, ranks: Ranks) -> None:
    if checkpoint is not None and checkpoint.step >= config.training.max_steps:
        log.warning(
            "%s: already done: step %d of training.max_steps %d; a larger max_steps goes on",
            config.run_dir,
            checkpoint.step,
            config.training.max_steps,
        )
        return
    start = checkpoint
    if start is None and config.init_from is not None:
        start = read_checkpoint(find_checkpoint(config.init_from))
    with ranks.first_alone():
        tokenizers, corpus, validation = _prepare(config, start)
    torch.manual_seed(config.seed)
    model = _make_model(config, tokenizers)
    if checkpoint is None and start is not None:
        load_weights(model, start.weights("ema.") or start.weights(), start.path)
        log.info("weights and vocabulary come from %s, step %d", start.path, start.step)
    state = TrainingState(model.to(ranks.device), config)
    if checkpoint is not None:
        if checkpoint.metadata.get("data") != corpus.digest:
            raise UserError(
                f"{checkpoint.path}: the training data is not what it was when this run began;"
                f" start a new run on it with init_from={config.run_dir}"
            )
        state.load(checkpoint)
        log.info("resuming after step %d from %s", checkpoint.step, checkpoint.path)
    _say_what(config, state.model, corpus, ranks)
    if ranks.device.type == "cpu":
        keep_freed_memory()
    Trainer(state, corpus, validation, tokenizers, ranks).run()


def _make_model(config: Config, tokenizers: Tokenizers) -> Transformer:
    sizes = tokenizers.source.vocab_size, tokenizers.target.vocab_size
    try:
        return Transformer(config.model, *sizes, config.training.activation_checkpointing)
    except ValueError as error:  # a vocabulary that came with init_from
        raise UserError(f"model.tie_embeddings: {error}; try decoder or none") from None


def _prepare(
    config: Config, start: Checkpoint | None
) -> tuple[Tokenizers, EncodedCorpus, EncodedCorpus | None]:
    """Reads, segments and filters the data; the vocabulary comes from `start` if there is one."""
    raw = load_corpora(config.data.train, config.data)
    if start is None:
        tokenizers = prepare_tokenizers(config, raw)
    else:
        tokenizers = start.tokenizers
        asked, size = config.tokenizer.vocab_size, tokenizers.source.vocab_size
        if asked != size and config.init_from is not None:
            log.info("the vocabulary of %s has %d pieces, not %d", start.path, size, asked)
    corpus = encode_corpus(raw, tokenizers, config.data, filters=True)
    level = logging.WARNING if corpus.report.many_dropped else logging.INFO
    for line in corpus.report.lines():
        log.log(level, "%s", line)
    validation = None
    if config.data.validation:
        pairs = load_corpora(config.data.validation, config.data)
        validation = encode_corpus(pairs, tokenizers, config.data, filters=False)
    return tokenizers, corpus, validation


def _say_what(config: Config, model: Transformer, corpus: EncodedCorpus, ranks: Ranks) -> None:
    sizes = {model.src_embedding.tokens.num_embeddings, model.output.out_features}
    log.info(
        "%s pairs; %s parameters; vocabulary %s; %s; %s",
        f"{len(corpus):,}",
        f"{model.num_parameters:,}",
        " and ".join(f"{n:,}" for n in sorted(sizes)),
        f"{ranks.size} x {ranks.device.type}",
        choose_precision(config.training.precision, ranks.device),
    )


def newest_checkpoint(run_dir: Path) -> Checkpoint | None:
    """Returns the newest whole checkpoint of a run, naming damaged ones; None if there is none at
    all.

    Raises:
        UserError: there are checkpoints, but all are damaged.
    """
    checkpoints = list_checkpoints(run_dir)
    for _, path in reversed(checkpoints):
        try:
            return read_checkpoint(path)
        except UserError as error:
            log.warning("%s; trying the one before it", error)
    if checkpoints:
        raise UserError(f"{run_dir / FOLDER}: none of {len(checkpoints)} checkpoints can be read")
    return None


def changed_settings(checkpoint: Checkpoint, config: Config) -> list[str]:
    """Returns a line for each setting that differs from the run so far and is applied from here on.

    Raises:
        UserError: a setting differs that the run must keep.
    """
    before = _flat(checkpoint.metadata["config"])
    now = _flat(config.model_dump(mode="json"))
    lines = []
    for key in sorted(before.keys() | now.keys()):
        if key == "run_dir" or before.get(key) == now.get(key):
            continue
        if any(key == fixed or key.startswith(fixed + ".") for fixed in FIXED):
            raise UserError(
                f"{key}: this run was trained with {before.get(key)!r}, now it is"
                f" {now.get(key)!r}; a run keeps it. Start a new run from these"
                f" weights with init_from={config.run_dir}"
            )
        lines.append(f"{key}: {before.get(key)!r} so far, {now.get(key)!r} from here on")
    return lines


def _flat(values: dict, prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _make_way(run_dir: Path, overwrite: bool) -> None:
    """Refuses a directory that holds a run, or deletes the run's own files there."""
    own = [run_dir / name for name in (FOLDER, BEST, "metrics.jsonl", "train.log", "tensorboard")]
    present = [path for path in own if path.exists()]
    if not present:
        return
    if not overwrite:
        raise UserError(
            f"{run_dir}: holds a run already; --resume goes on with it, --overwrite deletes it,"
            " run_dir=OTHER starts beside it"
        )
    for path in present:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _write_config(config: Config) -> None:
    run_dir = Path(config.run_dir)
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        aside = run_dir / "config.yaml.partial"
        aside.write_text(dump_config(config), encoding="utf-8")
        aside.replace(run_dir / "config.yaml")
    except OSError as error:
        raise UserError(f"{run_dir}: cannot be written: {error.strerror}") from None
