"""What the commands share: where text comes from and goes to."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, BinaryIO, TextIO, cast

import typer

from transformer.data.lines import open_bytes
from transformer.errors import UserError
from transformer.training.logger import log_to_console

__all__ = [
    "Device",
    "Input",
    "Models",
    "Output",
    "log_to_console",
    "prompted",
    "reading",
    "refuse_inputs",
    "writing",
]

Models = Annotated[
    list[Path],
    typer.Argument(metavar="MODEL…", help="Run directories or files; several: an ensemble."),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
Input = Annotated[Path | None, typer.Option("--input", "-i", help="Default: standard input.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Default: standard output.")]


@contextmanager
def reading(path: Path | None) -> Iterator[tuple[BinaryIO, str]]:
    """Opens a file, plain or .gz, or standard input."""
    if path is None:
        if sys.stdin is None:
            raise UserError("standard input is closed; --input FILE reads a file")
        # Not sys.stdin, and never closed: both would wait for a thread that waits for input.
        yield open(0, "rb", closefd=False), "standard input"  # noqa: SIM115
        return
    with open_bytes(path) as stream:
        yield stream, str(path)


@contextmanager
def writing(path: Path | None, *inputs: Path | None) -> Iterator[TextIO]:
    """Opens a file, plain or .gz, or standard output for UTF-8 text with plain line feeds, whatever
    the locale; refuses to overwrite one of the inputs.
    """
    if path is None:
        if sys.stdout is None:
            raise UserError("standard output is closed; --output FILE writes to a file")
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
        try:
            yield sys.stdout
            sys.stdout.flush()
        except BrokenPipeError:  # whoever read it has gone, which is no fault
            raise
        except OSError as error:
            if error.filename is not None:
                raise
            raise UserError(f"standard output: {error.strerror}") from None
        return
    refuse_inputs(path, *inputs)
    try:
        opener = gzip.open if path.suffix == ".gz" else open
        with cast(TextIO, opener(path, "wt", encoding="utf-8", newline="\n")) as stream:
            yield stream
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None


def refuse_inputs(path: Path, *inputs: Path | None) -> None:
    """Refuses to write to a file that is read as well."""
    for other in inputs:
        if other is not None and path.exists() and other.exists() and path.samefile(other):
            raise UserError(f"{path}: is an input too, writing would destroy it")


def prompted(prompt: str) -> Iterator[str]:
    """Yields the lines that a person types on the terminal, who is asked for each, to the end of
    input; with line editing and history if standard output is a terminal too.
    """
    with suppress(ImportError):  # not there on Windows
        import readline  # noqa: F401
    while True:
        try:
            if sys.stdout.isatty():
                yield input(prompt)
                continue
            sys.stderr.write(prompt)
            sys.stderr.flush()
            if not (line := sys.stdin.readline()):
                return
            yield line.removesuffix("\n")
        except EOFError:
            typer.echo(err=True)
            return
