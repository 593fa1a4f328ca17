"""A sweep's file: recipes and seeds, and the runs that they ask for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from transformer.config import Config, Section
from transformer.config_file import load_config
from transformer.config_types import Name, Seed, Text
from transformer.errors import UserError
from transformer.strict_yaml import Place, parse_yaml

NOT_OF_TRAINING = (
    "run_dir",
    "data.test",
    "data.cache_dir",
    "data.num_threads",
    "decoding",
    "validation.samples",
    "training.device",
    "training.log_every",
)
"""Settings that a recipe may change although its runs are there: the weights do not know them."""


class SweepFile(Section):
    """What a sweep's file says."""

    config: Text
    """Configuration that all runs share."""
    folder: Text
    """Home of the runs, RECIPE/seed-N, and of the table."""
    seeds: list[Seed] = Field(min_length=1)
    """Seeds that each recipe is trained with."""
    settings: dict[str, Any] = Field(default={})
    """Settings of all recipes by dotted name."""
    recipes: dict[Name, dict[str, Any]] = Field(min_length=1)
    """Settings of each recipe by dotted name, besides `runs_of`, a recipe whose runs are evaluated
    with other settings of `decoding`, and `average`, the number of newest checkpoints whose mean is
    evaluated. The first recipe is the baseline."""
    tokenize: Text | None = None
    """sacreBLEU's tokenizer; `none` for tokenised text."""
    lowercase: bool = False
    """Ignores case."""


@dataclass(frozen=True)
class Job:
    """One recipe with one seed.

    Attributes:
        recipe: its name.
        seed: of the run.
        config: of the run, with the recipe's settings of decoding.
        average: newest checkpoints to average; 0 takes the best one.
        home: folder of the results.
        trains: whether the run is the recipe's own.
    """

    recipe: str
    seed: int
    config: Config
    average: int
    home: Path
    trains: bool

    @property
    def name(self) -> str:
        """Recipe and seed."""
        return f"{self.recipe}/seed-{self.seed}"

    @property
    def run_dir(self) -> Path:
        """Where the run is, which may be another recipe's."""
        return Path(self.config.run_dir)


def read_sweep(path: Path) -> SweepFile:
    """Reads a sweep's file.

    Raises:
        UserError: it cannot be read, or is not such a file.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None
    try:
        return SweepFile.model_validate(parse_yaml(text, Place(str(path), 1)).plain())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UserError(f"{path}: {where or 'the file'}: {first['msg']}") from None


def plan_jobs(sweep: SweepFile) -> list[Job]:
    """Returns the jobs, recipe by recipe.

    Raises:
        UserError: a recipe is not what it should be, or its runs were made with other settings.
    """
    jobs = []
    for recipe in sweep.recipes:
        for seed in sweep.seeds:
            try:
                job = _job(sweep, recipe, seed)
                _refuse_changed(job)
            except UserError as error:
                raise UserError(f"recipe {recipe}: {error}") from None
            jobs.append(job)
    return jobs


def _job(sweep: SweepFile, recipe: str, seed: int) -> Job:
    settings = dict(sweep.recipes[recipe])
    runs_of, average = settings.pop("runs_of", None), settings.pop("average", 0)
    for key in ("seed", "run_dir"):
        if key in settings or key in sweep.settings:
            raise UserError(f"{key}: the sweep sets it itself; leave it out")
    if type(average) is not int or average < 0:
        raise UserError(f"average is {average!r}; needs a number of checkpoints")
    base: dict[str, Any] = dict(sweep.settings)
    if runs_of is not None:
        others = [name for name, other in sweep.recipes.items() if "runs_of" not in other]
        if runs_of not in others:
            raise UserError(f"runs_of is {runs_of!r}; needs one of {', '.join(others)}")
        if wrong := [key for key in settings if not key.startswith("decoding.")]:
            raise UserError(f"{wrong[0]}: beside runs_of there are settings of decoding alone")
        base |= {k: v for k, v in sweep.recipes[runs_of].items() if k != "average"}
    folder = Path(sweep.folder)
    run_dir = folder / (runs_of or recipe) / f"seed-{seed}"
    told = {**base, **settings, "seed": seed, "run_dir": str(run_dir)}
    config = load_config(sweep.config, [_override(k, v, sweep, seed) for k, v in told.items()])
    if not config.data.validation:
        raise UserError("data.validation: is what recipes are compared on; name some")
    return Job(recipe, seed, config, average, folder / recipe / f"seed-{seed}", runs_of is None)


def _override(key: str, value: object, sweep: SweepFile, seed: int) -> str:
    """Writes a setting as the command line does; `{seed}` and `{folder}` stand for themselves."""
    if isinstance(value, str):
        return f"{key}={value.replace('{seed}', str(seed)).replace('{folder}', sweep.folder)}"
    return f"{key}={json.dumps(value)}"


def _refuse_changed(job: Job) -> None:
    """Refuses runs whose weights were not made with the recipe as it is now."""
    path = job.run_dir / "config.yaml"
    if not path.is_file():
        return
    before, now = (
        flat(config.model_dump(mode="json")) for config in (load_config(path), job.config)
    )
    for key in sorted(before.keys() | now.keys()):
        known = any(key == name or key.startswith(f"{name}.") for name in NOT_OF_TRAINING)
        if not known and before.get(key) != now.get(key):
            raise UserError(
                f"{job.run_dir} was trained with {key} {before.get(key)!r}, not {now.get(key)!r};"
                " give the recipe another name, or delete that folder"
            )


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns nested settings by dotted name."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found
