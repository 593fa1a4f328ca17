"""Data diversification: teachers translate each its side, and the model learns from all of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sacrebleu import sentence_bleu
from small_task import SETTINGS

from transformer import SearchOptions, Translator
from transformer.config_file import load_config
from transformer.decoding.results import Translation
from transformer.training import trainer
from transformer.training.checkpoint import list_checkpoints, read_checkpoint
from transformer.training.run import train

SCRIPT = Path(__file__).parents[2] / "scripts" / "diversify.py"
STUDENT = ("--student", "training.max_steps=6")
Diversify = Callable[..., int]


@pytest.fixture
def diversify(
    script: Callable[[str], Any], corpus_folder: Path, tmp_path: Path
) -> Callable[..., int]:
    """The command on the small task, with a run in the test's folder."""
    main = script("diversify").main
    config = tmp_path / "config.yaml"
    config.write_text(SETTINGS.format(folder=corpus_folder))
    settings = ("training.max_steps=4", "training.save_every=2", "training.log_every=1")
    quick = (*settings, "validation.every=100", *STUDENT)
    return lambda *options: main([str(config), f"run_dir={tmp_path}/run", *quick, *options])


def file_of(home: Path, name: str) -> Path:
    """The only file of translations with a name such as forward-1-of-1."""
    (file,) = home.glob(f"{name}-*/pairs.jsonl")
    return file


def rows(path: Path) -> list[tuple[str, str]]:
    found = map(json.loads, path.read_text().splitlines())
    return [(row["source"], row["target"]) for row in found]


def test_the_model_learns_from_its_data_and_from_what_each_teacher_makes_of_it(
    diversify: Diversify, corpus_folder: Path, tmp_path: Path
) -> None:
    assert diversify("--from-teacher") == 0
    src, tgt = ((corpus_folder / f"train.{x}").read_text().splitlines() for x in ("xx", "yy"))
    home = tmp_path / "run-teachers"
    for name, given, place in (("forward", src, 0), ("backward", tgt, 1)):
        pairs = rows(file_of(home, f"{name}-1-of-1"))
        own, made = ([pair[i] for pair in pairs] for i in (place, 1 - place))
        assert own == given
        expected = Translator.load(home / name, device="cpu").translate(given)
        assert made == expected
        assert [step for step, _ in list_checkpoints(home / name)] == [2, 4]
    config = read_checkpoint(list_checkpoints(tmp_path / "run")[-1][1]).config
    assert [corpus.path or corpus.source for corpus in config.data.train] == [
        f"{corpus_folder}/train.xx",
        str(file_of(home, "forward-1-of-1")),
        str(file_of(home, "backward-1-of-1")),
    ]
    assert config.training.max_steps == 6
    assert config.init_from == f"{home}/forward"
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}
    assert diversify("--from-teacher") == 0
    assert times == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}


