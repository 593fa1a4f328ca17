"""How good translations are: corpus BLEU, chrF and TER through sacreBLEU (Post 2018), each with the
signature that makes its number comparable.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from transformer.errors import UserError

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric as SacrebleuMetric

Systems = list[tuple[str, Sequence[str]]]

METRICS = ("bleu", "chrf", "ter")

_LANGUAGES = {"zho": "zh", "cmn": "zh", "jpn": "ja", "kor": "ko"}  # ISO 639-3 to 639-1
_TOKENIZERS = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}
_PUNCTUATION = re.compile(r"(?<=\S)(\s?)[.,;:!?](?=\s|$)")


@dataclass(frozen=True)
class Metric:
    """One number and how it was computed.

    Attributes:
        score: in per cent; TER is an error rate, for which lower is better.
        signature: sacreBLEU's, with case, tokenizer, number of references and version.
    """

    score: float
    signature: str


@dataclass(frozen=True)
class Evaluation:
    """What comparing translations with references gave.

    Attributes:
        metrics: by name, in the order of `METRICS`.
        lines: number of lines compared.
        warnings: sentences about what may make the numbers mean less than they seem.
    """

    metrics: dict[str, Metric]
    lines: int
    warnings: list[str]

    def to_json(self) -> str:
        """Returns all of it as JSON."""
        return json.dumps(asdict(self), ensure_ascii=False, indent=2)


@dataclass(frozen=True)
class Bootstrapped:
    """A score and what resampling the lines makes of it.

    Attributes:
        score: of the lines as they are.
        mean: of the resampled scores.
        interval: half the width of the interval that holds 95 % of them.
    """

    score: float
    mean: float
    interval: float


@dataclass(frozen=True)
class Comparison:
    """How one system's score stands to another's.

    Attributes:
        this: the system's score.
        other: the other's.
        p_value: probability of a difference at least as large if the systems were equally good.
        signature: sacreBLEU's, with the number of samples and the seed that drew them.
    """

    this: Bootstrapped
    other: Bootstrapped
    p_value: float
    signature: str

    @property
    def difference(self) -> float:
        """How much higher this score is than the other."""
        return self.this.score - self.other.score


def evaluate(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    target_language: str = "",
    metrics: Sequence[str] = METRICS,
    tokenize: str | None = None,
    lowercase: bool = False,
) -> Evaluation:
    """Compares translations with one or more references of each line.

    Args:
        hypotheses: the translations.
        references: for each reference translation, all of its lines; a single reference is
            `[lines]`.
        target_language: code such as `zh` or `pt-BR`; chooses the tokenizer of zh, ja and ko.
        metrics: which of `METRICS` to compute.
        tokenize: sacreBLEU's tokenizer for BLEU, such as `none` for text that is tokenised already.
            Default: by language, else `13a`.
        lowercase: ignores case in BLEU and chrF, which their signatures say; TER always does, as
            in sacreBLEU.

    Raises:
        UserError: the numbers of lines differ, there are none, or a metric or tokenizer is unknown
            or not installed.
    """
    _check_counts(hypotheses, references)
    made, notes = make_metrics(metrics, target_language, tokenize, lowercase)
    warnings = [] if tokenize == "none" else _looks_tokenized(hypotheses, references)
    found = {}
    for name, metric in made.items():
        score = metric.corpus_score(list(hypotheses), [list(lines) for lines in references])
        found[name] = Metric(score.score, str(metric.get_signature()))
    return Evaluation(found, len(hypotheses), warnings + notes)


def compare(
    hypotheses: Sequence[str],
    others: Sequence[str],
    references: Sequence[Sequence[str]],
    target_language: str = "",
    metrics: Sequence[str] = METRICS,
    tokenize: str | None = None,
    lowercase: bool = False,
) -> dict[str, Comparison]:
    """Compares two systems' translations of the same lines by paired bootstrap resampling (Koehn
    2004), as sacreBLEU does it: 1,000 samples of the lines, drawn alike for both.

    Args:
        hypotheses: the translations of one system.
        others: those of the other.
        references: as in `evaluate`, like the remaining arguments.

    Returns:
        a comparison for each metric.

    Raises:
        UserError: as `evaluate`.
    """
    _check_counts(hypotheses, references)
    _check_counts(others, references)
    made, _ = make_metrics(metrics, target_language, tokenize, lowercase)
    lines = [list(reference) for reference in references]
    systems: Systems = [("other", list(others)), ("this", list(hypotheses))]
    return {name: _compare(name, metric, systems, lines) for name, metric in made.items()}


def _compare(
    name: str, metric: SacrebleuMetric, systems: Systems, references: list[list[str]]
) -> Comparison:
    """Compares the second system with the first."""
    from sacrebleu.significance import PairedTest

    try:
        test = PairedTest(systems, {name: metric}, references, test_type="bs")
    except ValueError as error:
        raise UserError(f"SACREBLEU_SEED of the environment: {error}") from None
    signatures, results = test()
    (key,) = signatures
    found: list[Any] = results[key]
    other, this = (Bootstrapped(*map(float, (x.score, x.mean, x.ci))) for x in found)
    # sacreBLEU counts what exceeds the difference: equal scores would get its smallest p.
    p_value = 1.0 if this.score == other.score else float(found[1].p_value)
    return Comparison(this, other, p_value, str(signatures[key]))


def make_metrics(
    names: Sequence[str], target_language: str, tokenize: str | None, lowercase: bool
) -> tuple[dict[str, SacrebleuMetric], list[str]]:
    """Returns sacreBLEU's metrics in the order of `METRICS`, and warnings about how they were made.

    Raises:
        UserError: a metric or tokenizer is unknown or not installed.
    """
    for name in names:
        if name not in METRICS:
            raise UserError(f"metric {name}: no such metric; there are {', '.join(METRICS)}")
    language = _language(target_language)
    made, warnings = {}, []
    for name in METRICS:
        if name in names:
            made[name], notes = _make_metric(name, language, tokenize, lowercase)
            warnings += notes
    return made, warnings


def check_tokenizer(name: str) -> None:
    """Makes sure that BLEU can be computed with one of sacreBLEU's tokenizers.

    Raises:
        UserError: it is unknown or not installed.
    """
    _make_metric("bleu", "", name, lowercase=False)


def sentence_metric(
    name: str, target_language: str = ""
) -> tuple[Callable[[str, str], float], list[str]]:
    """Returns sacreBLEU's score of a translation against one reference, in per cent, and warnings
    about how it is made.

    Args:
        name: bleu, which counts only as many words in a row as the translation has, or chrf.
        target_language: chooses the tokenizer, as in `evaluate`.
    """
    metric, notes = _make_metric(name, _language(target_language), None, False)
    if name == "bleu":
        metric.effective_order = True  # type: ignore[attr-defined]
    return lambda text, reference: metric.sentence_score(text, [reference]).score, notes


def _language(code: str) -> str:
    """Returns the two letters of a language code such as `pt-BR` or `zho`."""
    language = re.split("[-_]", code.lower())[0]
    return _LANGUAGES.get(language, language)


def _check_counts(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    if not references:
        raise UserError("nothing to compare with: there is no reference")
    for lines in references:
        if isinstance(lines, str):
            raise TypeError("references is a list of lists of lines: pass a single one as [lines]")
        if len(lines) != len(hypotheses):
            raise UserError(
                f"{len(hypotheses)} translations and {len(lines)} references: each line needs its"
                " reference"
            )
    if not hypotheses:
        raise UserError("nothing to evaluate: there are no lines")


def _make_metric(
    name: str, language: str, tokenize: str | None, lowercase: bool
) -> tuple[SacrebleuMetric, list[str]]:
    """Returns sacreBLEU's metric, and warnings about how it was made."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    if name == "chrf":
        return CHRF(lowercase=lowercase), []
    if name == "ter":
        no_spaces = language in ("zh", "ja")
        return TER(normalized=no_spaces, asian_support=no_spaces), []
    chosen = tokenize or _TOKENIZERS.get(language, "13a")
    if chosen not in BLEU.TOKENIZERS:
        raise UserError(
            f"tokenizer {chosen}: sacreBLEU has no such one; it has {', '.join(BLEU.TOKENIZERS)}"
        )
    try:
        return BLEU(lowercase=lowercase, tokenize=chosen, force=True), []
    except (RuntimeError, ImportError, OSError) as error:
        if not chosen.endswith("-mecab"):  # the others fetch a SentencePiece model
            raise UserError(f"tokenizer {chosen} could not be fetched: {error}") from None
    extra = f"pip install 'sacrebleu[{chosen[:2]}]'"
    if tokenize:
        raise UserError(f"tokenizer {tokenize} is not installed: {extra}")
    note = f"tokenizer {chosen} is not installed, BLEU counts characters instead: {extra}"
    return BLEU(lowercase=lowercase, tokenize="char", force=True), [note]


def _looks_tokenized(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[str]:
    """Warns if punctuation stands apart in the translations but not in the references."""
    apart = _share_apart(hypotheses)
    expected = max(_share_apart(lines) for lines in references)
    if apart < 0.5 or expected > apart / 2:
        return []
    return [
        f"the translations look tokenised: {apart:.0%} of their punctuation stands after a space,"
        f" in the references {expected:.0%}; detokenise them for a score that compares"
    ]


def _share_apart(lines: Sequence[str]) -> float:
    """Returns the share of punctuation that has a space before it."""
    gaps = [match[1] for line in lines for match in _PUNCTUATION.finditer(line)]
    return sum(map(bool, gaps)) / len(gaps) if gaps else 0.0
