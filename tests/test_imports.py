"""The structure: imports go one way, and nothing grows too large to read."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# A module imports only from rows above its own.
ROWS = [
    "config_types",
    "config_data config_training",
    """
    config errors ids precision model.positions model.dropout model.norms model.packing
    training.event_file allocator training.muon training.stopping
    decoding.arrivals decoding.formula decoding.results decoding.sentences decoding.wording
    """,
    """
    strict_yaml data.lines data.cache data.segmentation data.batching data.parallel
    data.duplicates model.attention training.distributed training.logger evaluation
    decoding.ensemble decoding.options decoding.beams decoding.request
    decoding.sampling_options decoding.processes
    """,
    """
    config_file console model.layers data.tokenizer data.sources decoding.minimum_bayes_risk
    decoding.constraints
    """,
    """
    model.transformer data.reading data.encoding data.tokenizer_training training.optimizer
    training.environment decoding.parts decoding.rules
    """,
    "training.sharding",
    """
    data.corpus training.loss training.checkpoint model.attention_maps
    decoding.search decoding.sampling decoding.scoring decoding.formats
    export.ctranslate2 decoding.quantization decoding.part_search
    """,
    "decoding.shortlist",
    """
    decoding.lexicon decoding.batch_search decoding.loading data.updates training.regularization
    decoding.alignment decoding.ctranslate2_engine
    """,
    "decoding.translator",
    """
    training.report training.validation systems decoding.attention_record
    cli_options
    """,
    "training.state training.max_tokens test_sets decoding.attention_picture",
    "training.averaging training.saving training.resuming training.directory",
    "training.selection",
    "training.trainer",
    """
    training.run training.trial cli_tokenizer cli_translate cli_scores cli_attention cli_shortlist
    """,
    "inspection",
    "cli",
]
ROW_OF = {f"transformer.{name}": row for row, names in enumerate(ROWS) for name in names.split()}


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


SOURCES = sorted((ROOT / "transformer").rglob("*.py"))
# A package's own file only names what is in it, lazily; __main__ calls cli.
MODULES = {
    name_of(path): path for path in SOURCES if path.name not in ("__init__.py", "__main__.py")
}


def imported(tree: ast.Module) -> Iterator[str]:
    """Yields every module of the package that is imported, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            modules = [name if name in MODULES else str(node.module) for name in names]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            continue
        yield from (name for name in modules if name.split(".")[0] == "transformer")


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_from_rows_above_its_own(module: str) -> None:
    assert module in ROW_OF, f"{module} stands in no row"
    for other in imported(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        assert other in ROW_OF, f"{module} imports {other}, which stands in no row"
        assert ROW_OF[other] < ROW_OF[module], f"{module} imports {other}"


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_functions_and_parameters_stay_small(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 350
    for function in functions(path):
        assert function.end_lineno - function.lineno + 1 <= 60, f"{function.name} is too long"
        arguments = function.args
        names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        taken = [name for name in names if name not in ("self", "cls")]
        is_command = any(".command(" in ast.unparse(x) for x in function.decorator_list)
        most = 12 if is_command else 7  # a command's parameters are what its user can say
        assert len(taken) <= most, f"{function.name} takes {len(taken)} parameters"


def test_importing_the_package_loads_no_heavy_library() -> None:
    code = "import sys, transformer; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.split()
    assert {"transformer", "sys"} <= set(loaded)
    assert not {"torch", "datasets", "sacrebleu", "numpy", "pydantic"} & set(loaded)


def test_every_public_name_is_there() -> None:
    import transformer

    for name in transformer.__all__:
        assert getattr(transformer, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Transfromer'"):
        transformer.Transfromer  # noqa: B018