def test_of_each_text_it_takes_the_best_translations_and_its_data_as_often(
    diversify: Diversify, corpus_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert diversify("--n-best", "0") == 1
    assert "--n-best 0: one translation is the least" in capsys.readouterr().err
    assert diversify("--n-best", "3") == 0
    home = tmp_path / "run-teachers"
    texts = (corpus_folder / "train.xx").read_text().splitlines()
    pairs = rows(file_of(home, "forward-3-of-3"))
    assert [source for source, _ in pairs] == [text for text in texts for _ in range(3)]
    options = SearchOptions(5, 3, max_length=5, max_length_ratio=1.0)
    translator = Translator.load(home / "forward", device="cpu")
    assert options == replace(translator.options, n_best=3)
    found = translator.translate_n_best(texts, options)
    whole = ([t for t in each if t.finished] or each for each in found)
    kept = (list(dict.fromkeys(t.text for t in each)) for each in whole)
    expected = [text for each in kept for text in [*each, *each[:1] * 2][:3]]
    assert [target for _, target in pairs] == expected
    config = read_checkpoint(list_checkpoints(tmp_path / "run")[-1][1]).config
    assert [corpus.source for corpus in config.data.train[:-2]] == [f"{corpus_folder}/train.xx"] * 3


def test_a_translation_that_was_cut_is_taken_only_if_there_is_no_other(
    script: Callable[[str], Any],
) -> None:
    nearest = script("diversify_data").nearest

    def found(*texts: str) -> list[Translation]:
        return [Translation(text, 0.0, [5, 2], [0.0, 0.0], text[-1] != "…") for text in texts]

    def score(text: str, reference: str) -> float:
        return float(text == reference)

    assert nearest(found("a a a…", "b", "c"), "a a a…", 1, score) == ["b"]
    assert nearest(found("a a a…", "b", "c"), "c", 1, score) == ["c"]
    assert nearest(found("a a a…", "b"), "", 3, score) == ["b", "b", "b"]
    assert nearest(found("a a a…", "b b…"), "", 3, score) == ["a a a…", "b b…", "a a a…"]


def test_of_the_translations_it_keeps_those_that_are_nearest_to_the_data(
    diversify: Diversify, corpus_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By sacreBLEU's own score of a sentence, and among all that the search has found."""
    assert diversify("--n-best", "5", "--keep", "6") == 1
    assert "--keep 6: of 5 translations (--n-best), 1 to 5 are left" in capsys.readouterr().err
    assert diversify("training.max_steps=200", "--n-best", "5", "--keep", "2") == 0
    texts, references = (
        (corpus_folder / f"train.{x}").read_text().splitlines() for x in ("yy", "xx")
    )
    home = tmp_path / "run-teachers"
    pairs = rows(file_of(home, "backward-2-of-5"))
    assert [target for _, target in pairs] == [text for text in texts for _ in range(2)]
    translator = Translator.load(home / "backward", device="cpu")
    found = translator.translate_n_best(texts, replace(translator.options, n_best=5))
    better = 0
    for reference, best, first, second in zip(
        references, found, pairs[::2], pairs[1::2], strict=True
    ):
        whole = [t for t in best if t.finished] or best
        scores = {t.text: sentence_bleu(t.text, [reference]).score for t in whole}
        kept = [scores[text] for text, _ in (first, second)]
        assert kept == sorted(scores.values(), reverse=True)[:2]
        better += kept[0] > scores[whole[0].text]
    assert better > len(texts) / 4
    config = read_checkpoint(list_checkpoints(tmp_path / "run")[-1][1]).config
    assert [corpus.source for corpus in config.data.train[:-2]] == [f"{corpus_folder}/train.xx"] * 2


def test_several_teachers_differ_by_their_seeds_and_the_model_learns_from_all(
    diversify: Diversify, corpus_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert diversify("--teachers", "0") == 1
    assert "--teachers 0: one of each direction is the least" in capsys.readouterr().err
    assert diversify("seed=7", "--teachers", "2", "--n-best", "2", "--from-teacher") == 0
    home = tmp_path / "run-teachers"
    names = ["forward", "backward", "forward-2", "backward-2"]
    runs = [read_checkpoint(list_checkpoints(home / name)[-1][1]) for name in names]
    assert [run.config.seed for run in runs] == [7, 7, 8, 8]
    assert [run.config.data.source_language for run in runs] == ["xx", "yy", "xx", "yy"]
    model = read_checkpoint(list_checkpoints(tmp_path / "run")[-1][1]).config
    assert model.seed == 7
    assert model.init_from == f"{home}/forward"
    assert [corpus.path or corpus.source for corpus in model.data.train] == [
        *[f"{corpus_folder}/train.xx"] * 4,
        *(str(file_of(home, f"{name}-2-of-2")) for name in names),
    ]
    first, second = (rows(file_of(home, f"{name}-2-of-2")) for name in ("forward", "forward-2"))
    assert [source for source, _ in first] == [source for source, _ in second]
    assert first != second


def test_stopped_in_a_teacher_it_goes_on_there(
    diversify: Diversify, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update, steps = trainer.Trainer.update, []

    def stopping(self: trainer.Trainer, what: trainer.Update) -> bool:
        steps.append((Path(self.config.run_dir).name, self.state.progress.step + 1))
        if len(steps) == 7:  # the third update of the second teacher
            signal.raise_signal(signal.SIGTERM)
        return update(self, what)

    monkeypatch.setattr(trainer.Trainer, "update", stopping)
    assert diversify() == 128 + signal.SIGTERM
    assert file_of(tmp_path / "run-teachers", "forward-1-of-1").exists()
    assert not (tmp_path / "run").exists()
    assert diversify() == 0
    assert steps[:4] == [("forward", step) for step in (1, 2, 3, 4)]
    assert [step for name, step in steps if name == "backward"] == [1, 2, 3, 3, 4]
    assert steps[-6:] == [("run", step) for step in range(1, 7)]


@pytest.mark.slow
def test_processes_that_torchrun_started_work_together(corpus_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(SETTINGS.format(folder=corpus_folder))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    meeting = ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"]
    own = [f"run_dir={tmp_path}/run", "training.max_steps=4", "validation.every=100", *STUDENT]
    command = [
        SCRIPT,
        tmp_path / "config.yaml",
        *own,
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for _ in range(2):  # the second time all is there
        done = subprocess.run(
            [*torchrun, *meeting, *command, "--from-teacher"],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
        assert done.returncode == 0, done.stderr
    assert done.stderr.count("already done") == 3
    home = tmp_path / "run-teachers"
    for name, language, place in (("forward", "xx", 0), ("backward", "yy", 1)):
        texts = (corpus_folder / f"train.{language}").read_text().splitlines()
        made = [pair[1 - place] for pair in rows(file_of(home, f"{name}-1-of-1"))]
        assert made == Translator.load(home / name, device="cpu").translate(texts)
    newest = read_checkpoint(list_checkpoints(tmp_path / "run")[-1][1])
    assert newest.step == 6
    assert newest.config.init_from == f"{home}/forward"


def test_a_teacher_that_learned_more_translates_anew(
    diversify: Diversify, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert diversify() == 0
    home = tmp_path / "run-teachers"
    before = file_of(home, "forward-1-of-1")
    more = ("training.max_steps=40", "training.learning_rate=0.02")
    assert diversify(*more) == 1
    assert "run: holds a run without these translations" in capsys.readouterr().err
    assert before in home.glob("forward-1-of-1-*/pairs.jsonl")
    assert len(list(home.glob("forward-1-of-1-*"))) == 2


def test_teachers_of_other_data_are_not_asked(
    diversify: Diversify, corpus_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As many lines in another order, and references that belong to other lines."""
    for language in ("xx", "yy"):
        text = (corpus_folder / f"train.{language}").read_text()
        (tmp_path / f"train.{language}").write_text(text)
    own = [f"data.train.0.source={tmp_path}/train.xx", f"data.train.0.target={tmp_path}/train.yy"]
    assert diversify(*own) == 0
    home = tmp_path / "run-teachers"
    before = {path: path.stat().st_mtime_ns for path in home.rglob("*.safetensors")}
    for language in ("yy", "xx"):
        path = tmp_path / f"train.{language}"
        (home / "train.jsonl").unlink()
        path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))
        capsys.readouterr()
        assert diversify(*own) == 1
        assert f"{home}: its teachers have learned from other data" in capsys.readouterr().err
        assert before == {path: path.stat().st_mtime_ns for path in home.rglob("*.safetensors")}
    shutil.rmtree(home)
    shutil.rmtree(tmp_path / "run")
    assert diversify(*own) == 0
    learned = read_checkpoint(list_checkpoints(tmp_path / "run")[-1][1]).config.data.train
    for place, corpus in enumerate(learned[-2:]):
        text = (tmp_path / f"train.{('xx', 'yy')[place]}").read_text()
        assert [pair[place] for pair in rows(Path(str(corpus.path)))] == text.splitlines()


@pytest.mark.parametrize("change", ["damage", "search"])
def test_translations_are_made_anew_when_what_they_are_made_of_has_changed(
    change: str, diversify: Diversify, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And a run that has learned from what was there before is not called done."""
    own = ["training.max_steps=60", "--n-best", "5", "--keep", "1"]
    assert diversify(*own) == 0
    assert diversify(*own) == 0
    home = tmp_path / "run-teachers"
    file = file_of(home, "forward-1-of-5")
    before = rows(file)
    if change == "damage":
        file.write_bytes(file.read_bytes()[:500])
    else:
        own += ["decoding.max_length=1", "decoding.max_length_ratio=0"]
    capsys.readouterr()
    status = diversify(*own)
    assert "run-teachers/forward translates 150 sentences" in capsys.readouterr().err
    assert rows(file) == before
    if change == "damage":
        assert status == 0
    else:
        assert status == 1
        (new,) = (x for x in home.glob("forward-1-of-5-*/pairs.jsonl") if x != file)
        assert rows(new) != before


def test_a_second_call_does_nothing_where_epochs_decide(
    diversify: Diversify, tmp_path: Path
) -> None:
    own = ["data.validation=[]", "training.max_epochs=2", "--from-teacher"]
    assert diversify(*own) == 0
    files = {path: path.read_bytes() for path in (tmp_path / "run-teachers").glob("*/pairs.jsonl")}
    assert len(files) == 2
    assert diversify(*own) == 0
    assert files == {path: path.read_bytes() for path in files}


def test_the_model_takes_as_many_updates_as_its_teacher_where_epochs_decide(
    diversify: Diversify, tmp_path: Path
) -> None:
    many = "training.max_steps=100"
    limits = ("training.max_epochs=2", many, "--student", many)
    assert diversify(*limits) == 0
    teacher, student = (
        [step for step, _ in list_checkpoints(tmp_path / name)]
        for name in ("run-teachers/forward", "run")
    )
    assert teacher == student
    assert 4 < teacher[-1] < 100


def test_teachers_that_stop_early_do_not_shorten_the_model(
    diversify: Diversify, tmp_path: Path
) -> None:
    many = "training.max_steps=100"
    early = ("validation.every=2", "validation.metric=loss", "training.learning_rate=1e-9")
    limits = ("training.max_epochs=2", many, "validation.patience=1", *early, "--student", many)
    own = ("--student", "validation.patience=99", "--student", "training.learning_rate=1e-3")
    assert diversify(*limits, *own) == 0
    teacher, student = (
        list_checkpoints(tmp_path / name)[-1][0] for name in ("run-teachers/forward", "run")
    )
    assert teacher == 4 < student


def test_a_model_whose_warm_up_is_longer_than_its_teacher_is_refused_at_once(
    diversify: Diversify, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many = "training.max_steps=100"
    limits = ("training.max_epochs=2", many, "training.schedule=cosine", "--student", many)
    assert diversify(*limits, "--student", "training.warmup_steps=99") == 1
    assert re.search(r"--student: takes \d+ updates as its teacher", capsys.readouterr().err)
    assert list_checkpoints(tmp_path / "run-teachers" / "forward") == []


def test_a_model_that_learns_from_other_pairs_than_its_teachers(
    diversify: Diversify, corpus_folder: Path, tmp_path: Path
) -> None:
    """And that is moved with them."""
    for language in ("xx", "yy"):
        lines = (corpus_folder / f"train.{language}").read_text().splitlines(keepends=True)
        (tmp_path / f"few.{language}").write_text("".join(lines[:50]))
    few = f"data.train=[{{source: {tmp_path}/few.xx, target: {tmp_path}/few.yy}}]"
    assert diversify("--student", few) == 0
    pairs = rows(file_of(tmp_path / "run-teachers", "forward-1-of-1"))
    assert [source for source, _ in pairs] == (tmp_path / "few.xx").read_text().splitlines()
    before = {path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}
    for name in ("run", "run-teachers"):
        (tmp_path / name).rename(tmp_path / name.replace("run", "moved"))
    assert diversify("--student", few, f"run_dir={tmp_path}/moved") == 0
    assert before == {path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}


def test_what_cannot_be_is_refused_before_anything_is_trained(
    diversify: Diversify, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for options, says in (
        (["data.drop_duplicates=true", "--n-best", "2"], "data.drop_duplicates: the data is there"),
        (["decoding.shortlist=x"], "decoding.shortlist: is for one direction"),
        (["--student", "run_dir=x"], "--student run_dir: the teachers are beside it"),
        (["seed=2147483647", "--teachers", "2"], "the last teacher would have 2147483648"),
        (["run_dir=/"], "run_dir /: has no place beside it"),
        (["--n-best", "10001"], "--n-best 10001: a beam has 10000 at most"),
        (
            ["--from-teacher", "--student", "init_from=x"],
            "--student init_from: with --from-teacher",
        ),
    ):
        assert diversify(*options) == 1
        assert says in capsys.readouterr().err
    assert not (tmp_path / "run-teachers").exists()


def test_a_student_that_cannot_begin_with_the_teachers_weights_is_refused_at_once(
    diversify: Diversify, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert diversify("--from-teacher", "--student", "model.d_ff=8") == 1
    error = capsys.readouterr().err
    assert "--from-teacher: model.d_ff is 8 for the student and" in error
    assert not (tmp_path / "run-teachers").exists()
    assert diversify("--from-teacher", "--student", "model.dropout=0.5") == 0


def test_tags_and_other_runs_are_refused_before_anything_is_trained(
    diversify: Diversify, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert diversify("data.train.0.tag=<a>", "tokenizer.user_symbols=[<a>]") == 1
    assert "leave the tag out" in capsys.readouterr().err
    train(
        load_config(tmp_path / "config.yaml", [f"run_dir={tmp_path}/run", "training.max_steps=2"])
    )
    assert diversify() == 1
    assert "run: holds a run without these translations" in capsys.readouterr().err
    assert not (tmp_path / "run-teachers").exists()
