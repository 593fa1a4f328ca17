"""The commands that show where a model looks: align, attention."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from transformer.console import Device, Models, Output, log_to_console, writing

attention_app = typer.Typer()

Layer = Annotated[int | None, typer.Option(min=1, help="Of the decoder. Default: all.")]


@attention_app.command()
def align(
    models: Models,
    source: Annotated[Path, typer.Option(help="Source lines.")],
    target: Annotated[Path, typer.Option(help="Their translations.")],
    soft: Annotated[bool, typer.Option("--soft", help="All pairs with their weights.")] = False,
    layer: Layer = None,
    output: Output = None,
    device: Device = "auto",
) -> None:
    """Print which words of each line and of its translation belong together: 0-0 1-2.

    A word is what stands between spaces, and is counted from 0.
    """
    from transformer.decoding.translator import Translator
    from transformer.test_sets import read_pairs

    log_to_console()
    translator = Translator.load(*models, device=device)
    with writing(output, source, target, *models) as out:
        for alignment in translator.align(*read_pairs(source, target), layer):
            out.write((alignment.soft() if soft else alignment.hard()) + "\n")


@attention_app.command()
def attention(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="Run directory, or a checkpoint file.")
    ],
    sentence: Annotated[str, typer.Argument(metavar="SENTENCE", help="Source line.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Picture (.png, .pdf, .svg) or .json to write.")
    ],
    target: Annotated[
        str | None, typer.Option(help="Its translation. Default: the model's own.")
    ] = None,
    layer: Annotated[int | None, typer.Option(min=1, help="Default: the last.")] = None,
    head: Annotated[int | None, typer.Option(min=1, help="Default: all.")] = None,
    device: Device = "auto",
) -> None:
    """Draw where the heads of a layer look: encoder, decoder, and from decoder to encoder.

    JSON holds the weights of all layers and heads.
    """
    from transformer.decoding.attention_picture import draw_attention
    from transformer.decoding.attention_record import record_attention
    from transformer.decoding.translator import Translator

    log_to_console()
    translator = Translator.load(model, device=device)
    record = record_attention(translator, sentence, target)
    if output.suffix != ".json":
        draw_attention(record, output, layer, head)
        return
    if layer is not None or head is not None:
        raise typer.BadParameter("--layer and --head choose what is drawn; JSON holds all of them")
    with writing(output, model) as out:
        json.dump(record.to_json(), out, ensure_ascii=False)
        out.write("\n")
