"""The commands that use a model: translate, score, evaluate."""

from __future__ import annotations

import gzip
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sacrebleu
from small_task import Command

from transformer.decoding.options import SearchOptions
from transformer.decoding.translator import Translator
from transformer.training.checkpoint import list_checkpoints, load_model

AWKWARD = "a\u2028b\nc\u0085d\ne\x0cf\ng\x1ch\ni\rj\nk\r\nl\n".encode()
TRANSLATE = [sys.executable, "-m", "transformer", "translate"]


@pytest.fixture
def source(corpus_folder: Path) -> Path:
    """A file of source lines."""
    return corpus_folder / "valid.xx"


@pytest.fixture
def reference(corpus_folder: Path) -> Path:
    """A file of their reference translations."""
    return corpus_folder / "valid.yy"


def test_an_empty_line_is_translated_into_an_empty_line(
    trained_run: Path, command: Command
) -> None:
    done = command("translate", trained_run, input=b"a\n\nb\n")
    assert done.status == 0
    assert len(done.lines) == 3
    assert done.lines[1] == ""
    assert done.lines[0]


def test_ctrl_c_ends_a_translator_that_waits_for_a_line(trained_run: Path) -> None:
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
    code += "from transformer.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", code, "translate", str(trained_run)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            process.stdin.write(b"a\n")
            process.stdin.flush()
            assert process.stdout.readline()
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 130
        finally:
            process.kill()


def test_lines_of_only_spaces_are_translated_into_empty_lines(
    trained_run: Path, command: Command
) -> None:
    done = command("translate", trained_run, input="   \n\t\n\u00a0\n".encode())
    assert (done.status, done.lines) == (0, ["", "", ""])


def test_a_line_of_5000_words_costs_one_warning_that_names_it(
    brief_model: Path, command: Command
) -> None:
    text = f"a b\n{'a ' * 5000}\nb a\n".encode()
    done = command("translate", brief_model, input=text)
    assert done.status == 0
    assert len(done.lines) == 3
    warnings = [line for line in done.error.splitlines() if "warning: line 2:" in line]
    assert len(warnings) == 1
    assert "more than the 256 of training" in warnings[0]
    assert "lines longer than any that the model was trained on: 1" in done.error


def test_equal_lines_get_equal_translations(trained_run: Path, command: Command) -> None:
    done = command("translate", trained_run, input=b"a b ab\n" * 50)
    assert len(done.lines) == 50
    assert len(set(done.lines)) == 1


def test_only_a_line_feed_ends_a_line_of_input_and_of_output(
    trained_run: Path, command: Command
) -> None:
    done = command("translate", trained_run, input=AWKWARD)
    assert done.status == 0
    assert done.output.count(b"\n") == 7
    assert b"\r" not in done.output


def test_invalid_utf8_is_named_by_its_line(trained_run: Path, command: Command) -> None:
    done = command("translate", trained_run, input=b"a\nb\nc\xe9d\n")
    assert done.status == 1
    assert "standard input:3: not valid UTF-8 (byte 0xe9" in done.error
    assert "Traceback" not in done.error


def test_no_input_gives_no_output(trained_run: Path, command: Command) -> None:
    done = command("translate", trained_run)
    assert (done.status, done.output) == (0, b"")


def test_n_best_prints_scores_and_texts_the_best_first(
    trained_run: Path, command: Command, source: Path
) -> None:
    done = command("translate", trained_run, "--n-best", 3, "--beam-size", 5, "--input", source)
    assert done.status == 0
    rows = [line.split("\t") for line in done.lines]
    assert len(rows) == 3 * len(source.read_text().splitlines())
    assert {len(row) for row in rows} == {2}
    for first in range(0, len(rows), 3):
        scores = [float(score) for score, _ in rows[first : first + 3]]
        assert scores == sorted(scores, reverse=True)
    best = command("translate", trained_run, "--beam-size", 5, "--input", source)
    assert [text for _, text in rows[::3]] == best.lines


def test_as_many_translations_come_as_were_asked_for_even_if_search_finds_fewer(
    trained_run: Path,
) -> None:
    translator = Translator.load(trained_run)
    options = SearchOptions(beam_size=400, n_best=400, max_length=1, max_length_ratio=0.0)
    found = translator.translate_n_best(["a", "", "b"], options)
    assert [len(each) for each in found] == [400, 400, 400]
    assert found[0][0].score > -math.inf
    assert found[0][-1].score == -math.inf


