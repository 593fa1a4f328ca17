"""The commands that say how good translations are: score, evaluate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from transformer.cli_options import configure_search, settings_of
from transformer.config import DecodingConfig
from transformer.console import Device, Models, Output, log_to_console, writing

if TYPE_CHECKING:
    from transformer.systems import System

scores_app = typer.Typer()


@scores_app.command()
@settings_of(
    DecodingConfig,
    "search",
    "Score; by default as the model's run says",
    only=["length_penalty", "length_normalization", "coverage_penalty", "precision"],
)
def score(
    models: Models,
    source: Annotated[Path, typer.Option(help="Source lines.")],
    target: Annotated[Path, typer.Option(help="Their translations.")],
    search: dict[str, Any],
    output: Output = None,
    format: Annotated[
        Literal["text", "jsonl"],
        typer.Option(help="jsonl: objects of JSON, with tokens and their log-probabilities."),
    ] = "text",
    device: Device = "auto",
) -> None:
    """Print the score of each given translation, by the formula that search ranks by."""
    from transformer.decoding.translator import Translator
    from transformer.test_sets import read_pairs

    log_to_console()
    translator = Translator.load(*models, device=device, precision=search.pop("precision", None))
    options = configure_search(translator, search)
    with writing(output, source, target, *models) as out:
        sources, targets = read_pairs(source, target)
        for line, found in zip(targets, translator.score(sources, targets, options), strict=True):
            if format == "text":
                out.write(f"{found.score:.4f}\n")
                continue
            target_tokenizer = translator.tokenizers.target
            (ids,) = target_tokenizer.encode([line.strip()]) if found.log_probs else ((),)
            value = {
                "score": found.score,
                "tokens": target_tokenizer.pieces(ids),
                "log_probs": found.log_probs,
            }
            out.write(json.dumps(value, ensure_ascii=False) + "\n")


@scores_app.command()
@settings_of(DecodingConfig, "search", "Search; by default as the model's run says")
def evaluate(
    models: Annotated[
        list[Path],
        typer.Argument(metavar="MODEL…", help="As in translate; or a file of translations."),
    ],
    search: dict[str, Any],
    against: Annotated[
        Path | None, typer.Option(help="Another model or file of translations to compare with.")
    ] = None,
    source: Annotated[Path | None, typer.Option(help="Source lines.")] = None,
    reference: Annotated[
        list[Path] | None, typer.Option(help="Their reference translations; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    tokenize: Annotated[
        str | None, typer.Option(help="sacreBLEU's tokenizer; none for tokenised text.")
    ] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case.")] = False,
    output: Annotated[Path | None, typer.Option(help="Folder for the translations.")] = None,
    device: Device = "auto",
) -> None:
    """Translate test sets and print BLEU, chrF and TER with their signatures.

    Without --source and --reference: the test sets that the model's configuration names. With
    --against, how likely the difference from another system is to be chance (paired bootstrap).
    """
    from transformer.evaluation import check_tokenizer
    from transformer.test_sets import (
        Place,
        Scoring,
        named_test_sets,
        read_test_set,
        run_test_sets,
    )

    log_to_console()
    if source is not None and not reference:
        raise typer.BadParameter("--source needs --reference")
    if tokenize is not None:
        check_tokenizer(tokenize)
    place = Place.of(models[0], output)
    system = _system(models, device, search)
    other = None if against is None else _system([against], device, search)
    trained = system.translator or (other and other.translator)
    if reference and source is None and trained:
        raise typer.BadParameter("--reference needs --source, which the model translates")
    if reference:
        test_sets = [read_test_set(source, reference)]
    elif trained:
        test_sets = named_test_sets(trained.config)
    else:
        raise typer.BadParameter("files of translations need --reference")
    language = trained.config.data.target_language if trained else ""
    scoring = Scoring(language, tokenize, lowercase)
    results = run_test_sets(system, test_sets, scoring, place, other)
    if as_json:
        typer.echo(json.dumps({r.name: r.to_json() for r in results}, indent=2, ensure_ascii=False))
    else:
        for result in results:
            typer.echo("\n".join(result.lines()))


def _system(paths: list[Path], device: str, search: dict[str, Any]) -> System:
    """Opens what is evaluated: a file of translations, a model or an ensemble."""
    from transformer.decoding.translator import Translator
    from transformer.systems import System, holds_translations

    if len(paths) == 1 and holds_translations(paths[0]):
        return System.of_file(paths[0])
    given = dict(search)
    translator = Translator.load(*paths, device=device, precision=given.pop("precision", None))
    name = " + ".join(map(str, paths))
    return System(name, translator, configure_search(translator, given))
