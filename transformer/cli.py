"""The commands: each parses, calls one function, and prints. Data goes to stdout, all else to
stderr.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from transformer.cli_attention import attention_app
from transformer.cli_scores import scores_app
from transformer.cli_shortlist import shortlist_app
from transformer.cli_tokenizer import tokenizer_app
from transformer.cli_translate import translate_app
from transformer.console import log_to_console
from transformer.errors import InterruptedRun, UserError, sentence_of

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
config_app = typer.Typer(help="Show and describe configurations.", no_args_is_help=True)
app.add_typer(translate_app)
app.add_typer(scores_app)
app.add_typer(attention_app)
app.add_typer(shortlist_app)
app.add_typer(tokenizer_app, name="tokenizer")
app.add_typer(config_app, name="config")

ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help="YAML file of the run.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]…",
        help="Settings by dotted name: training.max_steps=500. `config show CONFIG` prints all.",
    ),
]


def _print_version(asked: bool) -> None:
    if asked:
        from transformer.training.environment import code_version

        typer.echo(code_version())
        raise typer.Exit


@app.callback()
def commands(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version, and exit."
        ),
    ] = False,
) -> None:
    """Train, evaluate and run encoder-decoder Transformers for translation."""


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
def average(
    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="MODEL…",
            help="A run directory; or several, or files, of which each gives its best.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Checkpoint file to write.")],
    last: Annotated[
        int | None, typer.Option(min=1, help="Newest checkpoints to average, of one run.")
    ] = None,
) -> None:
    """Write the mean of the weights of a run's newest checkpoints, or of several models."""
    from transformer.training.averaging import average_checkpoints, average_models

    if (last is None) == (len(models) == 1):
        raise typer.BadParameter("goes with one run, and one run needs it", param_hint="--last")
    if last is None:
        steps = average_models(models, output)
    else:
        steps = average_checkpoints(models[0], last, output)
    typer.echo(f"{output}: mean of steps {', '.join(map(str, steps))}", err=True)


@app.command()
def inspect(
    config: ConfigFile,
    overrides: Overrides = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what training would do, and how long it takes here: it is tried for some seconds."""
    from transformer.config_file import load_config
    from transformer.inspection import inspect_config

    log_to_console()
    found = inspect_config(load_config(config, overrides or []))
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2, ensure_ascii=False))
    else:
        typer.echo("\n".join(found.lines()))


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
        typer.echo(f"transformer: {sentence_of(error)}", err=True)
        sys.exit(1)
