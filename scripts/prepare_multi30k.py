"""Puts Multi30k (Elliott et al. 2016), English-German, into data/multi30k as six text files.

    python scripts/prepare_multi30k.py                  # from the Hugging Face hub
    python scripts/prepare_multi30k.py --from FOLDER    # from a local copy

FOLDER holds {train,val,test_2016_flickr}.{en,de}, plain or .gz, or is a copy of the hub's data set.
The text is taken as it is: the authors' lower-cased, tokenised files are prepared with
`--from FOLDER --output data/multi30k_tok` for configs/multi30k_en_de_best.yaml.
The captions come from Flickr30k and may be used for non-commercial research and education only.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from transformer.data.lines import open_lines
from transformer.errors import UserError

HUB = "bentrevett/multi30k"
SPLITS = {
    "train": ("train", 29_000),
    "val": ("validation", 1_014),
    "test_2016_flickr": ("test", 1_000),
}
"""File name -> split on the hub, number of pairs."""
LANGUAGES = ("en", "de")
NAMES = tuple(f"{split}.{language}" for split in SPLITS for language in LANGUAGES)
LICENCE = "Multi30k is for non-commercial research and education only (captions of Flickr30k)."


def prepare(source: Path | None, output: Path) -> None:
    """Reads Multi30k from a folder, or from the hub if there is none, and writes it to `output`.

    Raises:
        UserError: the data cannot be had, is not what it should be, or cannot be written.
    """
    if source is None:
        texts = read_hub(HUB)
    elif not source.is_dir():
        raise UserError(f"{source}: no such folder")
    else:
        files = find_files(source)
        if files:
            texts = {name: list(open_lines(path)) for name, path in files.items()}
        else:
            texts = read_hub(str(source))
    check(texts, str(source or HUB))
    write(texts, output)


def find_files(folder: Path) -> dict[str, Path]:
    """Returns the six text files of a folder by name; nothing if it holds none of them.

    Raises:
        UserError: some are there and some are not.
    """
    files = {}
    for name in NAMES:
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                files[name] = path
                break
    missing = [name for name in NAMES if name not in files]
    if files and missing:
        raise UserError(f"{folder}: {missing[0]} is missing (or {missing[0]}.gz)")
    return files


def read_hub(name: str) -> dict[str, list[str]]:
    """Reads a data set of the hub, or a folder laid out like one, with columns en and de.

    Raises:
        UserError: it cannot be loaded, or a split or column is not there.
    """
    import datasets

    datasets.disable_progress_bars()
    try:
        found = datasets.load_dataset(name)
    except Exception as error:  # of many kinds: network, cache, format
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"{name}: cannot be loaded ({reason}); --from FOLDER takes a local copy with files"
            f" such as {NAMES[0]}"
        ) from None
    texts = {}
    for file, (split, _) in SPLITS.items():
        for language in LANGUAGES:
            if split not in found or language not in found[split].column_names:
                raise UserError(f"{name}: split {split} with a column {language} is missing")
            texts[f"{file}.{language}"] = list(found[split][language])
    return texts


def check(texts: dict[str, list[str]], source: str) -> None:
    """Refuses data that is not Multi30k line by line.

    Raises:
        UserError: a number of lines is not that of Multi30k, or a caption is none or holds a line
        break.
    """
    for name, lines in texts.items():
        expected = SPLITS[name.rsplit(".", 1)[0]][1]
        if len(lines) != expected:
            raise UserError(
                f"{source}: {name} has {len(lines):,} lines; Multi30k has {expected:,} there"
            )
        for i, line in enumerate(lines):
            if not isinstance(line, str) or not line.strip() or "\n" in line:
                raise UserError(f"{source}: {name}: caption {i + 1} is no line of text: {line!r}")


def write(texts: dict[str, list[str]], output: Path) -> None:
    """Writes all files aside, and then renames them, so that no run finds half of them.

    Raises:
        UserError: the folder cannot be written.
    """
    partial = {name: output / f"{name}.partial" for name in texts}
    try:
        output.mkdir(parents=True, exist_ok=True)
        for name, lines in texts.items():
            partial[name].write_text("".join(f"{line}\n" for line in lines), "utf-8", newline="\n")
        for name, path in partial.items():
            path.replace(output / name)
    except OSError as error:
        raise UserError(f"{output}: cannot be written: {error.strerror}") from None
    finally:
        if output.is_dir():
            for path in partial.values():
                path.unlink(missing_ok=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(description="Prepare Multi30k, English-German.")
    parser.add_argument("--from", dest="source", type=Path, metavar="FOLDER", help="a local copy")
    parser.add_argument("--output", type=Path, default=Path("data/multi30k"), help="%(default)s")
    chosen = parser.parse_args(arguments)
    try:
        prepare(chosen.source, chosen.output)
    except UserError as error:
        print(f"prepare_multi30k: {error}", file=sys.stderr)
        return 1
    counts = ", ".join(f"{name} {count:,}" for name, (_, count) in SPLITS.items())
    print(f"{chosen.output}: {counts} pairs, English-German\n{LICENCE}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
