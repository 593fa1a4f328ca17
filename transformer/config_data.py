"""The settings of text: corpora, filters, vocabularies."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from transformer.config_types import (
    Count,
    LanguageCode,
    Name,
    Positive,
    Section,
    Text,
)

Format = Literal["text", "tsv", "jsonl", "parquet", "hub"]
ENDINGS: dict[str, Format] = {
    ".tsv": "tsv",
    ".json": "jsonl",
    ".jsonl": "jsonl",
    ".parquet": "parquet",
}


class CorpusConfig(Section):
    """One parallel corpus: two text files, or one file of pairs, or a data set in hub layout."""

    source: Text | None = None
    """Text file of source sentences, one a line, plain or .gz; goes with `target`."""
    target: Text | None = None
    """Text file of target sentences, line by line the translations of `source`."""
    path: Text | None = None
    """A file that holds both sides: .tsv, .jsonl or .parquet, the first two also .gz."""
    hub: Text | None = None
    """A data set of the Hugging Face hub (`owner/name`), or a local folder laid out like one."""
    name: Text | None = None
    """Configuration of the hub data set, if it has several."""
    split: Text = "train"
    """Split of the hub data set."""
    revision: Text | None = None
    """Branch, tag or commit of the hub data set."""
    source_column: Text | None = None
    """Column of the source text, dotted if nested. Default: source language; of TSV, field 1."""
    target_column: Text | None = None
    """Column of the target text, dotted if nested. Default: target language; of TSV, field 2."""

    tag: Text | None = None
    """Put before each source sentence, such as `<2de>` for the language to translate into; must be
    one of tokenizer.user_symbols. What is translated later needs it too."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.source is None) != (self.target is None):
            raise ValueError("source and target go together: name both text files")
        kinds = [self.source is not None, self.path is not None, self.hub is not None]
        if sum(kinds) != 1:
            raise ValueError("a corpus needs exactly one of: source and target, path, hub")
        if self.path is not None:
            self.format  # noqa: B018  (refuses an unknown ending)
        if self.source is not None and (self.source_column or self.target_column):
            raise ValueError("source_column and target_column go with path or hub")
        if self.hub is None and (self.name or self.revision or self.split != "train"):
            raise ValueError("name, split and revision go with hub")
        return self

    @property
    def format(self) -> Format:
        """How the corpus is stored, told by which setting is given and how the file's name ends."""
        if self.source is not None:
            return "text"
        if self.hub is not None:
            return "hub"
        stem = str(self.path).removesuffix(".gz")
        for ending, kind in ENDINGS.items():
            if stem.endswith(ending):
                return kind
        raise ValueError(f"path {self.path} must end in .tsv, .jsonl or .parquet (.gz may follow)")


class DataConfig(Section):
    """What to train, validate and test on, and which pairs to leave out of training."""

    source_language: LanguageCode = ""
    """Language code of the source, such as `en`; the default column of tables."""
    target_language: LanguageCode = ""
    """Language code of the target; also chooses sacreBLEU's tokenizer for zh, ja and ko."""
    train: list[CorpusConfig] = Field(min_length=1)
    """Corpora to train on, taken together."""
    validation: list[CorpusConfig] = Field(default=[])
    """Corpora to validate on; none switches validation off."""
    test: dict[Name, CorpusConfig] = Field(default={})
    """Test sets by name, for `transformer evaluate`."""
    max_length: Positive = 256
    """Most tokens of a side, its end counted; longer training pairs are dropped and counted."""
    max_ratio: float | None = Field(default=None, gt=1.0)
    """Most tokens of a side per token of the other; other training pairs are dropped, counted."""
    drop_duplicates: bool = False
    """Keeps only the first of equal training pairs."""
    cache_dir: Text | None = None
    """Home of prepared data. Default: $XDG_CACHE_HOME/transformer or ~/.cache/transformer."""
    num_threads: Count = 0
    """Threads that prepare data; 0 takes all cores."""

    @property
    def corpora(self) -> dict[str, CorpusConfig]:
        """All corpora by the dotted names of their settings."""
        return {
            **{f"data.train.{i}": corpus for i, corpus in enumerate(self.train)},
            **{f"data.validation.{i}": corpus for i, corpus in enumerate(self.validation)},
            **{f"data.test.{name}": corpus for name, corpus in self.test.items()},
        }


class TokenizerConfig(Section):
    """SentencePiece, trained on the training text."""

    kind: Literal["unigram", "bpe"] = "unigram"
    """Subword model."""
    vocab_size: Annotated[int, Field(ge=5)] | Literal["auto"] = 8000
    """Pieces of a vocabulary, special ones and bytes included; a small text gets fewer, warned.
    auto goes by the number of training pairs: its characters, bytes and special pieces, and
    250 times the third root of the pairs more, but 500 to 32,000: 5,400 at 10,000 pairs, 7,700 at
    29,000, 14,600 at 200,000, 25,000 at a million. Little data wants smaller vocabularies than much
    (Sennrich and Zhang 2019, Gowda and May 2020), but at 29,000 pairs 8,000 pieces were measured to
    learn faster than 4,000."""
    joint: bool = True
    """One vocabulary for both languages; false trains one for each."""
    byte_fallback: bool = True
    """Spells unknown characters as bytes, so that nothing is lost."""
    normalization: Literal["identity", "nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf"] = "identity"
    """Unicode normalisation before segmentation; `_cf` also folds case."""
    character_coverage: float = Field(default=1.0, ge=0.98, le=1.0)
    """Share of the characters that get a piece of their own; 0.9995 suits Chinese and Japanese."""
    user_symbols: list[Text] = Field(default=[])
    """Symbols that are always one piece, such as a tag `<2de>`; they are stripped from output."""
    sample_lines: Positive = 500_000
    """Most lines that the tokenizer is trained on; a larger corpus is sampled evenly."""
    source_sampling: float | None = Field(default=None, ge=0.0, le=1.0)
    """Subword regularisation of the source in training. bpe: probability of dropping a merge
    (Provilkov et al. 2020); unigram: the smoothing exponent alpha (Kudo 2018). Fresh in each epoch;
    never in validation or translation."""
    target_sampling: float | None = Field(default=None, ge=0.0, le=1.0)
    """The same for the target."""
    sampling_until: float = Field(default=1.0, ge=0.0, le=1.0)
    """Share of the updates with such sampling; those after it see what translation sees."""
