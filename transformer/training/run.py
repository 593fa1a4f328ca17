"""From a configuration to a trained run directory: everything that comes before the first
update.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from pathlib import Path

import torch

from transformer.allocator import keep_freed_memory
from transformer.config import Config
from transformer.data.cache import fingerprint
from transformer.data.corpus import EncodedCorpus, encode_corpus, load_corpora, prepare_tokenizers
from transformer.data.encoding import corpus_names, digest_of
from transformer.data.tokenizer import Tokenizers
from transformer.data.updates import settle_steps
from transformer.errors import UserError
from transformer.model.transformer import Transformer
from transformer.precision import choose_precision
from transformer.training.checkpoint import (
    Checkpoint,
    find_checkpoint,
    load_weights,
    read_checkpoint,
    rotate_checkpoints,
)
from transformer.training.directory import (
    began_here,
    delete_run,
    hold_run,
    refuse_existing,
    write_config,
)
from transformer.training.distributed import Ranks, start_ranks
from transformer.training.environment import (
    changed_environment,
    code_version,
    describe_environment,
)
from transformer.training.logger import log
from transformer.training.max_tokens import choose_max_tokens, keep_max_tokens
from transformer.training.resuming import (
    changed_settings,
    is_complete,
    newest_checkpoint,
    refuse_other_data,
)
from transformer.training.state import Progress, TrainingState
from transformer.training.trainer import Trainer


def train(
    config: Config, resume: bool = False, overwrite: bool = False, same_data: bool = False
) -> None:
    """Trains what the configuration describes, from the start or from its newest checkpoint.

    Args:
        config: the run.
        resume: goes on from the newest checkpoint, or starts if there is none.
        overwrite: deletes the run that is there.
        same_data: makes sure that a run which is done has learned from the data as it is now;
            one that goes on is always asked.

    Raises:
        UserError: the directory holds a run already, the data or the checkpoint is not right, or
            the configuration is not the one that the run was made with.
        InterruptedRun: a signal asked to stop; the state is saved.
    """
    run_dir = Path(config.run_dir)
    with ExitStack() as stack:
        ranks = stack.enter_context(start_ranks(config.training.device))
        hold = None
        if ranks.is_first:
            hold = stack.enter_context(hold_run(run_dir))
        else:
            log.setLevel(logging.ERROR)  # rank 0 speaks for all
        if ranks.gather(began_here(run_dir))[0]:
            resume, overwrite = True, False
        checkpoint = _find_start(config, resume, overwrite, ranks)
        settled = config
        if checkpoint is not None:
            settled = keep_max_tokens(config, checkpoint.config)
            for line in changed_settings(checkpoint, settled):
                log.info("%s", line)
            if is_complete(checkpoint, config):
                if same_data:
                    with ranks.first_alone():
                        refuse_changed_data(checkpoint, config)
                _say_complete(checkpoint, config)
                if ranks.is_first:  # it may have died before it did
                    best_step = Progress.of(checkpoint).best_step
                    keep = config.training.keep_checkpoints
                    rotate_checkpoints(run_dir, keep, best_step, checkpoint.step)
                return
        trainer = _prepare_trainer(settled, checkpoint, ranks)
        with ranks.first_alone():
            if ranks.is_first:
                if overwrite:
                    delete_run(run_dir)
                write_config(config)
        if ranks.device.type == "cpu":
            keep_freed_memory()
        if hold is None:
            trainer.run()
        else:
            trainer.run(hold.check)


def _find_start(config: Config, resume: bool, overwrite: bool, ranks: Ranks) -> Checkpoint | None:
    """Returns the checkpoint to go on from, the same on all ranks; None = start afresh."""
    run_dir = Path(config.run_dir)
    checkpoint = None
    with ranks.first_alone():
        if resume:
            checkpoint = newest_checkpoint(run_dir)
            if checkpoint is None:
                log.info("%s: holds no checkpoint yet; a new run begins", run_dir)
        elif not overwrite:
            refuse_existing(run_dir)
    ranks.agree(
        {
            "the configuration": _meaning(config),
            f"the newest checkpoint in {run_dir}": _name(checkpoint),
        }
    )
    return checkpoint


def refuse_changed_data(checkpoint: Checkpoint, config: Config) -> None:
    """Makes sure that a run has learned from the training data as it is now.

    Raises:
        OtherDataError: it has not.
        UserError: the data is not right.
    """
    refuse_other_data(checkpoint, config, prepare_data(config, checkpoint)[1].digest)


def _say_complete(checkpoint: Checkpoint, config: Config) -> None:
    log.warning(
        "%s: already done: step %d of training.max_steps %d; a larger one goes on",
        config.run_dir,
        checkpoint.step,
        config.training.max_steps,
    )


def _meaning(config: Config) -> str:
    """Returns what tells a configuration from others, apart from what each machine may set."""
    own = {"data": {"cache_dir", "num_threads"}}
    return fingerprint(config.model_dump(mode="json", exclude=own))


def _name(checkpoint: Checkpoint | None) -> str:
    """Returns what tells a checkpoint from others, its content included."""
    if checkpoint is None:
        return "none"
    return f"step {checkpoint.step}, digest {checkpoint.metadata['digest'][:12]}"


def _prepare_trainer(config: Config, checkpoint: Checkpoint | None, ranks: Ranks) -> Trainer:
    """Reads data and weights; nothing of a run that is there is touched yet."""
    start = checkpoint or model_to_start_from(config)
    with ranks.first_alone():
        tokenizers, corpus, validation = prepare_data(config, start)
    ranks.agree(
        {
            "the weights to start from": _name(start),
            "the training data": corpus.digest,
            "the validation data": digest_of(validation),
            "the code": code_version(),
        }
    )
    torch.manual_seed(config.seed)
    model = make_model(config, tokenizers)
    if checkpoint is None and start is not None:
        load_weights(model, start.weights("ema.") or start.weights(), start.path)
        log.info("weights and vocabulary come from %s, step %d", start.path, start.step)
    model.to(ranks.device)
    config = choose_max_tokens(config, model, int(corpus.lengths.max()), ranks)
    config = settle_steps(config, corpus.lengths)
    state = TrainingState(model, config, ranks)
    if checkpoint is not None:
        _go_on(state, checkpoint, corpus, validation)
        precision = choose_precision(config.training.precision, ranks.device)
        for line in changed_environment(
            checkpoint.metadata, describe_environment(ranks, precision)
        ):
            log.info("%s", line)
    _say_what(config, state.model, corpus, ranks)
    return Trainer(state, corpus, validation, tokenizers, ranks)


def _go_on(
    state: TrainingState,
    checkpoint: Checkpoint,
    corpus: EncodedCorpus,
    validation: EncodedCorpus | None,
) -> None:
    """Takes the checkpoint's state, without what was best if that is now measured otherwise."""
    config, before = state.config, checkpoint.config
    refuse_other_data(checkpoint, config, corpus.digest)
    state.load(checkpoint)
    log.info("resuming after step %d from %s", checkpoint.step, checkpoint.path)
    measures = [(c.validation.metric, c.validation.translate) for c in (before, config)]
    digest = digest_of(validation)
    if measures[0] != measures[1] or checkpoint.metadata.get("validation", digest) != digest:
        state.progress.best_value = state.progress.best_step = None
        state.progress.validations_since_best = 0
        log.info("validation measures something else now: what was best so far is forgotten")


