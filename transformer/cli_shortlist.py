"""The command `transformer shortlist`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer.console import log_to_console, refuse_inputs
from transformer.errors import UserError

if TYPE_CHECKING:
    from transformer.config import Config

shortlist_app = typer.Typer()


@shortlist_app.command()
def shortlist(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Run directory or checkpoint.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")],
    source: Annotated[Path | None, typer.Option(help="Source lines to learn from.")] = None,
    target: Annotated[Path | None, typer.Option(help="Their translations.")] = None,
    per_token: Annotated[int, typer.Option(min=1, help="Tokens for each source token.")] = 50,
    always: Annotated[int, typer.Option(min=0, help="Frequent tokens for any source.")] = 100,
) -> None:
    """Learn which words translate which, for `translate --shortlist`: faster, nearly as good.

    Without --source and --target it learns from the training data of the run.
    """
    from transformer.decoding.lexicon import learn_shortlist
    from transformer.test_sets import read_pairs
    from transformer.training.checkpoint import load_model

    log_to_console()
    if (source is None) != (target is None):
        raise typer.BadParameter("--source and --target go together")
    refuse_inputs(output, model, source, target)
    loaded = load_model(model)
    if source is not None and target is not None:
        pairs: Iterator[tuple[str, str]] = zip(*read_pairs(source, target), strict=True)
    else:
        pairs = _training_pairs(loaded.config)
    found = learn_shortlist(pairs, loaded.tokenizers, per_token, always)
    found.save(output, loaded.tokenizers)
    num_words = len(found.words) / (len(found.starts) - 1)
    typer.echo(
        f"{output}: {num_words:.1f} tokens for a source token, {len(found.always)} always", err=True
    )


def _training_pairs(config: Config) -> Iterator[tuple[str, str]]:
    """Yields pairs of the training data, from all over it."""
    import numpy as np

    from transformer.data.corpus import load_corpora

    try:
        pairs = load_corpora(config.data.train, config.data)
    except UserError as error:
        raise UserError(f"{error}; --source and --target name other pairs") from None
    for i in np.random.default_rng(1).permutation(len(pairs)).tolist():
        pair = pairs[i]
        yield pair["src"], pair["tgt"]