def test_an_input_is_never_written_over(
    trained_run: Path, command: Command, tmp_path: Path
) -> None:
    lines = tmp_path / "lines"
    lines.write_text("a\n")
    done = command("translate", trained_run, "--input", lines, "--output", lines)
    assert (done.status, lines.read_text()) == (1, "a\n")
    assert f"{lines}: is an input too" in done.error


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--device", "abacus", "device abacus: there are auto, cpu, cuda and mps"),
        ("--length-penalty", "1e308", "length_penalty 1e+308 exceeds 10"),
        ("--length-penalty", "inf", "length_penalty inf exceeds 10"),
        ("--max-length", "1" + 20 * "0", "exceeds 1000000"),
    ],
)
def test_an_option_out_of_range_is_refused_in_a_sentence(
    trained_run: Path, command: Command, option: str, value: str, message: str
) -> None:
    done = command("translate", trained_run, option, value, input=b"a\n")
    assert (done.status, done.output) == (1, b"")
    assert message in done.error


def test_more_translations_than_the_beam_holds_are_refused(
    trained_run: Path, command: Command
) -> None:
    done = command("translate", trained_run, "--n-best", 6, "--beam-size", 5, input=b"a\n")
    assert done.status == 1
    assert "--n-best 6 exceeds --beam-size 5" in done.error


def test_files_plain_or_packed_say_what_the_streams_say(
    trained_run: Path, command: Command, source: Path, tmp_path: Path
) -> None:
    packed, plain_out, packed_out = (tmp_path / name for name in ("x.gz", "y", "y.gz"))
    packed.write_bytes(gzip.compress(source.read_bytes()))
    streamed = command("translate", trained_run, input=source.read_bytes())
    for args in (["-i", source, "-o", plain_out], ["-i", packed, "-o", packed_out]):
        done = command("translate", trained_run, *args)
        assert (done.status, done.output) == (0, b"")
    assert plain_out.read_bytes() == streamed.output
    assert gzip.decompress(packed_out.read_bytes()) == streamed.output


def test_a_batch_of_other_size_translates_the_same(
    trained_run: Path, command: Command, source: Path
) -> None:
    one, other = (
        command("translate", trained_run, "-i", source, "--batch-tokens", size)
        for size in (1, 1000)
    )
    assert one.output == other.output


def test_the_locale_changes_nothing(trained_run: Path, command: Command, tmp_path: Path) -> None:
    text = "é ab\nœ ﬁ\n".encode()
    here = command("translate", trained_run, input=text)
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    path = tmp_path / "text"
    path.write_bytes(text)
    with path.open("rb") as stream:
        there = subprocess.run(
            [*TRANSLATE, trained_run], stdin=stream, capture_output=True, env=environment
        )
    assert there.returncode == 0, there.stderr
    assert there.stdout == here.output


@contextmanager
def piped(*command: object) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a process whose streams are pipes; one that hangs is ended after a minute."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([str(x) for x in command], **pipes) as process:  # type: ignore[call-overload]
        timer = threading.Timer(60, process.kill)
        timer.start()
        try:
            yield process
        finally:
            timer.cancel()


def test_a_line_that_comes_alone_is_answered_before_the_next_is_sent(trained_run: Path) -> None:
    with piped(*TRANSLATE, trained_run, "--scores") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in (b"a b\n", b"\n", b"c d\n"):
            process.stdin.write(line)
            process.stdin.flush()
            assert process.stdout.readline().count(b"\t") == 1
        rest, errors = process.communicate()
    assert (rest, process.returncode) == (b"", 0)
    assert b"lines translated: 3" in errors


def test_a_reader_that_leaves_early_causes_no_traceback(trained_run: Path) -> None:
    with piped(*TRANSLATE, trained_run, "--scores") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"a b\n")
        process.stdin.flush()
        assert process.stdout.readline()
        process.stdout.close()
        process.stdin.write(b"c d\n" * 10)
        process.stdin.close()
        errors = process.stderr.read()
    assert (errors, process.returncode) == (b"", 1)


def test_the_score_of_a_translation_is_the_one_that_was_printed_with_it(
    trained_run: Path, command: Command, source: Path, tmp_path: Path
) -> None:
    lines = source.read_text().splitlines()
    translator = Translator.load(trained_run)
    found = [x[0] for x in translator.translate_n_best(lines)]
    encode = translator.tokenizers.target.encode
    kept = [i for i, x in enumerate(found) if encode([x.text])[0] == x.ids]
    assert len(kept) >= 3, "else the claim is empty"
    (tmp_path / "src").write_text("".join(lines[i] + "\n" for i in kept))
    printed = command("translate", trained_run, "--scores", "-i", tmp_path / "src")
    rows = [line.split("\t") for line in printed.lines]
    (tmp_path / "tgt").write_text("".join(text + "\n" for _, text in rows))
    sides = ("--source", tmp_path / "src", "--target", tmp_path / "tgt")
    scored = command("score", trained_run, *sides)
    assert scored.status == 0
    assert [float(x) for x in scored.lines] == pytest.approx(
        [float(score) for score, _ in rows], abs=1.01e-4
    )


