"""What encoding is built from."""

import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer.data.duplicates import first_occurrences
from transformer.data.parallel import in_parallel, num_cores


@given(values=st.lists(st.integers(0, 9)))
def test_only_the_first_of_equal_values_is_first(values: list[int]) -> None:
    seen: set[int] = set()
    expected = [not (value in seen or seen.add(value)) for value in values]
    assert first_occurrences(np.array(values, dtype=np.uint64)).tolist() == expected


@pytest.mark.parametrize("num_threads", [0, 1, 3])
def test_results_come_in_order_and_only_a_few_ahead(num_threads: int) -> None:
    started, lock = [], threading.Lock()

    def work(task: int) -> int:
        with lock:
            started.append(task)
        return task * task

    for done, result in enumerate(in_parallel(work, range(100), num_threads)):
        assert result == done * done
        assert len(started) <= done + 1 + 2 * (num_threads or num_cores())
    assert sorted(started) == list(range(100))


@pytest.mark.parametrize("num_threads", [1, 3])
def test_an_error_comes_where_its_result_would(num_threads: int) -> None:
    results = in_parallel(lambda task: 1 // (task - 5), range(100), num_threads)
    assert [next(results) for _ in range(5)] == [-1, -1, -1, -1, -1]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_translating_does_not_wait_for_the_data_library() -> None:
    code = """
import sys
import transformer.data.corpus
import transformer.data.tokenizer
print('datasets' in sys.modules)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"
