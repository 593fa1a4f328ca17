"""What a configuration would train, said before it does."""

from __future__ import annotations

from transformer.config import Config
from transformer.data.batching import micro_batches, plan_epoch
from transformer.data.corpus import encode_corpus, load_corpora, prepare_tokenizers
from transformer.model.transformer import Transformer


def inspect_config(config: Config) -> list[str]:
    """Reads the data and returns lines about model, data and updates."""
    raw = load_corpora(config.data.train, config.data)
    tokenizers = prepare_tokenizers(config, raw)
    corpus = encode_corpus(raw, tokenizers, config.data, filters=True)
    sizes = (tokenizers.source.vocab_size, tokenizers.target.vocab_size)
    model = Transformer(config.model, *sizes)
    return [
        *corpus.report.lines(),
        *_model_lines(model, sizes),
        *_update_lines(config, corpus.lengths),
    ]


def _model_lines(model: Transformer, sizes: tuple[int, int]) -> list[str]:
    parts: dict[str, int] = {"embeddings": 0, "encoder": 0, "decoder": 0}
    for name, p in model.named_parameters():
        part = name.split(".")[0]
        parts[part if part in parts else "embeddings"] += p.numel()
    counts = ", ".join(f"{name} {count:,}" for name, count in parts.items())
    vocabulary = f"{sizes[0]:,}" if len(set(sizes)) == 1 else f"{sizes[0]:,} and {sizes[1]:,}"
    return [f"vocabulary {vocabulary}", f"{model.num_parameters:,} parameters: {counts}"]


def _update_lines(config: Config, lengths) -> list[str]:  # type: ignore[no-untyped-def]
    plan = list(plan_epoch(lengths, config.training.batch_tokens, config.seed, epoch=1))
    real = padded = parts = 0
    for update in plan[:100]:
        cut = micro_batches(lengths[update], config.training.max_tokens)
        parts += len(cut)
        real += int(lengths[update].sum())
        padded += sum(len(part) * int(lengths[update][part].max()) for part in cut)
    epochs = config.training.max_steps / len(plan)
    return [
        f"{len(plan):,} updates an epoch, {parts / len(plan[:100]):.1f} micro-batches each,"
        f" padding {1 - real / padded:.1%}",
        f"training.max_steps {config.training.max_steps:,} are {epochs:.1f} epochs,"
        f" {config.training.max_steps * lengths.sum() / len(plan):,.0f} tokens",
    ]
