"""The commands: each parses, calls one function, and prints. Data goes to stdout, all else to
stderr.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transformer.cli_tokenizer import tokenizer_app
from transformer.console import Input, Output, log_to_console, reading, writing
from transformer.errors import InterruptedRun, UserError

if TYPE_CHECKING:
    from transformer.decoding.search import SearchOptions
    from transformer.systems import System

app = typer.Typer(
    help="Train, evaluate and run encoder-decoder Transformers for translation.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
config_app = typer.Typer(help="Show and describe configurations.", no_args_is_help=True)
app.add_typer(tokenizer_app, name="tokenizer")
app.add_typer(config_app, name="config")

ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help="YAML file of the run.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]…", help="Settings by dotted name: training.max_steps=500."),
]
Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="Run directory, or a checkpoint file.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
BeamSize = Annotated[int | None, typer.Option(min=1, help="1 is greedy. Default: the model's own.")]
LengthPenalty = Annotated[
    float | None, typer.Option(min=0.0, help="Exponent of the length in the score.")
]


@app.command()
def train(
    config: ConfigFile,
    overrides: Overrides = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run there.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Delete the run there.")] = False,
) -> None:
    """Train what CONFIG describes."""
    if resume and overwrite:
        raise typer.BadParameter("--resume and --overwrite exclude each other")
    from transformer.config_file import load_config
    from transformer.training import run

    log_to_console()
    run.train(load_config(config, overrides or []), resume, overwrite)


@app.command()
def resume(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Directory of a run.")],
    overrides: Overrides = None,
) -> None:
    """Go on with a run from its newest checkpoint."""
    from transformer.config_file import load_config
    from transformer.training import run

    log_to_console()
    if not (run_dir / "config.yaml").is_file():
        raise UserError(f"{run_dir}: holds no config.yaml, so it is no run to go on with")
    here = f"run_dir={run_dir}"  # it may have been moved
    run.train(load_config(run_dir / "config.yaml", [here, *(overrides or [])]), resume=True)


@app.command()
def translate(
    models: Annotated[
        list[Path],
        typer.Argument(metavar="MODEL…", help="Run directories or files; several: an ensemble."),
    ],
    input: Input = None,
    output: Output = None,
    beam_size: BeamSize = None,
    n_best: Annotated[int | None, typer.Option(min=1, help="Translations of each line.")] = None,
    length_penalty: LengthPenalty = None,
    min_length: Annotated[int | None, typer.Option(min=0, help="Fewest tokens.")] = None,
    max_length: Annotated[int | None, typer.Option(min=1, help="Most tokens.")] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Print score, tab, text.")] = False,
    batch_tokens: Annotated[int | None, typer.Option(min=1, help="Source tokens at once.")] = None,
    device: Device = "auto",
) -> None:
    """Translate lines: one line out for each line in, in order, as they come.

    With --n-best each line gives that many lines, the best first, each with its score.
    """
    from transformer.data.lines import read_lines
    from transformer.decoding.translator import Translator

    log_to_console()
    translator = Translator.load(*models, device=device)
    options = _options(
        translator.options,
        beam_size=beam_size,
        n_best=n_best,
        length_penalty=length_penalty,
        min_length=min_length,
        max_length=max_length,
    )
    if batch_tokens is not None:
        translator.batch_tokens = batch_tokens
    with reading(input) as (stream, name), writing(output, input, *models) as out:
        live = not stat.S_ISREG(os.fstat(stream.fileno()).st_mode)  # a pipe or a terminal
        for hypotheses in translator.translate_stream(read_lines(stream, name), options, live):
            for found in hypotheses:
                before = f"{found.score:.4f}\t" if scores or options.n_best > 1 else ""
                out.write(f"{before}{found.text}\n")
            out.flush()
    for line in translator.summary.lines():
        typer.echo(line, err=True)


@app.command()
def score(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL…", help="As in translate.")],
    source: Annotated[Path, typer.Option(help="Source lines.")],
    target: Annotated[Path, typer.Option(help="Their translations.")],
    length_penalty: LengthPenalty = None,
    output: Output = None,
    device: Device = "auto",
) -> None:
    """Print the score of each given translation: sum of log-probabilities / length ** penalty."""
    from transformer.decoding.translator import Translator
    from transformer.test_sets import read_pairs

    log_to_console()
    translator = Translator.load(*models, device=device)
    options = _options(translator.options, length_penalty=length_penalty)
    with writing(output, source, target, *models) as out:
        for value in translator.score(*read_pairs(source, target), options):
            out.write(f"{value.score:.4f}\n")


@app.command()
def evaluate(
    models: Annotated[
        list[Path],
        typer.Argument(metavar="MODEL…", help="As in translate; or a file of translations."),
    ],
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
    beam_size: BeamSize = None,
    length_penalty: LengthPenalty = None,
    output: Annotated[Path | None, typer.Option(help="Folder for the translations.")] = None,
    device: Device = "auto",
) -> None:
    """Translate test sets and print BLEU, chrF and TER with their signatures.

    Without --source and --reference: the test sets that the model's configuration names. With
    --against, how likely the difference from another system is to be chance (paired bootstrap).
    """
    from transformer.evaluation import check_tokenizer
    from transformer.test_sets import Place, Scoring, named_test_sets, read_test_set, run_test_sets

    log_to_console()
    if source is not None and not reference:
        raise typer.BadParameter("--source needs --reference")
    if tokenize is not None:
        check_tokenizer(tokenize)
    place = Place.of(models[0], output)
    given = {"beam_size": beam_size, "length_penalty": length_penalty}
    system = _system(models, device, given)
    other = None if against is None else _system([against], device, given)
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


@app.command()
def average(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Directory of a run.")],
    last: Annotated[int, typer.Option(min=1, help="Newest checkpoints to average.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Checkpoint file to write.")],
) -> None:
    """Write the mean of the weights of a run's newest checkpoints."""
    from transformer.training.averaging import average_checkpoints

    steps = average_checkpoints(run_dir, last, output)
    typer.echo(f"{output}: mean of steps {', '.join(map(str, steps))}", err=True)


