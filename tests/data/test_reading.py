"""Corpora in each format."""

import gzip
import json
import socket
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from pyarrow import parquet

from transformer.config import CorpusConfig, DataConfig
from transformer.data.reading import ROWS_AT_ONCE, read_pairs
from transformer.errors import UserError


class Pair(NamedTuple):
    src: str
    tgt: str
    line: int


PAIRS = [
    Pair("a \u2028dog", 'ein "Hund', 1),
    Pair("two  cats", "zwei Katzen\x85", 2),
    Pair("", "leer", 3),
    Pair("bird", "Vogel", 4),
]
PAIRS = [Pair(src, tgt.strip(), line) for src, tgt, line in PAIRS]


def read(tmp_path: Path, **corpus: str) -> list[Pair]:
    languages = {"source_language": "en", "target_language": "de"}
    config = CorpusConfig(**corpus)
    data = DataConfig(train=[config], cache_dir=str(tmp_path / "cache"), **languages)
    stretches = list(read_pairs(config, data))
    assert all(len(batch) == ROWS_AT_ONCE for batch in stretches[:-1])
    return [Pair(**row) for batch in stretches for row in batch.to_pylist()]


def write(path: Path, text: str) -> str:
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_text_files(tmp_path: Path, ending: str, line_end: str) -> None:
    paths = {}
    for name, place in (("source", 0), ("target", 1)):
        text = "".join(f"{pair[place]}{line_end}" for pair in PAIRS)
        paths[name] = write(tmp_path / f"{name}.txt{ending}", text)
    assert read(tmp_path, **paths) == PAIRS


def test_unequal_text_files_are_refused_with_both_counts_and_names(tmp_path: Path) -> None:
    source = write(tmp_path / "train.en", "x\n" * 100)
    target = write(tmp_path / "train.de", "y\n" * 99)
    for src, tgt in ((source, target), (target, source)):
        with pytest.raises(UserError) as error:
            read(tmp_path, source=src, target=tgt)
        for path, count in ((source, 100), (target, 99)):
            assert f"{path} has {count}" in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.tsv: No such file"):
        read(tmp_path, path=str(tmp_path / "none.tsv"))


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_tsv(tmp_path: Path, ending: str) -> None:
    text = "".join(f"{pair.src}\t{pair.tgt}\n" for pair in PAIRS)
    assert read(tmp_path, path=write(tmp_path / f"x.tsv{ending}", text)) == PAIRS


def test_tsv_columns_are_found_by_the_first_line(tmp_path: Path) -> None:
    text = "id\tde\ten\r\n" + "".join(f"{i}\t{p.tgt}\t{p.src}\r\n" for i, p in enumerate(PAIRS))
    path = write(tmp_path / "x.tsv", text)
    expected = [Pair(src, tgt, line + 1) for src, tgt, line in PAIRS]
    assert read(tmp_path, path=path, source_column="en") == expected
    assert read(tmp_path, path=path, source_column="en", target_column="de") == expected
    with pytest.raises(UserError, match="no column 'fr' in its first line: 'id', 'de', 'en'"):
        read(tmp_path, path=path, source_column="fr")


@pytest.mark.parametrize(("row", "fields"), [("a\tb\tc", 3), ('"a', 1), ("", 1), ('x\t"y\tz"', 3)])
def test_a_tsv_row_of_other_width_is_named(tmp_path: Path, row: str, fields: int) -> None:
    path = write(tmp_path / "x.tsv", f"a\tb\n{row}\nc\td\n")
    with pytest.raises(UserError, match=rf"x\.tsv:2: fields: {fields} found, 2 expected"):
        read(tmp_path, path=path)


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_json_lines(tmp_path: Path, ending: str) -> None:
    flat = "".join(json.dumps({"en": p.src, "de": p.tgt, "id": 1}) + "\n" for p in PAIRS)
    assert read(tmp_path, path=write(tmp_path / f"x.jsonl{ending}", flat)) == PAIRS
    nested = "".join(
        json.dumps({"translation": {"en": p.src, "de": p.tgt}}, ensure_ascii=False) + "\n"
        for p in PAIRS
    )
    columns = {"source_column": "translation.en", "target_column": "translation.de"}
    assert read(tmp_path, path=write(tmp_path / f"y.jsonl{ending}", nested), **columns) == PAIRS


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"en": "x"', "not JSON"),
        pytest.param(200_000 * "[", "not JSON", id="deep"),
        ('["x", "y"]', "a JSON object is expected"),
        ('{"en": "x"}', "no text in column 'de'; there are 'en'"),
        ('{"en": "x", "de": 5}', "column 'de' holds int, not text"),
        ('{"en": "x", "de": "\\ud800"}', "half a surrogate pair"),
    ],
)
def test_a_wrong_json_line_is_named(tmp_path: Path, row: str, message: str) -> None:
    path = write(tmp_path / "x.jsonl", '{"en": "a", "de": "b"}\n' + row + "\n")
    with pytest.raises(UserError) as error:
        read(tmp_path, path=path)
    assert str(error.value).startswith(f"{path}:2: ")
    assert message in str(error.value)


