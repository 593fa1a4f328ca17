"""Options of commands that are settings: name, type, meaning and least value stand in their section
alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import typer
from annotated_types import Ge
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from transformer.allocator import keep_freed_memory
from transformer.config import Section
from transformer.decoding.sampling_options import SamplingOptions
from transformer.errors import UserError

if TYPE_CHECKING:
    from transformer.decoding.options import SearchOptions
    from transformer.decoding.translator import Translator


def settings_of(
    section: type[Section], name: str, panel: str, only: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Returns a decorator that gives a command an option for each setting of a section.

    Args:
        section: whose settings become options: `beam_size` becomes `--beam-size`.
        name: the parameter of the command that takes those that were given, as a dict.
        panel: headline of the options in the help.
        only: settings that become options; all if there are none.
    """
    fields = {key: x for key, x in section.model_fields.items() if not only or key in only}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters
        kept = [parameter for parameter in own.values() if parameter.name != name]
        parameters = [*kept, *(_parameter(*field, panel) for field in fields.items())]

        @wraps(command)
        def run(**values: Any) -> None:
            given = {key: values.pop(key) for key in fields}
            values[name] = {key: value for key, value in given.items() if value is not None}
            command(**values)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def _parameter(key: str, field: FieldInfo, panel: str) -> inspect.Parameter:
    """Returns the option of one setting; None stands for one that was not given."""
    least: Any = next((x.ge for x in field.metadata if isinstance(x, Ge)), None)
    kind = field.annotation
    for part in get_args(kind):  # of `Text | None`
        if get_origin(part) is Annotated:
            kind = get_args(part)[0]
    flag = f"--{key.replace('_', '-')}"
    names = (f"{flag}/--no-{flag[2:]}",) if kind is bool else (flag,)
    option = typer.Option(*names, min=least, help=field.description, rich_help_panel=panel)
    return inspect.Parameter(
        key,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, option],  # type: ignore[operator]
    )


def configure_search(translator: Translator, given: dict[str, Any]) -> SearchOptions:
    """Returns the translator's options with those that were given on the command line, and makes it
    ready: it is told how many tokens to translate at once, and its memory is kept.

    Raises:
        UserError: two of them contradict each other, or one is out of range.
    """
    changes, options = dict(given), translator.options
    configured = translator.config.decoding
    num = changes.pop("processes", configured.processes)
    if shortlist := changes.pop("shortlist", configured.shortlist):
        from transformer.decoding.shortlist import Shortlist

        translator.shortlist = Shortlist.load(shortlist, translator.tokenizers, translator.device)
    if translator.device.type == "cpu":
        from transformer.decoding.processes import num_processes

        keep_freed_memory()
        translator.processes = num_processes(num)
    translator.batch_tokens = changes.pop("batch_tokens", translator.batch_tokens)
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


def sampling_options(given: dict[str, Any]) -> SamplingOptions | None:
    """Returns how to sample, None if that was not asked for.

    Raises:
        UserError: a value is out of range.
    """
    if not given:
        return None
    if "sample" not in given:
        raise typer.BadParameter(f"--{next(iter(given)).replace('_', '-')} goes with --sample")
    try:
        return SamplingOptions(**given)
    except ValidationError as error:
        first = error.errors()[0]
        option = str(first["loc"][0]).replace("_", "-")
        raise UserError(f"--{option} {first['input']}: {first['msg']}") from None
