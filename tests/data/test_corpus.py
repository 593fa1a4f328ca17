"""From corpora to ids: what is kept, what is dropped and said, and what is not done twice."""

import json
import os
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from transformer.config import Config, CorpusConfig, DataConfig, TokenizerConfig
from transformer.data import corpus as corpus_module
from transformer.data.corpus import (
    EncodedCorpus,
    encode_corpus,
    load_corpora,
    prepare_tokenizers,
)
from transformer.data.tokenizer import EOS, Tokenizers
from transformer.errors import UserError

ENGLISH = ["the", "dog", "cat", "sees", "a", "house", "tree", "green", "old", "walks"]
GERMAN = ["der", "Hund", "Katze", "sieht", "ein", "Haus", "Baum", "grün", "alt", "läuft"]


def sentences(count: int) -> list[tuple[str, str]]:
    rng = random.Random(0)
    pairs = []
    for _ in range(count):
        words = [rng.randrange(len(ENGLISH)) for _ in range(rng.randint(3, 9))]
        pairs.append((" ".join(ENGLISH[i] for i in words), " ".join(GERMAN[i] for i in words)))
    return pairs


@dataclass
class Folder:
    """A folder with a corpus, a cache, and the three steps of preparation."""

    path: Path

    def write(self, pairs: list[tuple[str, str]], line_end: str = "\n", name: str = "x") -> None:
        for language, place in (("en", 0), ("de", 1)):
            text = "".join(pair[place] + line_end for pair in pairs)
            (self.path / f"{name}.{language}").write_bytes(text.encode())

    def config(self, names: tuple[str, ...] = ("x",), joint: bool = True, **data: object) -> Config:
        corpora = [
            CorpusConfig(source=str(self.path / f"{x}.en"), target=str(self.path / f"{x}.de"))
            for x in names
        ]
        data = {"train": corpora, "cache_dir": str(self.path / "cache"), **data}
        return Config(
            run_dir="x",
            data=DataConfig(**data),
            tokenizer=TokenizerConfig(vocab_size=300, kind="bpe", joint=joint),
            model={"tie_embeddings": "all" if joint else "none"},
        )

    def prepare(self, filters: bool = True, **settings: object) -> tuple[EncodedCorpus, Tokenizers]:
        config = self.config(**settings)
        raw = load_corpora(config.data.train, config.data)
        tokenizers = prepare_tokenizers(config, raw)
        return encode_corpus(raw, tokenizers, config.data, filters), tokenizers


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def all_texts(corpus: EncodedCorpus) -> list[tuple[str, str]]:
    return list(zip(*corpus.texts(np.arange(len(corpus))), strict=True))


def all_ids(corpus: EncodedCorpus) -> list[list[list[int]]]:
    return [[ids.tolist() for ids in side] for side in corpus.ids(np.arange(len(corpus)))]


def test_ids_are_those_of_the_texts(folder: Folder) -> None:
    pairs = sentences(300)
    folder.write(pairs)
    corpus, tokenizers = folder.prepare(joint=False)
    assert all_texts(corpus) == pairs
    src, tgt = all_ids(corpus)
    assert src == tokenizers.source.encode([pair[0] for pair in pairs])
    assert tgt == tokenizers.target.encode([pair[1] for pair in pairs])
    assert corpus.lengths.dtype == np.int32
    assert corpus.lengths.tolist() == [max(map(len, pair)) for pair in zip(src, tgt, strict=True)]
    some = np.array([7, 0, 299, 7])
    assert [ids.tolist() for ids in corpus.ids(some)[0]] == [src[i] for i in some]
    assert corpus.texts(some)[1] == [pairs[i][1] for i in some]
    assert corpus.ids(some)[0][0].dtype == np.uint16