def model_to_start_from(config: Config) -> Checkpoint | None:
    """Returns the model that `init_from` names, if it does."""
    if config.init_from is None:
        return None
    return read_checkpoint(find_checkpoint(config.init_from))


def make_model(config: Config, tokenizers: Tokenizers) -> Transformer:
    """Returns the model with fresh weights.

    Raises:
        UserError: it cannot be made.
    """
    sizes = tokenizers.source.vocab_size, tokenizers.target.vocab_size
    try:
        return Transformer(config.model, *sizes, config.training.activation_checkpointing)
    except ValueError as error:  # a vocabulary that came with init_from
        raise UserError(f"model.tie_embeddings: {error}; try decoder or none") from None
    except (RuntimeError, MemoryError) as error:
        reason = str(error).splitlines()[0] if str(error) else "out of memory"
        raise UserError(f"a model of this size cannot be made here: {reason}") from None


def _vocabulary_of(start: Checkpoint, config: Config) -> Tokenizers:
    """Returns the vocabulary that comes with a checkpoint, and says where another was asked for.

    Raises:
        UserError: it lacks a symbol that the configuration names.
    """
    tokenizers, settings = start.tokenizers, config.tokenizer
    if config.init_from is None:
        return tokenizers
    symbols = tokenizers.source.symbols
    if lacking := [symbol for symbol in settings.user_symbols if symbol not in symbols]:
        raise UserError(
            f"tokenizer.user_symbols: the vocabulary of {start.path} comes with init_from and has"
            f" no {', '.join(lacking)}, only {', '.join(symbols) or 'ordinary pieces'}; a start"
            " without init_from trains one that has"
        )
    sizes = dict.fromkeys((tokenizers.source.vocab_size, tokenizers.target.vocab_size))
    if settings.vocab_size != "auto" and set(sizes) != {settings.vocab_size}:
        found = " and ".join(map(str, sizes))
        log.info(
            "the vocabulary of %s has %s pieces, not %s", start.path, found, settings.vocab_size
        )
    return tokenizers


def prepare_data(
    config: Config, start: Checkpoint | None
) -> tuple[Tokenizers, EncodedCorpus, EncodedCorpus | None]:
    """Reads, segments and filters the data; the vocabulary comes from `start` if there is one.

    Raises:
        UserError: the data is not right, or one side of all of the validation data is blank.
    """
    raw = load_corpora(config.data.train, config.data)
    tokenizers = _vocabulary_of(start, config) if start else prepare_tokenizers(config, raw)
    corpus = encode_corpus(raw, tokenizers, config.data, filters=True)
    level = logging.WARNING if corpus.report.many_dropped else logging.INFO
    for line in corpus.report.lines():
        log.log(level, "%s", line)
    validation = None
    if config.data.validation:
        pairs = load_corpora(config.data.validation, config.data)
        for side, name in (("src", "sources"), ("tgt", "references")):
            if not any(text.strip() for text in pairs[side]):
                files = ", ".join(corpus_names(pairs))
                raise UserError(
                    f"data.validation: all of its {len(pairs):,} {name} are blank: {files}"
                )
        validation = encode_corpus(pairs, tokenizers, config.data, filters=False)
    return tokenizers, corpus, validation


def _say_what(config: Config, model: Transformer, corpus: EncodedCorpus, ranks: Ranks) -> None:
    sizes = {model.src_embedding.tokens.num_embeddings, model.output.out_features}
    log.info(
        "%s pairs; %s parameters; vocabulary %s; %s updates (training.%s); %s; %s",
        f"{len(corpus):,}",
        f"{model.num_parameters:,}",
        " and ".join(f"{n:,}" for n in sorted(sizes)),
        f"{config.training.total_steps:,}",
        config.training.limit,
        f"{ranks.size} x {ranks.device.type}",
        choose_precision(config.training.precision, ranks.device),
    )
