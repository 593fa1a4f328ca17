"""What `transformer translate` can do beyond a line in and a line out."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from small_task import Command

from transformer.training.checkpoint import BEST, read_checkpoint, write_checkpoint

LINES = ["a b ab", "", "c d", "gfe a", "b b b"]
TEXT = "".join(line + "\n" for line in LINES).encode()


def jsonl(*values: object) -> bytes:
    return "".join(json.dumps(value) + "\n" for value in values).encode()


def test_json_lines_say_what_plain_lines_say_and_more(trained_run: Path, command: Command) -> None:
    requests = [{"id": [i], "text": line} for i, line in enumerate(LINES)]
    asked = ("translate", trained_run, "--n-best", 3, "--beam-size", 4)
    done = command(*asked, "--format", "jsonl", "--alignments", "soft", input=jsonl(*requests))
    assert done.status == 0
    plain = [line.split("\t") for line in command(*asked, input=TEXT).lines]
    found = [json.loads(line) for line in done.lines]
    assert [value["id"] for value in found] == [[i] for i in range(len(LINES))]
    for line, value, rows in zip(LINES, found, zip(*[iter(plain)] * 3, strict=True), strict=True):
        every = [value, *value["alternatives"]]
        assert [each["text"] for each in every] == [text for _, text in rows]
        for each, (score, _) in zip(every, rows, strict=True):
            assert each["score"] == pytest.approx(float(score), abs=1e-4)
            assert len(each["tokens"]) == len(each["log_probs"])
            if line:
                mean = sum(each["log_probs"]) / len(each["log_probs"])
                assert each["score"] == pytest.approx(mean, abs=1e-5)
                assert each["tokens"][-1] == "</s>"
            assert len(each["weights"]) == len(each["text"].split())
            assert all(len(row) == len(line.split()) for row in each["weights"])
            for i, j in each["alignment"]:
                assert each["weights"][j][i] == max(each["weights"][j])


def test_what_a_line_asks_for_holds_in_all_of_its_translations(
    trained_run: Path, command: Command
) -> None:
    asked = ("translate", trained_run, "--n-best", 3, "--beam-size", 4, "--format", "jsonl")
    words = command("translate", trained_run, input=b"a b ab\n").lines[0].split()
    requests = [
        {"text": "a b ab", "prefix": "c d"},
        {"text": "a b ab", "must_contain": ["dc ef", "g"]},
        {"text": "a b ab", "must_not_contain": words[:1]},
        {"text": "a b ab", "must_contain": ["g"], "must_not_contain": ["g"]},
        {"text": "a b ab"},
    ]
    done = command(*asked, input=jsonl(*requests))
    assert done.status == 0
    found = [json.loads(line) for line in done.lines]
    texts = [[x["text"] for x in (each, *each["alternatives"])] for each in found]
    assert all(text.startswith("c d") for text in texts[0])
    assert all("dc ef" in text and "g" in text for text in texts[1])
    assert not any(words[0] in text.split() for text in texts[2])
    assert (found[3]["text"], found[3]["score"], found[3]["alternatives"]) == ("", None, [])
    assert "line 4: no translation keeps to what was asked for" in done.error
    assert texts[4][0].split() == words


def test_settings_of_the_search_are_options(trained_run: Path, command: Command) -> None:
    translate = ("translate", trained_run, "--format", "jsonl")
    line = jsonl({"text": "a a a a a a a a"})

    def tokens(*options: object) -> list[str]:
        return json.loads(command(*translate, *options, input=line).lines[0])["tokens"]

    plain = tokens()
    assert len(plain) > 2, "else the claim is empty"
    assert len(tokens("--max-length", 1, "--max-length-ratio", 0)) == 2
    assert len(tokens("--max-length", 40, "--min-length", 40)) > 40
    assert len(plain) > len(set(plain))
    once = tokens("--no-repeat-ngram", 1)
    assert len(once) == len(set(once))
    groups = ("--beam-size", 4, "--n-best", 4, "--beam-groups", 4, "--diversity", 20)
    found = json.loads(command(*translate, *groups, input=line).lines[0])
    firsts = [each["tokens"][0] for each in (found, *found["alternatives"])]
    assert len(set(firsts)) == len(firsts) > 1


def test_scores_by_another_formula_are_those_that_forced_scoring_gives(
    trained_run: Path, command: Command, tmp_path: Path
) -> None:
    formula = ("--length-normalization", "gnmt", "--length-penalty", 0.6, "--coverage-penalty", 0.2)
    lines = "a b ab\nc d\ngfe a\n"
    done = command("translate", trained_run, "--scores", *formula, input=lines.encode())
    rows = [line.split("\t") for line in done.lines]
    (tmp_path / "source").write_text(lines)
    (tmp_path / "target").write_text("".join(text + "\n" for _, text in rows))
    sides = ("--source", tmp_path / "source", "--target", tmp_path / "target")
    scored = command("score", trained_run, *sides, *formula)
    assert [float(x) for x in scored.lines] == pytest.approx(
        [float(score) for score, _ in rows], abs=1.01e-4
    )
    assert scored.lines != command("score", trained_run, *sides).lines


def test_a_line_that_is_no_request_ends_the_command_after_those_before_it(
    trained_run: Path, command: Command, tmp_path: Path
) -> None:
    path = tmp_path / "x.jsonl"
    translations = command("translate", trained_run, input=b"a b\nc d\n").lines
    for wrong, message, options in (
        ({"prefx": "c"}, "prefx: no such key; did you mean prefix?", ()),
        ({"tag": "<2de>"}, "tag <2de>: no symbol of the source vocabulary; it has none", ()),
        ({"must_contain": "c"}, "must_contain is for a search", ("--sample", 1)),
    ):
        path.write_bytes(jsonl({"text": "a b"}, {"text": "c d"}, {"text": "a b"} | wrong))
        done = command("translate", trained_run, "--format", "jsonl", "--input", path, *options)
        assert done.status == 1
        assert len(done.lines) == 2
        assert options or [json.loads(line)["text"] for line in done.lines] == translations
        assert f"{path}:3: {message}" in done.error
        assert "Traceback" not in done.error


def test_alignments_stand_behind_each_translation_and_are_those_of_align(
    trained_run: Path, command: Command, tmp_path: Path
) -> None:
    (tmp_path / "source").write_bytes(TEXT)
    done = command("translate", trained_run, "--alignments", "hard", input=TEXT)
    rows = [line.split("\t") for line in done.lines]
    assert [text for text, _ in rows] == command("translate", trained_run, input=TEXT).lines
    (tmp_path / "target").write_text("".join(text + "\n" for text, _ in rows))
    sides = ("--source", tmp_path / "source", "--target", tmp_path / "target")
    aligned = command("align", trained_run, *sides)
    assert aligned.status == 0
    assert aligned.lines == [pairs for _, pairs in rows]
    for line, (text, pairs) in zip(LINES, rows, strict=True):
        for pair in pairs.split():
            i, j = map(int, pair.split("-"))
            assert i < len(line.split())
            assert j < len(text.split())
    soft = command("align", trained_run, *sides, "--soft", "--layer", 1)
    weights = [float(pair.split(":")[1]) for pair in soft.lines[0].split()]
    assert sum(weights) <= len(rows[0][0].split()) + 0.01 * len(weights)


def test_a_layer_that_is_not_there_is_refused(
    trained_run: Path, command: Command, tmp_path: Path
) -> None:
    (tmp_path / "x").write_text("a\n")
    sides = ("--source", tmp_path / "x", "--target", tmp_path / "x")
    done = command("align", trained_run, *sides, "--layer", 2)
    assert (done.status, done.output) == (1, b"")
    assert "layer 2: the decoder has layers 1 to 1" in done.error


def test_samples_are_the_same_in_other_batches_and_differ_by_seed(
    trained_run: Path, command: Command
) -> None:
    sampled = ("translate", trained_run, "--sample", 4, "--top-p", 0.95)
    one, other = (
        command(*sampled, "--seed", 5, "--batch-tokens", size, input=TEXT) for size in (3, 500)
    )
    assert len(one.lines) == 4 * len(LINES)
    assert [x.split("\t")[1] for x in one.lines] == [x.split("\t")[1] for x in other.lines]
    assert command(*sampled, "--seed", 6, input=TEXT).lines != one.lines
    cold = command("translate", trained_run, "--sample", 1, "--temperature", 0, input=TEXT)
    assert cold.lines == command("translate", trained_run, "--beam-size", 1, input=TEXT).lines


def test_minimum_bayes_risk_gives_one_line_for_each(trained_run: Path, command: Command) -> None:
    for candidates in (("--sample", 8), ("--n-best", 5)):
        done = command("translate", trained_run, *candidates, "--mbr", "chrf", input=TEXT)
        assert done.status == 0
        assert len(done.lines) == len(LINES)
        every = command("translate", trained_run, *candidates, input=TEXT)
        texts = [line.split("\t")[1] for line in every.lines]
        num = candidates[1]
        for i, line in enumerate(done.lines):
            assert line in texts[i * num : (i + 1) * num]


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (("--temperature", 2), 2, "--temperature goes with --sample"),
        (("--sample", 2, "--top-p", 1.5), 1, "--top-p 1.5"),
        (("--sample", 0), 2, "--sample"),
        (("--sample", 2, "--beam-size", 3), 2, "--beam-size is for a search"),
        (("--format", "xml"), 2, "xml"),
        (("--mbr", "meteor"), 2, "meteor"),
        (("--mbr", "chrf"), 2, "--mbr chooses among several: add --n-best or --sample"),
        (("--length-normalization", "none"), 2, "none"),
        (("--beam-groups", 2), 1, "beam_groups 2 does not divide beam_size 5"),
        (("--min-length", 60), 1, "min_length 60 exceeds max_length 5"),
    ],
)
def test_an_option_that_cannot_be_is_refused_before_any_line(
    trained_run: Path, command: Command, options: tuple, status: int, message: str
) -> None:
    done = command("translate", trained_run, *options, input=b"a\n")
    assert (done.status, done.output) == (status, b"")
    assert message in done.error
    assert "Traceback" not in done.error


def test_long_lines_are_split_at_sentence_ends_when_asked_to_be(
    trained_run: Path, command: Command, tmp_path: Path
) -> None:
    model = tmp_path / "x.safetensors"
    trained = read_checkpoint(trained_run / BEST)
    trained.metadata["config"]["data"]["max_length"] = 8
    write_checkpoint(model, trained.tensors, trained.metadata)
    sentences = ["Ab bc.", "Cd de.", "Ef ga fe."]
    done = command("translate", model, "--split-sentences", input=" ".join(sentences).encode())
    alone = command("translate", model, input="\n".join(sentences).encode())
    assert done.lines == [" ".join(alone.lines)]
    assert "lines split at the ends of their sentences: 1" in done.error


@contextmanager
def on_terminal(*command: object) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Starts a process on a terminal of its own; one that hangs is ended after a minute."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [str(x) for x in command], stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True
    )
    os.close(theirs)
    timer = threading.Timer(60, process.kill)
    timer.start()
    try:
        yield process, ours
    finally:
        timer.cancel()
        process.kill()
        process.wait()
        os.close(ours)


def read_until(terminal: int, end: bytes) -> bytes:
    seen = b""
    while not seen.endswith(end):
        seen += os.read(terminal, 1)
    return seen


def test_on_a_terminal_it_asks_for_a_line_and_answers_before_it_asks_again(
    trained_run: Path, command: Command
) -> None:
    expected = command("translate", trained_run, input=b"a b ab\nc d\n").lines
    translate = (sys.executable, "-m", "transformer", "translate", trained_run)
    with on_terminal(*translate) as (process, terminal):
        assert b"Ctrl-D ends" in read_until(terminal, b"xx> ")
        for line, translation in zip((b"a b ab", b"c d"), expected, strict=True):
            os.write(terminal, line + b"\n")
            shown = read_until(terminal, b"xx> ").decode()
            assert translation in shown.replace("\r", "").split("\n")
        os.write(terminal, b"\x04")
        assert process.wait(30) == 0


def test_on_a_terminal_a_line_that_is_no_request_is_said_and_asked_again(
    trained_run: Path, command: Command
) -> None:
    (expected,) = command("translate", trained_run, input=b"a b ab\n").lines
    translate = (sys.executable, "-m", "transformer", "translate", trained_run)
    with on_terminal(*translate, "--format", "jsonl") as (process, terminal):
        read_until(terminal, b"xx> ")
        for number, line in enumerate((b"a b", b'{"text": "a", "tag": "<2de>", "id": 1}'), 1):
            os.write(terminal, line + b"\n")
            assert b"transformer: line:%d: " % number in read_until(terminal, b"xx> ")
        os.write(terminal, b'{"text": "a b ab", "id": 2}\n')
        shown = read_until(terminal, b"xx> ").decode().replace("\r", "").split("\n")
        (answer,) = [json.loads(line) for line in shown if "score" in line]
        assert (answer["id"], answer["text"]) == (2, expected)
        os.write(terminal, b"\x04")
        assert process.wait(30) == 0


def peak_memory(model: Path, lines: Path) -> int:
    """Translates a file in a process of its own; returns the most memory it held, in KiB."""
    code = (
        "import resource, sys; from transformer.cli import main; sys.argv[0] = 'transformer'\n"
        "try: main()\n"
        "except SystemExit as ended: assert not ended.code\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"
    )
    translate = ("translate", model, "--input", lines, "--output", os.devnull, "--beam-size", "1")
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, translate)], capture_output=True, check=True
    )
    return int(done.stderr.split()[-1])


@pytest.mark.slow
def test_memory_does_not_grow_with_the_lines(trained_run: Path, tmp_path: Path) -> None:
    few, many = tmp_path / "few", tmp_path / "many"
    few.write_bytes(TEXT * 1_600)  # already more than are taken together
    many.write_bytes(TEXT * 8_000)
    assert peak_memory(trained_run, many) < peak_memory(trained_run, few) + 10_000


def test_translating_loads_no_compiler(trained_run: Path, tmp_path: Path) -> None:
    """PyTorch's compiler takes longer to load than all else together."""
    lines = tmp_path / "lines"
    lines.write_text("a b\n")
    arguments = ["transformer", "translate", str(trained_run), "--input", str(lines)]
    code = f"""
import sys
from transformer.cli import main
sys.argv = {arguments}
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    loaded = done.stderr.split()
    assert "transformer.decoding.search" in loaded
    others = {"torch._dynamo", "datasets", "sacrebleu", "tensorboard", "pandas", "pyarrow"}
    assert not others & set(loaded)
