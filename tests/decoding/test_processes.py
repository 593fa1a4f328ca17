"""Several processes that search."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from small_task import Command

from transformer import Translator
from transformer.data.tokenizer import Tokenizers
from transformer.decoding.options import SearchOptions
from transformer.decoding.processes import Processes, num_processes
from transformer.decoding.sampling_options import SamplingOptions
from transformer.errors import UserError
from transformer.model.transformer import Transformer


def test_answers_come_in_order_from_other_processes() -> None:
    processes = Processes(lambda x: (x * x, os.getpid()), 3)
    found = list(processes.map(range(50)))
    assert [square for square, _ in found] == [x * x for x in range(50)]
    assert os.getpid() not in {process for _, process in found}
    assert [square for square, _ in processes.map([7])] == [49]
    processes.close()
    assert not processes.is_open


def fails(x: int) -> int:
    if x == 5:
        raise UserError("line 5: wrong")
    return 1 // (x - 8)


@pytest.mark.parametrize(
    ("tasks", "kind", "said"),
    [(range(7), UserError, "^line 5: wrong$"), ([8], RuntimeError, "ZeroDivisionError")],
)
def test_what_is_raised_there_is_raised_here(
    tasks: range, kind: type[Exception], said: str
) -> None:
    processes = Processes(fails, 2)
    with pytest.raises(kind, match=said):
        list(processes.map(tasks))
    assert not processes.is_open


def test_a_process_that_is_killed_is_named_and_no_answer_is_made_up() -> None:
    def dies(x: int) -> int:
        if x == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    processes, found = Processes(dies, 2), list[int]()
    with pytest.raises(UserError, match=r"ended \(exit status -9\); memory may have run out"):
        found.extend(processes.map(range(100)))
    assert found == list(range(len(found)))
    assert len(found) <= 3


def test_they_are_gone_when_a_check_stops_the_work() -> None:
    processes, asked = Processes(lambda _: os.getpid(), 2), []

    def check() -> None:
        asked.append(1)
        if len(asked) == 5:
            raise KeyboardInterrupt

    found: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        found.extend(processes.map(range(100), check))
    for process in set(found):
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_they_end_when_their_parent_is_killed() -> None:
    code = """
import os
from transformer.decoding.processes import Processes
found = Processes(lambda _: os.getpid(), 2).map(range(9))
print(*{next(found) for _ in range(9)}, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert done.returncode == -signal.SIGKILL
    processes = done.stdout.split()
    assert processes
    for process in map(int, processes):
        try:
            handle = os.pidfd_open(process)
        except ProcessLookupError:
            continue
        assert select.select([handle], [], [], 30)[0], f"{process} lives on"
        os.close(handle)


@pytest.mark.parametrize(
    ("options", "sampling"),
    [
        (SearchOptions(), None),
        (SearchOptions(beam_size=4, n_best=3), None),
        (SearchOptions(beam_size=1), SamplingOptions(sample=2, seed=3)),
    ],
)
def test_translations_are_those_of_one_process(
    make_model: Callable[..., Transformer],
    tokenizers: Tokenizers,
    options: SearchOptions,
    sampling: SamplingOptions | None,
) -> None:
    models = [make_model(seed, tokenizers.source.vocab_size) for seed in (1, 2)]
    lines = [f"the {'dog ' * (i % 7)}sleeps {i}" for i in range(40)] + ["", "a cat"]
    options = replace(options, max_length=5, max_length_ratio=0.0)
    found = []
    for num in (1, 2):
        translator = Translator(models, tokenizers, options, batch_tokens=60, processes=num)
        translator.sampling = sampling
        found.append(translator.translate_n_best(lines))
        again = translator.translate_n_best(lines[:9])
        assert [[t.ids for t in x] for x in again] == [[t.ids for t in x] for x in found[-1][:9]]
    for one, other in zip(*found, strict=True):
        assert [t.ids for t in one] == [t.ids for t in other]
        assert [t.score for t in one] == pytest.approx([t.score for t in other], nan_ok=True)


def test_zero_asks_for_one_for_each_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.get_num_threads", lambda: 6)
    assert [num_processes(asked) for asked in (0, 1, 3)] == [6, 1, 3]


def test_the_command_says_the_same_with_more_processes(
    trained_run: Path, corpus_folder: Path, command: Command
) -> None:
    given = ("translate", trained_run, "--input", corpus_folder / "valid.xx", "--batch-tokens", 90)
    one, two = (command(*given, "--scores", "--processes", num) for num in (1, 2))
    assert one.status == two.status == 0
    assert one.lines == two.lines