def test_a_line_break_in_a_sentence_becomes_a_space_and_null_an_empty_sentence(
    tmp_path: Path,
) -> None:
    rows = [{"en": " a\nb ", "de": "c\n"}, {"en": None, "de": "d"}]
    path = write(tmp_path / "x.jsonl", "\n".join(map(json.dumps, rows)))
    assert read(tmp_path, path=path) == [Pair("a b", "c", 1), Pair("", "d", 2)]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_parquet(tmp_path: Path, kind: pa.DataType) -> None:
    sides = {
        "en": pa.array([p.src for p in PAIRS], kind),
        "de": pa.array([p.tgt for p in PAIRS], kind),
    }
    flat, nested = tmp_path / "flat.parquet", tmp_path / "nested.parquet"
    parquet.write_table(pa.table(sides), flat, row_group_size=3)
    both = pa.StructArray.from_arrays(list(sides.values()), list(sides))
    parquet.write_table(pa.table({"translation": both, "id": range(4)}), nested)
    assert read(tmp_path, path=str(flat)) == PAIRS
    columns = {"source_column": "translation.en", "target_column": "translation.de"}
    assert read(tmp_path, path=str(nested), **columns) == PAIRS
    with pytest.raises(UserError, match="no column 'fr'; there are 'en', 'de'"):
        read(tmp_path, path=str(flat), source_column="fr")
    with pytest.raises(UserError, match=r"row 1: no text in column 'translation\.fr'"):
        read(tmp_path, path=str(nested), source_column="translation.fr", target_column="id")
    with pytest.raises(UserError, match="row 1: column 'id' holds int, not text"):
        read(tmp_path, path=str(nested), source_column="translation.en", target_column="id")
    with pytest.raises(UserError, match="column 'id' holds no 'en': it is not nested"):
        read(tmp_path, path=str(nested), source_column="id.en", target_column="id")
    with pytest.raises(UserError, match="not a Parquet file"):
        read(tmp_path, path=write(tmp_path / "bad.parquet", "x"))


def hub_folder(folder: Path) -> str:
    """Writes a data set as the hub lays it out: a card names the files of two configurations."""
    (folder / "data").mkdir(parents=True)
    (folder / "README.md").write_text("""---
configs:
- config_name: small
  data_files:
  - split: train
    path: data/train-*.jsonl
  - split: test
    path: data/test-*.jsonl
- config_name: other
  data_files: data/other.jsonl
---
A card.
""")
    rows = [json.dumps({"translation": {"en": p.src, "de": p.tgt}}) for p in PAIRS]
    write(folder / "data" / "train-00000-of-00002.jsonl", "\n".join(rows[:2]) + "\n")
    write(folder / "data" / "train-00001-of-00002.jsonl", "\n".join(rows[2:]) + "\n")
    write(folder / "data" / "test-00000-of-00001.jsonl", rows[3] + "\n")
    write(folder / "data" / "other.jsonl", rows[3] + "\n")
    return str(folder)


def test_a_local_folder_in_hub_layout_is_read_without_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    hub = {"hub": hub_folder(tmp_path / "set"), "name": "small"}
    hub |= {"source_column": "translation.en", "target_column": "translation.de"}
    assert read(tmp_path, **hub) == PAIRS
    assert [(p.src, p.tgt) for p in read(tmp_path, **hub, split="test")] == [("bird", "Vogel")]
    with pytest.raises(UserError, match=r"set \(dev\): cannot be loaded"):
        read(tmp_path, **hub, split="dev")
    with pytest.raises(UserError, match="no column 'en'; there are 'translation'"):
        read(tmp_path, hub=hub["hub"], name="small")


def test_a_hub_folder_of_csv_files_is_read(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    rows = "".join(f"{p.src},{p.tgt}\n" for p in PAIRS[-2:])
    write(tmp_path / "set" / "train.csv", "en,de\n" + rows)
    found = read(tmp_path, hub=str(tmp_path / "set"))
    assert [(p.src, p.tgt) for p in found] == [(p.src, p.tgt) for p in PAIRS[-2:]]


def test_a_hub_folder_whose_files_disagree_is_refused(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    write(tmp_path / "set" / "a.jsonl", '{"en": "x", "de": "y"}\n')
    write(tmp_path / "set" / "b.jsonl", '{"left": "x", "right": "y"}\n')
    with pytest.raises(UserError, match=r"set \(train\): cannot be read"):
        read(tmp_path, hub=str(tmp_path / "set"))


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.jsonl", "null\n", 1),
        ("a.json", '{"en": "x", "de": "null"}\n null\n', 2),
        ("a.json", '[{"en": "x", "de": "y"},\n null]', 1),
    ],
)
def test_a_null_row_in_a_hub_folder_is_named(
    tmp_path: Path, name: str, text: str, line: int
) -> None:
    """Arrow's reader of JSON would end the process."""
    (tmp_path / "set").mkdir()
    write(tmp_path / "set" / name, text)
    with pytest.raises(UserError, match=rf"{name}:{line}: null found"):
        read(tmp_path, hub=str(tmp_path / "set"))


def test_columns_need_names_from_somewhere(tmp_path: Path) -> None:
    config = CorpusConfig(path=write(tmp_path / "x.jsonl", "{}\n"))
    with pytest.raises(UserError, match=r"data\.source_language"):
        list(read_pairs(config, DataConfig(train=[config])))


def test_a_tag_stands_before_each_source_sentence_but_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("a dog\tein Hund\n \tleer\n")
    found = read(tmp_path, path=str(tmp_path / "x.tsv"), tag="<2de>")
    assert found == [Pair("<2de> a dog", "ein Hund", 1), Pair("", "leer", 2)]


def test_sentences_lose_exactly_the_white_space_that_python_strips(tmp_path: Path) -> None:
    characters = [chr(i) for i in range(0x110000) if not 0xD800 <= i < 0xE000 and i != 10]
    lines = [f"{c}x{c}" for c in characters]
    lines += [f"{c}{c}" for c in characters[:0x3100]]
    path = write(tmp_path / "x.txt", "\n".join(lines))
    config = CorpusConfig(source=path, target=path)
    found = [
        text
        for batch in read_pairs(config, DataConfig(train=[config]))
        for text in batch.column("src").to_pylist()
    ]
    assert found == [line.strip() for line in lines]
