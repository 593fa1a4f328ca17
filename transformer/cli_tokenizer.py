"""The commands of `transformer tokenizer`."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer.config import TokenizerConfig
from transformer.console import Input, Output, log_to_console, reading, writing
from transformer.data.lines import open_lines, read_lines
from transformer.errors import UserError

if TYPE_CHECKING:
    from transformer.data.tokenizer import Tokenizer

tokenizer_app = typer.Typer(help="Train and use SentencePiece vocabularies.", no_args_is_help=True)

Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="SentencePiece model, run or checkpoint.")
]
Target = Annotated[bool, typer.Option("--target", help="The target vocabulary of a run.")]


@tokenizer_app.command("train")
def tokenizer_train(
    files: Annotated[list[Path], typer.Argument(help="Text files, plain or .gz.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="SentencePiece model to write.")],
    vocab_size: Annotated[int, typer.Option(min=1, help="Pieces.")] = 8000,
    kind: Annotated[str, typer.Option(help="unigram or bpe.")] = "unigram",
) -> None:
    """Train a vocabulary on text files."""
    from pydantic import ValidationError

    from transformer.data.tokenizer_training import train_tokenizer

    log_to_console()
    try:
        config = TokenizerConfig.model_validate({"kind": kind, "vocab_size": vocab_size})
    except ValidationError as error:
        first = error.errors()[0]
        option = str(first["loc"][0]).replace("_", "-")
        reason = first["msg"].removeprefix("Input ")
        raise UserError(f"--{option} {first['input']}: {reason}") from None
    lines = chain.from_iterable(map(open_lines, files))
    tokenizer = train_tokenizer(lines, config, name=", ".join(map(str, files)))
    output.write_bytes(tokenizer.model)


@tokenizer_app.command("encode")
def tokenizer_encode(
    model: Model,
    input: Input = None,
    output: Output = None,
    pieces: Annotated[bool, typer.Option("--pieces", help="Print pieces, not ids.")] = False,
    target: Target = False,
) -> None:
    """Print the ids of each line, or its pieces."""
    tokenizer = _load_tokenizer(model, target)
    with reading(input) as (stream, name), writing(output, input, model) as out:
        for line in read_lines(stream, name):
            ids = tokenizer.encode([line])[0][:-1]
            out.write(" ".join(tokenizer.pieces(ids) if pieces else map(str, ids)) + "\n")


@tokenizer_app.command("decode")
def tokenizer_decode(
    model: Model,
    input: Input = None,
    output: Output = None,
    target: Target = False,
) -> None:
    """Print the text of each line of ids."""
    tokenizer = _load_tokenizer(model, target)
    with reading(input) as (stream, name), writing(output, input, model) as out:
        for number, line in enumerate(read_lines(stream, name), 1):
            words = line.split()
            if bad := [word for word in words if not word.isdecimal()]:
                raise UserError(f"{name}:{number}: {bad[0]!r} is no id; a line holds numbers")
            try:
                out.write(tokenizer.decode([[int(word) for word in words]])[0] + "\n")
            except ValueError as error:
                raise UserError(f"{name}:{number}: {error}") from None


def _load_tokenizer(path: Path, target: bool) -> Tokenizer:
    from transformer.data.tokenizer import Tokenizer
    from transformer.training.checkpoint import find_checkpoint, read_checkpoint

    if path.is_file() and path.suffix != ".safetensors":
        try:
            return Tokenizer(path.read_bytes())
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
    tokenizers = read_checkpoint(find_checkpoint(path)).tokenizers
    return tokenizers.target if target else tokenizers.source
