"""A picture of where a model looks: encoder, decoder and cross-attention side by side."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from transformer.decoding.attention_record import AttentionRecord
from transformer.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

log = logging.getLogger("transformer")

FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Source Han Sans SC",
    "WenQuanYi Zen Hei",
    "Microsoft YaHei",
    "PingFang SC",
    "Hiragino Sans",
    "Noto Sans Devanagari",
    "Arial Unicode MS",
)
"""Of scripts that matplotlib's own font lacks."""
INCHES_PER_TOKEN = 0.28
LEAST_INCHES, MOST_INCHES = 2.0, 12.0
"""Sides of a panel."""


def draw_attention(
    record: AttentionRecord, path: Path, layer: int | None = None, head: int | None = None
) -> None:
    """Writes a picture with a row for each head and a column for each kind of attention.

    In each panel a row says where one token looks: the darker, the more. In the decoder it is the
    token that is read; towards the source the one that is said there, as in Bahdanau et al. 2015.

    Args:
        record: tokens and weights.
        path: what to write; its ending decides the format.
        layer: counted from 1; None = the last of each stack.
        head: counted from 1; None = all.

    Raises:
        UserError: there is no such layer or head, matplotlib is not installed, or it cannot write
            such a file.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError(
            "pictures need matplotlib: pip install 'transformer[plot]'; .json needs nothing"
        ) from None
    chosen = record.of_layer(layer)
    num_heads = len(next(iter(chosen.cross.values())))
    if head is not None and head > num_heads:
        raise UserError(f"head {head}: there are heads 1 to {num_heads}")
    heads = [head] if head is not None else list(range(1, num_heads + 1))
    wide, high = (_inches(len(tokens)) for tokens in (record.source, record.target))
    with rc_context({"font.family": _fonts()}), warnings.catch_warnings(record=True) as caught:
        figure = Figure((2 * wide + high + 3, len(heads) * (max(wide, high) + 0.8)), dpi=100)
        figure.set_layout_engine("constrained")
        ratios = {"width_ratios": [wide, high, wide]}
        rows = figure.subplots(len(heads), 3, squeeze=False, gridspec_kw=ratios)
        for axes, number in zip(rows, heads, strict=True):
            _draw_head(axes, chosen, number)
        try:
            figure.savefig(path)
        except ValueError as error:
            raise UserError(f"{path}: {error}") from None
    if any("missing from" in str(warning.message) for warning in caught):
        log.warning("%s: no font here has all of its signs; .json has them", path)


def _fonts() -> list[str]:
    """Returns the default font, and behind it those of other scripts that are installed."""
    from matplotlib import rcParams
    from matplotlib.font_manager import fontManager

    there = {font.name for font in fontManager.ttflist}
    return [*rcParams["font.family"], *(name for name in FONTS if name in there)]


def _draw_head(axes: Sequence[Axes], record: AttentionRecord, head: int) -> None:
    """Draws the three panels of one head."""
    source, target = record.source, record.target
    panels = (
        ("encoder", record.encoder, source, source),
        ("decoder", record.decoder, target, target),
        ("cross", record.cross, record.said, source),
    )
    for axis, (kind, maps, queries, keys) in zip(axes, panels, strict=True):
        ((layer, weights),) = maps.items()
        axis.imshow(weights[head - 1].numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
        axis.set_title(f"{kind}, layer {layer}, head {head}", fontsize=9)
        size = min(
            8.0, 60 * _inches(len(keys)) / len(keys), 60 * _inches(len(queries)) / len(queries)
        )
        axis.set_xticks(range(len(keys)), map(_shown, keys), rotation=90, fontsize=size)
        axis.set_yticks(range(len(queries)), map(_shown, queries), fontsize=size)


def _inches(num_tokens: int) -> float:
    return min(max(num_tokens * INCHES_PER_TOKEN, LEAST_INCHES), MOST_INCHES)


def _shown(piece: str) -> str:
    """Returns a piece as it is, but for signs that matplotlib would take for mathematics."""
    return piece.replace("$", r"\$")