def test_scores_in_json_have_the_tokens_and_their_log_probabilities(
    trained_run: Path, command: Command, tmp_path: Path
) -> None:
    (tmp_path / "src").write_text("a b ab\n\nc\n")
    (tmp_path / "tgt").write_text("c d\n\n\n")
    sides = ("--source", tmp_path / "src", "--target", tmp_path / "tgt")
    plain = command("score", trained_run, *sides)
    done = command("score", trained_run, *sides, "--format", "jsonl")
    values = [json.loads(line) for line in done.lines]
    assert [f"{value['score']:.4f}" for value in values] == plain.lines
    target = Translator.load(trained_run).tokenizers.target
    expected = [target.pieces(target.encode(["c d"])[0]), [], ["</s>"]]
    assert [value["tokens"] for value in values] == expected
    for value in values:
        mean = sum(value["log_probs"]) / max(1, len(value["tokens"]))
        assert value["score"] == pytest.approx(mean, abs=1e-6)


def test_scoring_refuses_files_of_different_lengths_with_both_counts(
    trained_run: Path, command: Command, source: Path, tmp_path: Path
) -> None:
    target = tmp_path / "short"
    target.write_text("a\nb\n")
    done = command("score", trained_run, "--source", source, "--target", target)
    assert done.status == 1
    assert f"{source} has 12 lines, {target} has 2" in done.error


def test_evaluate_prints_scores_with_what_they_were_computed_by(
    trained_run: Path, command: Command, tmp_path: Path
) -> None:
    done = command("evaluate", trained_run, "--beam-size", 3, "--output", tmp_path)
    assert done.status == 0
    for name, lines in (("first", done.lines[:4]), ("second", done.lines[4:])):
        assert lines[0].startswith(f"{name}: 12 lines, beam 3, length penalty 1")
        assert [line.split()[0] for line in lines[1:]] == ["BLEU", "chrF", "TER"]
        assert all("version:" in line for line in lines[1:])
        assert len((tmp_path / f"{name}.txt").read_text().splitlines()) == 12