def test_a_corpus_larger_than_a_chunk_is_the_same_with_any_number_of_threads(
    folder: Folder,
) -> None:
    pairs = sentences(25_000)
    pairs[12_345] = ("", "leer")
    folder.write(pairs)
    files = []
    for threads in (1, 3):
        cache = folder.path / f"cache-{threads}"
        corpus, tokenizers = folder.prepare(num_threads=threads, cache_dir=str(cache))
        files.append({x.name: x.read_bytes() for x in cache.glob("encoded/*/*")})
    assert files[0] == files[1]
    assert corpus.report.examples == {"empty": [f"{folder.path}/x.en:12346"]}
    del pairs[12_345]
    assert all_texts(corpus) == pairs
    assert all_ids(corpus)[1] == tokenizers.target.encode([pair[1] for pair in pairs])


def test_what_is_left_out_is_named_by_the_files_that_hold_it_now(folder: Folder) -> None:
    """Though it was encoded when it lay in others."""
    pairs = [*sentences(300), ("", "empty")]
    folder.write(pairs, name="x")
    folder.write(pairs, name="y")
    for name in "xy":
        corpus, _ = folder.prepare(names=(name,))
        assert corpus.report.examples == {"empty": [f"{folder.path}/{name}.en:301"]}
    assert len(list(folder.path.glob("cache/encoded/*"))) == 1


def test_several_corpora_are_taken_together(folder: Folder) -> None:
    pairs = sentences(300)
    folder.write(pairs[:200], name="x")
    folder.write([*pairs[200:], ("", "")], name="y")
    config = folder.config(names=("x", "y"))
    raw = load_corpora(config.data.train, config.data)
    assert raw.column_names == ["src", "tgt", "corpus", "line"]
    assert raw[200:202]["corpus"] == [1, 1]
    assert raw[200:202]["line"] == [1, 2]
    corpus, _ = folder.prepare(names=("x", "y"))
    assert all_texts(corpus) == pairs
    assert corpus.report.examples["empty"] == [f"{folder.path}/y.en:101"]


def test_a_windows_copy_gives_the_same_ids(folder: Folder) -> None:
    pairs = sentences(200)
    folder.write(pairs)
    unix, _ = folder.prepare()
    folder.write(pairs, line_end="\r\n")
    windows, _ = folder.prepare()
    assert all_ids(unix) == all_ids(windows)
    assert unix.digest == windows.digest


def test_every_dropped_pair_is_counted_by_reason_and_none_is_shifted(folder: Folder) -> None:
    pairs = sentences(1000)
    kept = list(dict.fromkeys(pairs))
    wrong = {
        10: ("", "leer"),
        20: ("blank", " \u00a0\t"),
        30: ("word " * 70, "Wort " * 70),
        40: ("a", "ein " * 8),
        50: kept[0],
    }
    pairs = list(kept)
    for line, pair in wrong.items():
        pairs.insert(line - 1, pair)
    folder.write(pairs)
    corpus, _ = folder.prepare(max_length=60, max_ratio=5.0, drop_duplicates=True)
    report = corpus.report
    assert all_texts(corpus) == kept
    assert report.dropped == {"empty": 2, "too long": 1, "ratio": 1, "duplicate": 1}
    name = f"{folder.path}/x.en"
    assert report.examples == {
        "empty": [f"{name}:10", f"{name}:20"],
        "too long": [f"{name}:30"],
        "ratio": [f"{name}:40"],
        "duplicate": [f"{name}:50"],
    }
    assert (report.total, report.kept) == (len(pairs), len(kept))
    assert not report.many_dropped
    said = "\n".join(report.lines())
    assert f"5 of {len(pairs):,} pairs are left out" in said
    assert f"longer than 60 tokens (data.max_length): {name}:30" in said


def test_duplicates_are_kept_unless_asked(folder: Folder) -> None:
    pairs = sentences(20) * 10
    folder.write(pairs)
    assert all_texts(folder.prepare()[0]) == pairs
    assert all_texts(folder.prepare(drop_duplicates=True)[0]) == pairs[:20]


