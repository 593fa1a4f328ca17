"""Whatever bytes a corpus holds, and whatever is to be translated: it is read, or refused in a
sentence, and no line is lost.
"""

from __future__ import annotations

import gzip
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from good_config import FUZZ
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from transformer.config import CorpusConfig, DataConfig
from transformer.data.lines import read_lines
from transformer.data.reading import read_pairs
from transformer.decoding.formats import JsonFormat
from transformer.decoding.request import KEYS
from transformer.decoding.translator import Translator
from transformer.errors import UserError

PIECES = st.sampled_from(
    [
        *(
            b"\n",
            b"\r\n",
            b"\r",
            b"\t",
            b" ",
            b"a",
            b"\xff",
            b"\x00",
            b'"',
            b"{",
            b"}",
            b"[",
            b":",
            b",",
        ),
        *("é".encode(), "\u2028".encode(), "\ufeff".encode(), b"\x0c", b"\x85", b"null", b"1e999"),
        *(b'{"xx": "a", "yy": "b"}', b'"xx"', b'"yy"', b"PAR1", b"\x1f\x8b", b"\xed\xa0\x80"),
    ]
)
BYTES = st.binary(max_size=60) | st.lists(PIECES, max_size=30).map(b"".join)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for corpora of arbitrary bytes."""
    return tmp_path_factory.mktemp("any")


def read(folder: Path, corpus: dict[str, str]) -> list[dict[str, str]] | None:
    """Returns the pairs of a corpus; None if it is refused in a sentence that names it."""
    data = DataConfig(
        source_language="xx",
        target_language="yy",
        train=[CorpusConfig.model_validate(corpus)],
        cache_dir=str(folder / "cache"),
    )
    try:
        return [row for batch in read_pairs(data.train[0], data) for row in batch.to_pylist()]
    except UserError as error:
        said = str(error)
    assert str(folder) in said
    return None


def count_lines(data: bytes) -> int:
    """Counts lines as `wc -l` does, and one more that has no line feed."""
    return data.count(b"\n") + (data != b"" and not data.endswith(b"\n"))


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@FUZZ
@given(BYTES, BYTES)
@example(b"a\n", b"a\nb")
def test_two_text_files_give_a_pair_for_each_line_or_are_refused(
    folder: Path, src: bytes, tgt: bytes
) -> None:
    (folder / "x.xx").write_bytes(src)
    (folder / "x.yy").write_bytes(tgt)
    pairs = read(folder, {"source": f"{folder}/x.xx", "target": f"{folder}/x.yy"})
    good = is_utf8(src) and is_utf8(tgt) and count_lines(src) == count_lines(tgt)
    assert (pairs is not None) == good
    assert pairs is None or len(pairs) == count_lines(src)


@FUZZ
@given(BYTES, st.sampled_from([".tsv", ".jsonl", ".parquet", ".tsv.gz", ".jsonl.gz"]))
def test_a_table_of_arbitrary_bytes_gives_one_line_sentences_or_is_refused(
    folder: Path, data: bytes, ending: str
) -> None:
    path = folder / f"table{ending}"
    for content in (data, gzip.compress(data), gzip.compress(data)[:-4]):
        path.write_bytes(content)
        for pair in read(folder, {"path": str(path)}) or []:
            assert "\n" not in pair["src"] + pair["tgt"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda x: st.lists(x, max_size=2) | st.dictionaries(st.text(max_size=2), x, max_size=2),
    max_leaves=4,
)


@FUZZ
@given(st.lists(st.fixed_dictionaries({}, optional={"xx": JSON, "yy": JSON, "zz": JSON})))
def test_json_of_any_values_gives_a_pair_for_each_object_or_is_refused(
    folder: Path, rows: list[dict[str, object]]
) -> None:
    path = folder / "values.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    pairs = read(folder, {"path": str(path)})
    assert pairs is None or len(pairs) == len(rows)


@FUZZ
@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=8))
def test_a_damaged_parquet_file_gives_sentences_or_is_refused(
    folder: Path, place: int, damage: bytes
) -> None:
    path = folder / "damaged.parquet"
    texts = [f"line {i}" for i in range(20)]
    parquet.write_table(pa.table({"xx": texts, "yy": texts}), path)
    data = bytearray(path.read_bytes())
    place %= len(data)
    data[place : place + len(damage)] = damage
    path.write_bytes(bytes(data))
    for pair in read(folder, {"path": str(path)}) or []:
        assert isinstance(pair["src"], str)


@settings(FUZZ, max_examples=25)
@given(BYTES, st.sampled_from(["train.csv", "train.json", "train.parquet", "train.txt"]))
def test_a_hub_folder_of_arbitrary_bytes_is_read_or_refused(
    folder: Path, data: bytes, name: str
) -> None:
    hub = folder / "hub"
    hub.mkdir(exist_ok=True)
    for left in hub.iterdir():
        left.unlink()
    (hub / name).write_bytes(data)
    read(folder, {"hub": str(hub)})


@pytest.fixture(scope="module")
def translator(trained_run: Path) -> Translator:
    """Translates with a trained model."""
    return Translator.load(trained_run)


@pytest.fixture(scope="module")
def translate(translator: Translator) -> Callable[[bytes], list[str]]:
    """Translates the lines of a stream."""

    def run(data: bytes) -> list[str]:
        lines = read_lines(io.BytesIO(data), "a stream")
        return [found[0].text for found in translator.translate_stream(lines)]

    return run


@settings(FUZZ, max_examples=60)
@given(st.lists(st.text(max_size=12) | st.sampled_from(["", " ", "\x00", "</s>", "\u2581"])))
@example(["a\u2028b", "c\u0085d", "e\x0cf", "g\x1ch", "i\rj", "k\r", "l"])
def test_any_unicode_is_translated_line_by_line(
    translate: Callable[[bytes], list[str]], texts: list[str]
) -> None:
    data = "".join(text + "\n" for text in texts).encode()
    outputs = translate(data)
    assert len(outputs) == data.count(b"\n")
    assert not any("\n" in text for text in outputs)
    for line, text in zip(data.decode().split("\n"), outputs, strict=False):
        assert text == "" or line.strip() != ""


@FUZZ
@given(BYTES)
def test_any_bytes_are_translated_or_refused_with_the_number_of_the_line(
    translate: Callable[[bytes], list[str]], data: bytes
) -> None:
    if is_utf8(data):
        assert len(translate(data)) == count_lines(data)
        return
    number = next(i for i, x in enumerate(data.split(b"\n"), 1) if not is_utf8(x))
    with pytest.raises(UserError, match=rf"^a stream:{number}: not valid UTF-8"):
        translate(data)


ANY_TEXT = st.text(st.characters(codec=None), max_size=5) | st.sampled_from(["a", "b c", "d\n"])
ANY_JSON = ANY_TEXT | st.lists(ANY_TEXT, max_size=2) | JSON
REQUESTS = st.lists(
    st.fixed_dictionaries({"text": ANY_TEXT}, optional=dict.fromkeys(KEYS[1:], ANY_JSON))
    | st.dictionaries(st.sampled_from(KEYS), ANY_JSON)
    | JSON,
    max_size=4,
)


@settings(FUZZ, max_examples=100)
@given(REQUESTS.map(lambda rows: "".join(json.dumps(row) + "\n" for row in rows).encode()) | BYTES)
@example(b"[" * 100_000)
@example(b'{"text": "a", "id": ' + b"[" * 500 + b"]" * 500 + b"}")
@example(b'{"text": "a", "id": ' + b"9" * 5000 + b"}")
@example(b'{"text": "\\ud800"}')
@example(b'{"text": "a", "id": "\\ud800"}')
def test_any_request_in_json_is_answered_in_json_or_refused_with_the_number_of_its_line(
    translator: Translator, data: bytes
) -> None:
    form = JsonFormat(translator.tokenizers)
    lines = form.read(read_lines(io.BytesIO(data), "a stream"), "a stream")
    try:
        answers = [form.write(found) for found in translator.translate_stream(lines)]
    except UserError as error:
        said = str(error)
    else:
        assert len(answers) == count_lines(data)
        assert all(x.encode().count(b"\n") == 1 and "text" in json.loads(x) for x in answers)
        return
    assert re.match(r"a stream:\d+: |line \d+: ", said)
