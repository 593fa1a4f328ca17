"""Scores against sacreBLEU's own command."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from transformer.errors import UserError
from transformer.evaluation import compare, evaluate

HYPOTHESES = ["The cat sat on the mat.", "A dog Runs in the park!", "", "He said: it is late."]
REFERENCES = ["The cat is on the mat.", "A dog runs in a big park!", "Yes.", "He said: it is late."]
OTHERS = ["A cat sat on a mat.", "The dog is running in the park.", "Oh.", "It was late, he said."]


def sacrebleu(folder: Path, *arguments: str) -> dict[str, dict]:
    """What sacreBLEU's command prints of HYPOTHESES against the references in `folder`."""
    command = [sys.executable, "-m", "sacrebleu", *arguments, "-i", "hypotheses"]
    command += ["-m", "bleu", "chrf", "ter", "--format", "json", "--width", "10"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return {entry["name"].lower().rstrip("2"): entry for entry in json.loads(done.stdout)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, lines in (("hypotheses", HYPOTHESES), ("one", REFERENCES), ("two", OTHERS)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("files", "references", "options", "arguments"),
    [
        (["one"], [REFERENCES], {}, []),
        (["one", "two"], [REFERENCES, OTHERS], {}, []),
        (
            ["one"],
            [REFERENCES],
            {"tokenize": "none", "lowercase": True},
            ["--tokenize", "none", "--lowercase", "--chrf-lowercase"],
        ),
    ],
)
def test_scores_are_those_of_sacrebleus_command(
    folder: Path,
    files: list[str],
    references: list[list[str]],
    options: dict,
    arguments: list[str],
) -> None:
    expected = sacrebleu(folder, *files, *arguments)
    found = evaluate(HYPOTHESES, references, **options)
    assert found.lines == 4
    assert list(found.metrics) == ["bleu", "chrf", "ter"]
    for name, metric in found.metrics.items():
        assert metric.score == pytest.approx(expected[name]["score"], abs=1e-8)
        for part in metric.signature.split("|"):
            key, value = part.split(":")
            assert str(expected[name][key]) == value


def test_one_right_line_of_three_is_not_perfect() -> None:
    """References nested the wrong way would give 100."""
    lines = ["this line is right here", "x", "y"]
    found = evaluate(lines, [["this line is right here", "not this one", "nor this one here"]])
    assert found.metrics["bleu"].score < 90


@pytest.mark.parametrize(("hypotheses", "references"), [(2, 3), (3, 2), (0, 1)])
def test_counts_that_differ_are_refused_with_both(hypotheses: int, references: int) -> None:
    with pytest.raises(UserError, match=f"{hypotheses} translations and {references} references"):
        evaluate(["a"] * hypotheses, [["a"] * references])


def test_nothing_to_evaluate_is_refused() -> None:
    with pytest.raises(UserError, match="no lines"):
        evaluate([], [[]])
    with pytest.raises(UserError, match="no reference"):
        evaluate(["a"], [])


def test_a_flat_list_of_references_is_refused() -> None:
    with pytest.raises(TypeError, match=r"\[lines\]"):
        evaluate(["a", "b"], ["ab", "cd"])


def test_output_that_looks_tokenised_is_warned_about() -> None:
    found = evaluate(["Hello , world !"], [["Hello, world!"]])
    assert len(found.warnings) == 1
    assert "tokenised" in found.warnings[0]
    assert evaluate(["Hello, world!"], [["Hello, world!"]]).warnings == []
    assert evaluate(["Hello , world !"], [["Hello , world !"]]).warnings == []
    assert evaluate(["Hello , world !"], [["Hello, world!"]], tokenize="none").warnings == []


def test_the_case_setting_stands_in_the_signature() -> None:
    for lowercase, case in ((False, "case:mixed"), (True, "case:lc")):
        found = evaluate(["Hello World"], [["hello world"]], lowercase=lowercase)
        assert case in found.metrics["bleu"].signature
        assert case in found.metrics["chrf"].signature
    assert found.metrics["chrf"].score == pytest.approx(100)


@pytest.mark.parametrize("language", ["zh", "zh-CN", "zho", "ZH_hant"])
def test_chinese_is_cut_into_characters(language: str) -> None:
    found = evaluate(["我们今天去学校"], [["我们今天去公园"]], target_language=language)
    assert "tok:zh" in found.metrics["bleu"].signature
    assert 0 < found.metrics["bleu"].score < 100
    assert found.metrics["ter"].score < 100


MORPHEMES = {
    "ja": (["私は学校に行く", "犬が走る"], ["私は毎日学校に行く", "犬が速く走る"]),
    "ko": (["나는 학교에 간다", "개가 달린다"], ["나는 매일 학교에 간다", "개가 빨리 달린다"]),
}


@pytest.mark.parametrize("language", MORPHEMES)
def test_japanese_and_korean_are_cut_by_mecab_as_sacrebleu_does(
    language: str, tmp_path: Path
) -> None:
    hypotheses, references = MORPHEMES[language]
    found = evaluate(hypotheses, [references], target_language=language).metrics["bleu"]
    assert f"tok:{language}-mecab" in found.signature
    for name, lines in (("hypotheses", hypotheses), ("references", references)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    theirs = subprocess.run(
        [
            *(sys.executable, "-m", "sacrebleu", "references", "-i", "hypotheses"),
            *("-l", f"en-{language}", "-w", "6", "--force"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.score == pytest.approx(json.loads(theirs.stdout)["score"], abs=1e-5)
    assert 0 < found.score < 100


@pytest.mark.parametrize(("language", "module"), [("ja", "MeCab"), ("ko", "mecab_ko")])
def test_without_mecab_characters_count_and_what_is_missing_is_said(
    language: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    monkeypatch.delitem(
        sys.modules, f"sacrebleu.tokenizers.tokenizer_{language}_mecab", raising=False
    )
    hypotheses, references = MORPHEMES[language]
    found = evaluate(hypotheses, [references], target_language=language)
    assert "tok:char" in found.metrics["bleu"].signature
    assert f"sacrebleu[{language}]" in found.warnings[0]


def test_an_unknown_tokenizer_or_metric_is_refused_with_those_there_are() -> None:
    with pytest.raises(UserError, match="13a"):
        evaluate(["a"], [["a"]], tokenize="moses")
    with pytest.raises(UserError, match="bleu, chrf, ter"):
        evaluate(["a"], [["a"]], metrics=["meteor"])


def test_the_json_holds_all_of_it() -> None:
    found = evaluate(["Hello , world !"], [["Hello, world!"]])
    told = json.loads(found.to_json())
    assert told["lines"] == 1
    assert told["warnings"] == found.warnings
    assert told["metrics"]["ter"]["signature"] == found.metrics["ter"].signature


def test_a_comparison_says_what_sacrebleus_paired_bootstrap_says(folder: Path) -> None:
    others = ["The cat is on the mat.", "A dog runs in a park!", "Yes.", "It is late, he said."]
    (folder / "baseline").write_text("".join(f"{line}\n" for line in others), encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", "one", "-i", "baseline", "hypotheses"]
    command += ["-m", "bleu", "chrf", "ter", "--paired-bs", "--format", "latex", "--width", "6"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    rows = [line.split("&")[1:] for line in done.stdout.splitlines() if "&" in line]
    _, baseline, system = (
        [[float(x) for x in re.findall(r"\d+\.\d+", cell)] for cell in row] for row in rows
    )
    found = compare(HYPOTHESES, others, [REFERENCES])
    assert list(found) == ["bleu", "chrf", "ter"]
    for comparison, (*score, p_value), other in zip(found.values(), system, baseline, strict=True):
        for mine, theirs in ((comparison.this, score), (comparison.other, other)):
            assert [mine.score, mine.mean, mine.interval] == pytest.approx(theirs, abs=1e-5)
        assert comparison.p_value == pytest.approx(p_value, abs=6e-5)
        assert comparison.difference == comparison.this.score - comparison.other.score
        assert "bs:1000|seed:12345" in comparison.signature


def test_a_system_is_no_better_than_itself() -> None:
    for comparison in compare(HYPOTHESES, HYPOTHESES, [REFERENCES]).values():
        assert comparison.difference == 0
        assert comparison.p_value == 1


def test_equal_scores_of_different_texts_are_no_difference() -> None:
    upper = [line.upper() for line in HYPOTHESES]
    found = compare(HYPOTHESES, upper, [REFERENCES], lowercase=True)
    assert [(x.this.score - x.other.score, x.p_value) for x in found.values()] == [(0, 1)] * 3


def test_systems_of_different_length_are_not_compared() -> None:
    with pytest.raises(UserError, match="3 translations and 4 references"):
        compare(HYPOTHESES, HYPOTHESES[:3], [REFERENCES])


def test_a_seed_that_is_no_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", "lucky")
    with pytest.raises(UserError, match=r"SACREBLEU_SEED.*lucky"):
        compare(HYPOTHESES, HYPOTHESES, [REFERENCES])
