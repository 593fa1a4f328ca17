"""The words that a translation may be made of, by the words of its source: a search that looks at
hundreds of tokens instead of the whole vocabulary is faster (Jean et al. 2015, section 3.2).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from transformer.data.tokenizer import Tokenizers
from transformer.decoding.quantization import of_features
from transformer.errors import UserError
from transformer.ids import PAD
from transformer.model.transformer import DecoderState, Transformer
from transformer.precision import widen


@dataclass(frozen=True)
class Shortlist:
    """What may be said.

    Attributes:
        always: tokens that may be said whatever the source is, (F,); those that are no text too.
        starts: where the tokens of each source token begin in `words`, and the end, (V + 1,).
        words: the tokens that may translate each source token, one list after the other.
    """

    always: Tensor
    starts: Tensor
    words: Tensor

    def allows(self, src: Tensor) -> Tensor:
        """Tells which tokens sentences (B, S) may be translated by: bool (B, V)."""
        firsts = self.starts[src]
        counts = (self.starts[src + 1] - firsts) * (src != PAD)
        before = counts.flatten().cumsum(0) - counts.flatten()
        places = torch.arange(int(counts.sum()), device=src.device)
        places = places + (firsts.flatten() - before).repeat_interleave(counts.flatten())
        rows = torch.arange(len(src), device=src.device).repeat_interleave(counts.sum(1))
        size = int(torch.cat((self.words, self.always)).max()) + 1
        allowed = torch.zeros(len(src), size, dtype=torch.bool, device=src.device)
        allowed[rows, self.words[places]] = True
        allowed[:, self.always] = True
        return allowed

    def save(self, path: Path, tokenizers: Tokenizers) -> None:
        """Writes it to a file, with what tells its vocabularies.

        Raises:
            UserError: the file cannot be written.
        """
        tensors = vars(self)
        try:
            path.write_bytes(save(tensors, _metadata(tensors, tokenizers)))
        except OSError as error:
            raise UserError(f"{path}: cannot be written: {error.strerror}") from None

    @classmethod
    def load(
        cls, path: str | Path, tokenizers: Tokenizers, device: torch.device | str = "cpu"
    ) -> Shortlist:
        """Reads what `save` wrote.

        Raises:
            UserError: the file cannot be read, is no shortlist or a damaged one, or is for other
                vocabularies.
        """
        try:
            with safe_open(str(path), "pt") as file:
                told = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise UserError(f"{path}: cannot be read as a shortlist: {error}") from None
        expected = _metadata(tensors, tokenizers)
        if told.keys() != expected.keys() or tensors.keys() != {"always", "starts", "words"}:
            raise UserError(f"{path}: is no shortlist; `transformer shortlist` makes one")
        if told["digest"] != expected["digest"]:
            raise UserError(f"{path}: is damaged; `transformer shortlist` makes another one")
        if told != expected:
            raise UserError(
                f"{path}: is a shortlist for other vocabularies than those of this model;"
                " `transformer shortlist` makes one"
            )
        return cls(**{name: tensor.to(device) for name, tensor in tensors.items()})


def _metadata(tensors: dict[str, Tensor], tokenizers: Tokenizers) -> dict[str, str]:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype}".encode())
        digest.update(tensors[name].numpy().tobytes())
    vocabularies = {"source": tokenizers.source.digest, "target": tokenizers.target.digest}
    return {**vocabularies, "digest": digest.hexdigest()}


class Shortlisted:
    """A model of a smaller target vocabulary, whose tokens are numbered anew; probabilities are
    shares of what a sentence may be translated by.

    Args:
        model: the model.
        shortlist: tells what a sentence may be translated by.
        tokens: the vocabulary, (C,), with all that may be said for any sentence to come.
    """

    def __init__(self, model: Transformer, shortlist: Shortlist, tokens: Tensor) -> None:
        self.model = model
        self.shortlist = shortlist
        self.tokens = tokens
        self.output = of_features(model.output, tokens)

    def start(self, src: Tensor) -> ShortlistedState:
        """Reads source sentences (B, S) and returns the state before any target token."""
        allowed = self.shortlist.allows(src)[:, self.tokens]
        out_of_reach = torch.zeros(allowed.shape, device=src.device)
        out_of_reach.masked_fill_(~allowed, -torch.inf)
        return ShortlistedState(self.model.start(src), out_of_reach)

    def log_probs(self, tgt: Tensor, state: ShortlistedState) -> tuple[Tensor, ShortlistedState]:
        """Predicts the token after each of `tgt` (B * K, T): log-probabilities (B * K, T, C), and
        the state after.
        """
        hidden, inner = self.model.decode_hidden(self.tokens[tgt], state.inner)
        logits = widen(self.output(hidden))
        of_sentences = logits.view(len(state.out_of_reach), -1, len(self.tokens))
        of_sentences += state.out_of_reach[:, None]
        return logits.log_softmax(-1), replace(state, inner=inner)

    def decode(self, tgt: Tensor, state: ShortlistedState) -> tuple[Tensor, ShortlistedState]:
        """Does as `log_probs`, which are logits as well."""
        return self.log_probs(tgt, state)


@dataclass(frozen=True)
class ShortlistedState:
    """The state of a model, and what its sentences may be translated by.

    Attributes:
        inner: the model's.
        out_of_reach: 0 where a sentence may say a token, else -inf, (B, C).
    """

    inner: DecoderState
    out_of_reach: Tensor

    def select(self, rows: Tensor) -> ShortlistedState:
        """Returns the state of these of the B * K hypotheses."""
        inner = self.inner.select(rows)
        sentences = (rows // self.inner.num_hypotheses)[:: inner.num_hypotheses]
        all_in_order = torch.arange(len(self.out_of_reach), device=rows.device)
        if sentences.equal(all_in_order):
            return replace(self, inner=inner)
        return ShortlistedState(inner, self.out_of_reach.index_select(0, sentences))

    def watch(self) -> ShortlistedState:
        """Returns this state such that it counts the attention that source tokens receive."""
        return replace(self, inner=self.inner.watch())

    @property
    def received(self) -> Tensor | None:
        """The attention that source tokens have received, if it is watched: (B, K, S)."""
        return self.inner.received

    @property
    def memory_mask(self) -> Tensor | None:
        """Which source tokens are real: (B, 1, 1, S)."""
        return self.inner.memory_mask
