"""Prepared data is there whole or not at all."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from transformer.data.cache import cache_dir, fingerprint, is_whole, stored
from transformer.errors import UserError


def write(text: str, folder: Path) -> None:
    (folder / "a").write_text(text)
    (folder / "b").write_text(text * 2)


def test_a_second_call_builds_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "kind" / "key"
    assert stored(folder, lambda aside: write("x", aside)) == folder
    stored(folder, lambda aside: write("y", aside))
    assert (folder / "a").read_text() == "x"
    assert [path.name for path in folder.parent.iterdir()] == ["key"]


@pytest.mark.parametrize("damage", ["truncate", "change", "remove", "contents"])
def test_a_damaged_entry_is_made_again(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "key"
    stored(folder, lambda aside: write("abc", aside))
    if damage == "truncate":
        (folder / "a").write_text("ab")
    elif damage == "change":
        (folder / "a").write_text("abd")
    elif damage == "remove":
        (folder / "b").unlink()
    else:
        (folder / "contents.json").write_text("{")
    assert not is_whole(folder)
    stored(folder, lambda aside: write("abc", aside))
    assert (folder / "a").read_text() == "abc"
    assert is_whole(folder)


def test_a_process_killed_in_the_middle_leaves_nothing_that_is_used(tmp_path: Path) -> None:
    code = """
import os, signal, sys
from pathlib import Path
from transformer.data.cache import stored
def build(folder):
    (folder / "a").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
stored(Path(sys.argv[1]), build)
"""
    folder = tmp_path / "key"
    killed = subprocess.run([sys.executable, "-c", code, folder])
    assert killed.returncode == -signal.SIGKILL
    assert not folder.exists()
    stored(folder, lambda aside: write("whole", aside))
    assert (folder / "a").read_text() == "whole"


def test_what_dead_processes_left_is_removed_after_a_day(tmp_path: Path) -> None:
    for name, age in (("old.tmp", 2 * 24 * 3600), ("new.tmp", 0)):
        (tmp_path / name).mkdir()
        times = (tmp_path / name).stat().st_mtime - age
        os.utime(tmp_path / name, (times, times))
    stored(tmp_path / "key", lambda aside: write("x", aside))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["key", "new.tmp"]


def test_of_two_builders_the_first_to_finish_wins(tmp_path: Path) -> None:
    folder = tmp_path / "key"

    def slow(aside: Path) -> None:
        write("slow", aside)
        stored(folder, lambda other: write("quick", other))

    stored(folder, slow)
    assert (folder / "a").read_text() == "quick"
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_an_error_while_building_leaves_nothing(tmp_path: Path) -> None:
    def build(aside: Path) -> None:
        write("x", aside)
        raise UserError("bad data")

    with pytest.raises(UserError, match="bad data"):
        stored(tmp_path / "key", build)
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"data\.cache_dir"):
        stored(tmp_path / "file" / "key", lambda aside: write("x", aside))


def test_the_cache_is_where_the_user_keeps_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_dir(None) == tmp_path / ".cache" / "transformer"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir(None) == tmp_path / "xdg" / "transformer"
    assert cache_dir(str(tmp_path / "own")) == tmp_path / "own"


def test_equal_values_and_only_they_share_a_fingerprint() -> None:
    assert fingerprint("a", {"x": 1, "y": 2}) == fingerprint("a", {"y": 2, "x": 1})
    assert len({fingerprint(*x) for x in ([1], ["1"], [1, None], [[1]], [1.5], ["ä"])}) == 6
