"""What is evaluated: a model that translates, or a file of translations made by whatever means."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from transformer.data.lines import open_lines
from transformer.decoding.options import SearchOptions
from transformer.decoding.results import Summary
from transformer.decoding.translator import Translator
from transformer.errors import UserError

log = logging.getLogger("transformer")


@dataclass(frozen=True)
class System:
    """A model with its search, or the translations that a file holds.

    Attributes:
        name: what results call it.
        translator: the model; None for a file.
        options: of its search; None for a file.
        lines: the file's translations; None for a model.
    """

    name: str
    translator: Translator | None = None
    options: SearchOptions | None = None
    lines: list[str] | None = None

    @classmethod
    def of_file(cls, path: Path) -> System:
        """Reads a file of translations, one a line."""
        return cls(str(path), lines=list(open_lines(path)))

    def translate(
        self, sources: Sequence[str], num_lines: int, name: str
    ) -> tuple[list[str], Summary | None]:
        """Returns a translation of each line of the test set of that name, and what a model says of
        its work.

        Raises:
            UserError: the file holds more or fewer lines.
        """
        if self.translator is not None:
            naming = replace(self.translator, warn=_naming(name, self.translator.warn))
            outputs = naming.translate(sources, self.options)
            for line in naming.summary.lines()[1:]:  # the first is about time, as the result is
                log.warning("%s: %s", name, line)
            return outputs, naming.summary
        assert self.lines is not None
        if len(self.lines) != num_lines:
            raise UserError(f"{self.name}: has {len(self.lines)} lines, {name} has {num_lines}")
        return self.lines, None


def holds_translations(path: Path) -> bool:
    """Says whether a path is a file of text: no directory, and not in the form of a checkpoint."""
    if not path.is_file() or path.suffix == ".safetensors":
        return False
    with path.open("rb") as file:
        start = file.read(8)
    # A safetensors file begins with the length of its header, in which no text's bytes make sense.
    return int.from_bytes(start, "little") > path.stat().st_size or len(start) < 8


def _naming(name: str, warn: Callable[[str], object] | None) -> Callable[[str], object] | None:
    """Returns what passes on warnings with the name of the test set that they are about."""
    return None if warn is None else lambda sentence: warn(f"{name}: {sentence}")