def test_the_end_of_sentence_counts_for_the_length_limit(folder: Folder) -> None:
    folder.write(sentences(200))
    corpus, _ = folder.prepare()
    longest = int(corpus.lengths.max())
    assert len(folder.prepare(max_length=longest)[0]) == 200
    shorter, _ = folder.prepare(max_length=longest - 1)
    assert shorter.report.dropped == {"too long": int((corpus.lengths == longest).sum())}


def test_a_pair_beyond_the_budget_is_dropped_before_training(folder: Folder) -> None:
    folder.write([*sentences(100), ("dog " * 1500, "Hund")])
    corpus, _ = folder.prepare(max_length=1000)
    assert corpus.report.dropped == {"too long": 1}
    assert corpus.report.examples == {"too long": [f"{folder.path}/x.en:101"]}
    assert corpus.lengths.max() <= 1000


def test_a_warning_is_given_above_a_few_per_cent(folder: Folder) -> None:
    for num_empty, many in ((5, False), (6, True)):
        folder.write([*sentences(100 - num_empty), *[("", "x")] * num_empty])
        report = folder.prepare()[0].report
        assert report.many_dropped is many
        assert ("more than 5%" in "\n".join(report.lines())) is many
        assert len(report.examples["empty"]) == 3


def test_nothing_dropped_is_not_worth_a_line(folder: Folder) -> None:
    folder.write(sentences(100))
    assert folder.prepare()[0].report.lines() == []


def test_validation_keeps_every_pair(folder: Folder) -> None:
    pairs = [*sentences(100), ("", ""), ("dog " * 400, "x"), ("a", "")]
    folder.write(pairs)
    corpus, _ = folder.prepare(filters=False, max_length=10, max_ratio=2.0, drop_duplicates=True)
    assert all_texts(corpus) == [(src.strip(), tgt) for src, tgt in pairs]
    assert [ids.tolist() for ids in corpus.ids(np.array([100]))[0]] == [[EOS]]


def test_a_corpus_of_which_nothing_is_left_is_refused_with_the_reasons(folder: Folder) -> None:
    folder.write(sentences(50))
    with pytest.raises(UserError, match="no pair is left to train on") as error:
        folder.prepare(max_length=2)
    assert "50 pairs (100.0%) longer than 2 tokens (data.max_length)" in str(error.value)
    folder.write([])
    with pytest.raises(UserError, match=r"x\.en: there are no pairs"):
        folder.prepare()


def test_unequal_sides_are_refused_before_anything_is_trained(folder: Folder) -> None:
    folder.write(sentences(100))
    path = folder.path / "x.de"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:99]))
    with pytest.raises(UserError, match=r"x\.en has 100 lines, .*x\.de has 99"):
        folder.prepare()
    assert not (folder.path / "cache" / "tokenizers").exists()
    assert list((folder.path / "cache" / "corpora").iterdir()) == []


def cached(folder: Folder) -> dict[Path, int]:
    files = (folder.path / "cache").rglob("*")
    return {path: path.stat().st_mtime_ns for path in files if path.is_file()}


def test_a_second_start_writes_nothing(folder: Folder) -> None:
    folder.write(sentences(100))
    first, tokenizers = folder.prepare()
    before = cached(folder)
    second, same = folder.prepare()
    assert cached(folder) == before
    assert same.source.model == tokenizers.source.model
    assert (second.digest, second.report) == (first.digest, first.report)
    assert all_ids(second) == all_ids(first)


def test_changed_data_is_read_again(folder: Folder) -> None:
    pairs = sentences(100)
    folder.write(pairs)
    first, _ = folder.prepare()
    pairs[3] = (pairs[3][0], pairs[3][1][::-1])
    folder.write(pairs)
    second, _ = folder.prepare()
    assert all_texts(second) == pairs
    assert first.digest != second.digest


def test_data_that_moved_is_the_same_data(folder: Folder) -> None:
    folder.write(sentences(100))
    first, _ = folder.prepare()
    os.utime(folder.path / "x.en", (1, 1))
    assert folder.prepare()[0].digest == first.digest
    moved = Folder(folder.path / "moved")
    moved.path.mkdir()
    moved.write(sentences(100))
    assert moved.prepare()[0].digest == first.digest


