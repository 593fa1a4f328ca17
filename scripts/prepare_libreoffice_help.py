"""Makes a parallel corpus of LibreOffice's help, English and one language it is translated to.

    python scripts/prepare_libreoffice_help.py --from FOLDER --language de --output data/help_en_de

FOLDER holds the help as pages of HTML, in en-US/text and de/text: /usr/share/libreoffice/help,
where the packages libreoffice-help-en-us and libreoffice-help-de are installed. A paragraph or
heading and its translation have the same id on the same page. What is shorter than three words,
was left in English, or was there before is left out. Whole pages are kept for validation and
test, 60 and 70 of them. The help may be used and passed on under the Mozilla Public License 2.0.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

from prepare_multi30k import write

from transformer.errors import UserError

ENGLISH = "en-US"
TEXT_TAGS = {"p", "h1", "h2", "h3", "h4", "h5", "h6"}
VALIDATION_PAGES, TEST_PAGES = 60, 70
LEAST_WORDS = 3


class Paragraphs(HTMLParser):
    """Collects the texts of a page.

    Attributes:
        texts: id -> text of the first paragraph or heading that has it, on one line.
    """

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: dict[str, str] = {}
        self._tag, self._id = "", ""
        self._parts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in TEXT_TAGS:
            self._tag, self._id, self._parts = tag, dict(attrs).get("id") or "", []
        elif tag == "br":
            self._parts.append(" ")

    def handle_data(self, data: str) -> None:
        self._parts.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == self._tag:
            text = " ".join("".join(self._parts).split())
            if self._id and text:
                self.texts.setdefault(self._id, text)
            self._tag = ""


def read_page(path: Path) -> dict[str, str]:
    """Returns the texts of a page by id.

    Raises:
        UserError: it cannot be read.
    """
    page = Paragraphs()
    try:
        page.feed(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None
    return page.texts


def read_pairs(source: Path, language: str) -> dict[str, list[tuple[str, str]]]:
    """Returns the pairs of each page that has some, English first.

    Raises:
        UserError: a folder is missing, or they have no pairs.
    """
    folders = [source / name / "text" for name in (ENGLISH, language)]
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder}: no such folder; it holds the help of one language")
    pages = {}
    known = set()
    for path in sorted(folders[0].rglob("*.html")):
        name = path.relative_to(folders[0])
        if not (folders[1] / name).is_file():
            continue
        translations = read_page(folders[1] / name)
        pairs = []
        for identity, text in read_page(path).items():
            translation = translations.get(identity, text)
            if translation == text or text in known or len(text.split()) < LEAST_WORDS:
                continue
            known.add(text)
            pairs.append((text, translation))
        if pairs:
            pages[name.as_posix()] = pairs
    least = VALIDATION_PAGES + TEST_PAGES + 1
    if len(pages) < least:
        raise UserError(
            f"{source}: {len(pages):,} pages in {ENGLISH} and {language}; {least} are the least"
        )
    return pages


def split(pages: dict[str, list[tuple[str, str]]]) -> dict[str, list[tuple[str, str]]]:
    """Shares out whole pages, always in the same way."""
    names = sorted(pages)
    random.Random(1).shuffle(names)
    ends = (0, VALIDATION_PAGES, VALIDATION_PAGES + TEST_PAGES, len(names))
    shares = zip(("valid", "test", "train"), ends, ends[1:], strict=False)
    return {
        share: [pair for name in sorted(names[first:end]) for pair in pages[name]]
        for share, first, end in shares
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(description="Prepare LibreOffice's help as parallel text.")
    parser.add_argument("--from", dest="source", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--language", required=True, help="as its folder is called: de, zh-CN, …")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER")
    chosen = parser.parse_args(arguments)
    try:
        shares = split(read_pairs(chosen.source, chosen.language))
        texts = {
            f"{share}.{language}": [pair[side] for pair in pairs]
            for share, pairs in shares.items()
            for side, language in enumerate(("en", chosen.language))
        }
        write(texts, chosen.output)
    except UserError as error:
        print(f"prepare_libreoffice_help: {error}", file=sys.stderr)
        return 1
    counts = ", ".join(f"{share} {len(pairs):,}" for share, pairs in shares.items())
    print(f"{chosen.output}: {counts} pairs, en-{chosen.language}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
