"""The command `transformer translate`: lines from a file, a pipe or a person."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from transformer.cli_options import configure_search, sampling_options, settings_of
from transformer.config import DecodingConfig
from transformer.console import (
    Device,
    Input,
    Models,
    Output,
    log_to_console,
    prompted,
    reading,
    writing,
)
from transformer.decoding.sampling_options import SamplingOptions
from transformer.errors import UserError

if TYPE_CHECKING:
    from transformer.decoding.formats import Format
    from transformer.decoding.options import SearchOptions
    from transformer.decoding.parts import Engine
    from transformer.decoding.request import Request
    from transformer.decoding.results import Translation
    from transformer.decoding.translator import Translator

NOT_OF_SAMPLES = {"beam_size", "n_best", "beam_groups", "diversity", "shortlist"}
"""Settings of a search that say nothing about how samples are drawn."""

translate_app = typer.Typer()


@translate_app.command()
@settings_of(DecodingConfig, "search", "Search; by default as the model's run says")
@settings_of(SamplingOptions, "sampling", "Sampling")
def translate(
    models: Models,
    search: dict[str, Any],
    sampling: dict[str, Any],
    input: Input = None,
    output: Output = None,
    format: Annotated[
        Literal["text", "jsonl"], typer.Option(help="Of lines in and out; jsonl: objects of JSON.")
    ] = "text",
    scores: Annotated[bool, typer.Option("--scores", help="Print score, tab, text.")] = False,
    alignments: Annotated[
        Literal["hard", "soft"] | None,
        typer.Option(help="Print text, tab, pairs of words: 0-0 1-2; soft: 0-0:0.98 1-2:0.71."),
    ] = None,
    mbr: Annotated[
        Literal["chrf", "bleu"] | None,
        typer.Option(help="Of samples or n-best print the one that agrees best with the others."),
    ] = None,
    engine: Annotated[Literal["own", "ctranslate2"], typer.Option(help="What searches.")] = "own",
    split_sentences: Annotated[
        bool,
        typer.Option("--split-sentences", help="Split lines longer than in training, and rejoin."),
    ] = False,
    device: Device = "auto",
) -> None:
    """Translate lines: one line out for each line in, in order, as they come.

    With --n-best or --sample each line gives so many lines, the best first or as they were drawn,
    each with its score. On a terminal it asks for a line and answers it.
    """
    from transformer.decoding.formats import JsonFormat, TextFormat
    from transformer.decoding.translator import Translator

    log_to_console()
    translator = Translator.load(*models, device=device, precision=search.pop("precision", None))
    given = search.keys()
    options = configure_search(translator, search)
    translator.sampling = sampling_options(sampling)
    if engine == "ctranslate2":
        translator.engine = _ctranslate2(translator)
    translator.utility = mbr
    translator.alignments = alignments is not None
    translator.split_sentences = split_sentences
    if translator.sampling is not None and (wrong := NOT_OF_SAMPLES & given):
        option = min(wrong).replace("_", "-")
        raise typer.BadParameter(f"--{option} is for a search: leave out --sample, or it")
    several = (sampling.get("sample") or options.n_best) > 1
    if mbr is not None and not several:
        raise typer.BadParameter("--mbr chooses among several: add --n-best or --sample")
    with_scores = scores or (several and mbr is None)
    form: Format = TextFormat(with_scores, alignments, None if mbr is None else 1)
    if format == "jsonl":
        form = JsonFormat(translator.tokenizers, alignments == "soft", bool(sampling))
    with writing(output, input, *models) as out:
        for found in _translate(translator, options, input, form):
            out.write(form.write(found))
            out.flush()
    for line in translator.summary.lines():
        typer.echo(line, err=True)


def _ctranslate2(translator: Translator) -> Engine:
    """Returns the translator's model in CTranslate2.

    Raises:
        UserError: it cannot do what was asked for.
    """
    if len(translator.models) > 1:
        raise UserError("the engine ctranslate2 has no ensembles; leave out --engine")
    if translator.sampling is not None:
        raise UserError("the engine ctranslate2 draws no samples by seed; leave out --engine")
    if translator.shortlist is not None:
        raise UserError("the engine ctranslate2 takes no shortlist; leave out --engine, or it")
    if translator.precision != "float32":
        raise UserError(
            f"the engine ctranslate2 computes in float32, not in {translator.precision};"
            " leave out --engine, or add --precision float32"
        )
    from transformer.decoding.ctranslate2_engine import CTranslate2Engine

    return CTranslate2Engine(translator.models[0], translator.tokenizers)


def _asked(form: Format, language: str) -> Iterator[Request]:
    """Yields what a person asks for on the terminal; what is none is said, and asked again."""
    for number, line in enumerate(prompted(f"{language}> "), 1):
        try:
            yield from list(form.read([line], "line", number))
        except UserError as error:
            typer.echo(f"transformer: {error}", err=True)


def _translate(
    translator: Translator, options: SearchOptions, input: Path | None, form: Format
) -> Iterator[list[Translation]]:
    """Yields the translations of each line of the input."""
    if input is None and sys.stdin is not None and sys.stdin.isatty():
        typer.echo("One line at a time; Ctrl-D ends.", err=True)
        requests = _asked(form, translator.config.data.source_language)
        yield from translator.translate_stream(requests, options, chunk_lines=1)
        return
    from transformer.data.lines import read_lines

    with reading(input) as (stream, name):
        live = not stat.S_ISREG(os.fstat(stream.fileno()).st_mode)  # a pipe
        requests = form.read(read_lines(stream, name), name)
        yield from translator.translate_stream(requests, options, live)