def test_evaluate_as_json_says_what_sacrebleu_says_of_the_translations(
    trained_run: Path, command: Command, source: Path, reference: Path, tmp_path: Path
) -> None:
    sets = ("--source", source, "--reference", reference)
    done = command("evaluate", trained_run, *sets, "--json", "--output", tmp_path)
    (result,) = json.loads(done.output).values()
    assert result["lines"] == 12
    own = subprocess.run(
        [
            *(sys.executable, "-m", "sacrebleu", reference, "-i", result["translations"]),
            *("-m", "bleu", "chrf", "ter", "-w", "6", "--force"),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    theirs = {x["name"].split("2")[0].lower(): x for x in json.loads(own.stdout)}
    for name, metric in result["metrics"].items():
        assert metric["score"] == pytest.approx(theirs[name]["score"], abs=1e-5)
        assert metric["signature"] == theirs[name]["signature"]


def test_case_and_tokenizer_stand_in_the_signature(
    trained_run: Path, command: Command, source: Path, reference: Path, tmp_path: Path
) -> None:
    sets = ("--source", source, "--reference", reference, "--output", tmp_path)
    done = command("evaluate", trained_run, *sets, "--tokenize", "none", "--lowercase")
    (bleu,) = (line for line in done.lines if "BLEU" in line)
    assert "case:lc" in bleu
    assert "tok:none" in bleu


def test_the_target_language_chooses_the_tokenizer_of_validation_and_evaluate(
    own_data: Path, command: Command
) -> None:
    chinese = ("data.target_language=zh", "training.max_steps=1")
    done = command("train", own_data / "config.yaml", *chinese)
    assert done.status == 0, done.error
    lines = (own_data / "run" / "metrics.jsonl").read_text().splitlines()
    (signature,) = (r["signature"] for r in map(json.loads, lines) if r["kind"] == "validation")
    assert "tok:zh" in signature
    sets = ("--source", own_data / "valid.xx", "--reference", own_data / "valid.yy")
    done = command("evaluate", own_data / "run", *sets, "--beam-size", 1)
    (bleu,) = (line for line in done.lines if "BLEU" in line)
    assert "tok:zh" in bleu


def test_several_references_count_together(
    trained_run: Path, command: Command, source: Path, reference: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    command("translate", trained_run, "-i", source, "-o", own)
    sets = ("--source", source, "--reference", reference, "--reference", own)
    done = command("evaluate", trained_run, *sets, "--json", "--output", tmp_path)
    bleu = json.loads(done.output)[source.name]["metrics"]["bleu"]
    assert bleu["score"] == pytest.approx(100)
    assert "nrefs:2" in bleu["signature"]


def test_evaluate_finds_the_bleu_that_validation_found(
    trained_run: Path, command: Command, source: Path, reference: Path, tmp_path: Path
) -> None:
    records = map(json.loads, (trained_run / "metrics.jsonl").read_text().splitlines())
    found = {r["step"]: r for r in records if r["kind"] == "validation"}
    best = max(found.values(), key=lambda r: r["bleu"])
    assert best["bleu"] > 0.5, "else the claim is empty"
    assert load_model(trained_run).step == best["step"]
    newest = list_checkpoints(trained_run)[-1]
    sets = ("--source", source, "--reference", reference, "--output", tmp_path)
    for model, record in ((trained_run, best), (newest[1], found[newest[0]])):
        done = command("evaluate", model, *sets, "--json", "--beam-size", 1)
        metrics = json.loads(done.output)[source.name]["metrics"]
        assert round(metrics["bleu"]["score"], 2) == round(record["bleu"], 2)
        assert round(metrics["chrf"]["score"], 2) == round(record["chrf"], 2)
        assert metrics["bleu"]["signature"] == record["signature"]
        lines = command("translate", model, "--input", source, "--beam-size", 1).lines
        bleu = sacrebleu.corpus_bleu(lines, [reference.read_text().splitlines()])
        assert round(bleu.score, 2) == round(record["bleu"], 2)


def test_windows_line_ends_change_no_score(
    trained_run: Path, command: Command, source: Path, reference: Path, tmp_path: Path
) -> None:
    (tmp_path / "crlf").mkdir()
    for path in (source, reference):
        text = path.read_bytes().replace(b"\n", b"\r\n")
        (tmp_path / "crlf" / path.name).write_bytes(text)
    found = []
    for folder in (source.parent, tmp_path / "crlf"):
        sets = ("--source", folder / source.name, "--reference", folder / reference.name)
        done = command("evaluate", trained_run, *sets, "--json", "--output", tmp_path)
        found.append(json.loads(done.output)[source.name]["metrics"])
    assert found[0] == found[1]
    assert found[0]["bleu"]["score"] > 0.5, "else the claim is empty"


def test_a_folder_that_cannot_be_written_costs_a_warning_and_not_the_result(
    trained_run: Path, command: Command, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("a file stands where the folder should")
    done = command("evaluate", trained_run, "--output", tmp_path / "file" / "folder")
    assert done.status == 0
    assert "warning: " in done.error
    assert "translations could not be written" in done.error
    assert "BLEU" in done.output.decode()


def test_translations_lie_beside_the_model_and_bear_its_name(
    trained_run: Path, command: Command, source: Path, reference: Path, tmp_path: Path
) -> None:
    run_dir = tmp_path / "copy"
    shutil.copytree(trained_run, run_dir)
    model = list_checkpoints(run_dir)[-1][1]
    sets = ("--source", source, "--reference", reference, "--json", "--beam-size", 1)
    for path, expected in (
        (run_dir, run_dir / "translations" / "valid.xx.txt"),
        (model, model.parent / "translations" / f"{model.stem}.valid.xx.txt"),
    ):
        result = json.loads(command("evaluate", path, *sets).output)["valid.xx"]
        assert result["translations"] == str(expected)
        assert len(expected.read_text().splitlines()) == 12
    done = command("evaluate", run_dir, *sets, "--output", source)
    assert done.status == 1
    assert f"{source}: is a file; --output names a folder" in done.error


def test_evaluate_counts_what_was_cut(
    brief_model: Path, command: Command, source: Path, reference: Path, tmp_path: Path
) -> None:
    sets = ("--source", source, "--reference", reference, "--output", tmp_path)
    done = command("evaluate", brief_model, *sets, "--json")
    result = json.loads(done.output)["valid.xx"]
    assert result["cut"] > 0
    assert (
        f"translations cut at their limit (max_length and max_length_ratio): {result['cut']}"
        in (done.error)
    )
    assert (result["empty"], result["longer_than_in_training"]) == (0, 0)


def test_an_ensemble_of_twins_translates_and_scores_as_one(
    trained_run: Path, command: Command, source: Path
) -> None:
    one, two = (
        command("translate", *[trained_run] * count, "--scores", "-i", source) for count in (1, 2)
    )
    assert two.status == 0
    rows, again = ([line.split("\t") for line in done.lines] for done in (one, two))
    assert [text for _, text in rows] == [text for _, text in again]
    scores = [[float(score) for score, _ in found] for found in (rows, again)]
    assert scores[0] == pytest.approx(scores[1], abs=1.01e-4)