@app.command()
def inspect(config: ConfigFile, overrides: Overrides = None) -> None:
    """Say what training would do: parameters, arithmetic, vocabulary, data, updates."""
    from transformer.config_file import load_config
    from transformer.inspection import inspect_config

    log_to_console()
    for line in inspect_config(load_config(config, overrides or [])):
        typer.echo(line)


@config_app.command("show")
def config_show(config: ConfigFile, overrides: Overrides = None) -> None:
    """Print the whole configuration, defaults included, as YAML."""
    from transformer.config_file import dump_config, load_config

    typer.echo(dump_config(load_config(config, overrides or [])), nl=False)


@config_app.command("schema")
def config_schema() -> None:
    """Print the JSON schema of configurations, for editors."""
    from transformer.config_file import config_schema

    typer.echo(json.dumps(config_schema(), indent=2, ensure_ascii=False))


def _system(paths: list[Path], device: str, given: dict[str, float | None]) -> System:
    """Opens what is evaluated: a file of translations, a model or an ensemble."""
    from transformer.decoding.translator import Translator
    from transformer.systems import System, holds_translations

    if len(paths) == 1 and holds_translations(paths[0]):
        return System.of_file(paths[0])
    translator = Translator.load(*paths, device=device)
    name = " + ".join(map(str, paths))
    return System(name, translator, _options(translator.options, **given))


def _options(options: SearchOptions, **given: float | None) -> SearchOptions:
    """Returns the options with those that were given on the command line."""
    changes: dict[str, Any] = {k: v for k, v in given.items() if v is not None}
    if "beam_size" in changes and "n_best" not in changes:
        changes["n_best"] = min(options.n_best, changes["beam_size"])
    if changes.get("n_best", 0) > changes.get("beam_size", options.beam_size):
        if "beam_size" in changes:
            raise UserError(f"--n-best {given['n_best']} exceeds --beam-size {given['beam_size']}")
        changes["beam_size"] = changes["n_best"]
    try:
        return replace(options, **changes)
    except ValueError as error:
        raise UserError(str(error)) from None


def main() -> None:
    """Runs a command: exit status 0 done, 1 could not be done, 2 wrong usage, 128 + n signal n."""
    try:
        app()
    except UserError as error:
        typer.echo(f"transformer: {error}", err=True)
        sys.exit(1)
    except InterruptedRun as interrupted:
        sys.exit(128 + interrupted.signal_number)
    except BrokenPipeError:  # the reader of our output has gone, as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        typer.echo(f"transformer: {where}{error.strerror or error}", err=True)
        sys.exit(1)