def test_the_same_pairs_in_another_format_are_the_same_data(folder: Folder) -> None:
    pairs = sentences(12_000)
    folder.write(pairs)
    digest = folder.prepare()[0].digest
    rows = [{"en": src, "de": tgt} for src, tgt in pairs]
    lines = [json.dumps(row) + "\n" * (1 + i % 3) for i, row in enumerate(rows)]  # blank lines too
    (folder.path / "x.jsonl").write_text("".join(lines), encoding="utf-8")
    parquet.write_table(pa.Table.from_pylist(rows), folder.path / "x.parquet", row_group_size=700)
    for name in ("x.jsonl", "x.parquet"):
        corpus = {"path": str(folder.path / name)}
        languages = {"source_language": "en", "target_language": "de"}
        assert folder.prepare(train=[corpus], **languages)[0].digest == digest


def test_each_setting_of_filters_and_tokenizer_has_its_own_entry(folder: Folder) -> None:
    folder.write(sentences(100))
    different = [{}, {"max_length": 99}, {"max_ratio": 9.0}, {"drop_duplicates": True}]
    different += [{"joint": False}, {"filters": False}]
    assert len({folder.prepare(**settings)[0].digest for settings in different}) == len(different)


@pytest.mark.parametrize("damaged", ["source.model", "warnings.json"])
def test_a_damaged_tokenizer_is_trained_again(folder: Folder, damaged: str) -> None:
    folder.write(sentences(100))
    _, tokenizers = folder.prepare()
    (path,) = (folder.path / "cache" / "tokenizers").glob(f"*/{damaged}")
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    assert folder.prepare()[1].source.model == tokenizers.source.model


def test_a_lowered_vocabulary_is_said_at_every_start(
    folder: Folder, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus_module.log, "propagate", True)
    folder.write([("a b", "b a")] * 50)
    for _ in range(2):
        caplog.clear()
        folder.prepare()
        assert "vocab_size is 300, but this text yields only" in caplog.text


def test_a_large_corpus_trains_the_tokenizer_on_an_even_sample(folder: Folder) -> None:
    pairs = [(f"s{i}", f"t{i}") for i in range(1000)]
    folder.write(pairs)
    config = folder.config()
    raw = load_corpora(config.data.train, config.data)
    sample = corpus_module._Sample(raw, ["src", "tgt"], limit=200)
    lines = list(sample)
    assert len(lines) == len(sample) == 200
    assert lines[::2] == [f"s{i}" for i in range(9, 1000, 10)]
    assert lines[1::2] == [f"t{i}" for i in range(9, 1000, 10)]
    every = corpus_module._Sample(raw, ["tgt"], limit=5000)
    assert list(every) == [pair[1] for pair in pairs]


PREPARE = """
import json, sys
from transformer.config import Config
from transformer.data.corpus import encode_corpus, load_corpora, prepare_tokenizers
config = Config(**json.loads(sys.argv[1]))
raw = load_corpora(config.data.train, config.data)
tokenizers = prepare_tokenizers(config, raw)
print(encode_corpus(raw, tokenizers, config.data, True).digest)
"""


def test_two_processes_prepare_at_the_same_time(folder: Folder) -> None:
    folder.write(sentences(2000))
    config = json.dumps(folder.config().model_dump())
    command = [sys.executable, "-W", "error", "-c", PREPARE, config]
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate() for process in started]
    assert [error for _, error in said] == ["", ""]
    digest = folder.prepare()[0].digest
    assert [out.strip() for out, _ in said] == [digest, digest]
    assert not list((folder.path / "cache").rglob("*.tmp"))


def test_ids_are_mapped_not_copied(folder: Folder) -> None:
    folder.write(sentences(100))
    corpus, _ = folder.prepare()
    src, tgt = corpus.ids(np.arange(len(corpus)))
    assert all(not ids.flags.owndata and not ids.flags.writeable for ids in src + tgt)
