"""Paragraphs of the same id on the same page become pairs; whole pages are held out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def main(script: Callable[[str], Any]) -> Callable[[list[str]], int]:
    return script("prepare_libreoffice_help").main


def write_page(folder: Path, language: str, name: str, body: str) -> None:
    path = folder / language / "text" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"<!DOCTYPE html><html><body>{body}</body></html>", encoding="utf-8")


def paragraph(identity: str, text: str, tag: str = "p") -> str:
    return f'<{tag} id="{identity}" class="x" dir="auto">{text}</{tag}>\n'


def test_pairs_are_what_the_pages_say(
    main: Callable, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    help_folder, output = tmp_path / "help", tmp_path / "out"
    for i in range(131):
        for language, word in (("en-US", "Sheet"), ("de", "Tabelle")):
            write_page(help_folder, language, f"a/{i:03}.html", paragraph("x", f"{word} no {i} ."))
    english = (
        '<p id="none_in_de" class="x">Only in English here.</p>'
        + paragraph("h", "Insert <b>a</b>&nbsp;table", "h2")
        + paragraph("p", 'Click <a href="x.html">OK</a>,<br/>\n then &lt;b&gt; "Close".')
        + paragraph("p", "The id is there again.")
        + paragraph("short", "Two words")
        + paragraph("same", "Not translated at all")
        + paragraph("again", "Sheet no 7 .")
        + "<p>No id has this text.</p><pre>x = 1 + 2</pre>"
    )
    german = (
        paragraph("h", "Tabelle einfügen", "h2")
        + paragraph("p", "Klicken Sie auf OK, dann auf <b>„Schließen“</b>.")
        + paragraph("short", "Zwei Wörter")
        + paragraph("same", "Not translated at all")
        + paragraph("again", "Ein weiteres Mal")
    )
    write_page(help_folder, "en-US", "z.html", english)
    write_page(help_folder, "de", "z.html", german)
    write_page(help_folder, "en-US", "only_english.html", paragraph("q", "One two three"))
    options = ["--from", str(help_folder), "--language", "de", "--output", str(output)]
    assert main(options) == 0
    read = {path.name: path.read_text("utf-8").split("\n")[:-1] for path in output.iterdir()}
    assert len(read["valid.en"]) in (60, 61)
    assert len(read["test.en"]) in (70, 71)
    pairs = [
        pair
        for share in ("train", "valid", "test")
        for pair in zip(read[f"{share}.en"], read[f"{share}.de"], strict=True)
    ]
    plain = [(f"Sheet no {i} .", f"Tabelle no {i} .") for i in range(131)]
    own = [
        ("Insert a table", "Tabelle einfügen"),
        ('Click OK, then <b> "Close".', "Klicken Sie auf OK, dann auf „Schließen“."),
    ]
    assert sorted(pairs) == sorted([*plain, *own])
    assert any(
        {text for text, _ in own} <= set(read[f"{x}.en"]) for x in ("train", "valid", "test")
    )
    assert "pairs, en-de" in capsys.readouterr().err
    first = {name: "\n".join(lines) for name, lines in read.items()}
    assert main(options) == 0  # the shares are always the same
    assert {p.name: p.read_text("utf-8").rstrip("\n") for p in output.iterdir()} == first


def test_what_is_missing_is_named(
    main: Callable, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--from", str(tmp_path), "--language", "de", "--output", str(tmp_path / "out")]
    assert main(options) == 1
    assert f"{tmp_path}/en-US/text: no such folder" in capsys.readouterr().err
    for language in ("en-US", "de"):
        write_page(tmp_path, language, "a.html", paragraph("x", f"Some text in {language}"))
    assert main(options) == 1
    assert "1 pages in en-US and de; 131 are the least" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
