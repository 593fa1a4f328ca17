"""What a line is."""

import gzip
import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer.data.lines import BLOCK_BYTES, open_line_arrays, open_lines, read_lines
from transformer.errors import UserError

AWKWARD = "a\u2028b\nc\u0085d\ne\x0cf\ng\x1ch\ni\rj\nk\r\nl\n".encode()


def lines(data: bytes) -> list[str]:
    return list(read_lines(io.BytesIO(data), "x"))


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(AWKWARD)
    wc = subprocess.run(["wc", "-l", path], capture_output=True, text=True, check=True).stdout
    expected = ["a\u2028b", "c\u0085d", "e\x0cf", "g\x1ch", "i\rj", "k", "l"]
    assert list(open_lines(path)) == expected
    assert len(expected) == int(wc.split()[0])


@given(
    text=st.lists(st.sampled_from("aü\ufeff\r\n \u2028"), max_size=40).map("".join),
    block_bytes=st.integers(1, 20),
)
def test_a_file_has_the_lines_of_its_stream_however_much_is_read_at_once(
    text: str, block_bytes: int
) -> None:
    with NamedTemporaryFile() as file, pytest.MonkeyPatch.context() as patch:
        file.write(text.encode())
        file.flush()
        patch.setattr("transformer.data.lines.BLOCK_BYTES", block_bytes)
        expected = lines(text.encode())
        assert list(open_lines(file.name)) == expected
        with_ends = [x for array in open_line_arrays(file.name) for x in array.to_pylist()]
        assert [x.removesuffix("\n").removesuffix("\r") for x in with_ends] == expected


@pytest.mark.parametrize("read", [open_lines, open_line_arrays])
def test_a_wrong_line_far_down_is_named_by_its_number(
    tmp_path: Path, read: Callable[[Path], Iterator[object]]
) -> None:
    path = tmp_path / "x.txt"
    number = 2 * BLOCK_BYTES // 1000 + 1
    path.write_bytes((b"a" * 999 + b"\n") * (number - 1) + b"b\xff\n" + b"b\n")
    with pytest.raises(UserError, match=rf"x\.txt:{number}: .* \(byte 0xff at byte 2 of the line"):
        list(read(path))


def test_a_last_line_without_line_feed_counts() -> None:
    assert lines(b"a\nb") == ["a", "b"]
    assert lines(b"a\n\n") == ["a", ""]
    assert lines(b"") == []


def test_windows_line_ends_and_byte_order_mark_leave_no_trace() -> None:
    assert lines(b"\xef\xbb\xbfa\r\nb\r\n") == ["a", "b"]
    assert lines(b"a\n\xef\xbb\xbfb\n") == ["a", "\ufeffb"]


def test_gzip_reads_like_plain(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(AWKWARD))
    assert list(open_lines(path)) == lines(AWKWARD)


def test_damaged_gzip_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    whole = gzip.compress(b"".join(b"%d\n" % i for i in range(9999)))
    for data in (whole[:2000], whole[:-9] + b"x" + whole[-8:], b"plain text\n"):
        path.write_bytes(data)
        with pytest.raises(UserError, match=r"x\.gz: damaged \.gz file"):
            list(open_lines(path))


def test_missing_file_and_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.txt: No such file"):
        list(open_lines(tmp_path / "none.txt"))
    with pytest.raises(UserError, match="Is a directory"):
        list(open_lines(tmp_path))


def read_in_locale(path: Path, locale: str) -> str:
    """Returns the lines of a file, or the error, as another process prints them."""
    code = """
import sys
from transformer.data.lines import open_lines
try:
    print(ascii(list(open_lines(sys.argv[1]))))
except Exception as error:
    print(ascii(str(error)))
"""
    environment = {**os.environ, "LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-c", code, path]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_invalid_utf8_is_named_by_file_and_line_in_any_locale(tmp_path: Path, locale: str) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(b"a\nb\nno \xfc here\nc\xfc\n")
    message = "bad.txt:3: not valid UTF-8 (byte 0xfc at byte 4 of the line)"
    assert message in read_in_locale(path, locale)


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_text_reads_the_same_in_any_locale(tmp_path: Path, locale: str) -> None:
    path = tmp_path / "good.txt"
    path.write_text("Grüße\n", encoding="utf-8")
    assert read_in_locale(path, locale) == ascii(["Grüße"])


def test_a_line_is_yielded_as_soon_as_it_arrives() -> None:
    read_end, write_end = os.pipe()
    with open(read_end, "rb") as reader, open(write_end, "wb", buffering=0) as writer:
        arriving = read_lines(reader, "stdin")
        for line in ("first", "second"):
            writer.write(f"{line}\n".encode())
            assert next(arriving) == line
