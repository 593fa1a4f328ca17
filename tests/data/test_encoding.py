"""What encoding is built from."""

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from transformer.data.encoding import type_of_ids
from transformer.data.parallel import in_parallel, num_cores


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


@pytest.mark.parametrize("vocab_size", [4, 65_535, 65_536, 65_537, 250_000])
def test_ids_of_any_vocabulary_fit_their_type(vocab_size: int) -> None:
    info = np.iinfo(type_of_ids(vocab_size))
    assert info.max >= vocab_size - 1
    assert info.bits == 16 or vocab_size > 65_536


def test_translating_does_not_wait_for_the_data_library() -> None:
    code = """
import sys
import transformer.data.corpus
import transformer.data.tokenizer
print('datasets' in sys.modules)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


PREPARE = """
import sys
from pathlib import Path
import torch
from transformer.config import Config
from transformer.training.trial import peak_memory
from transformer.data.corpus import encode_corpus, load_corpora, prepare_tokenizers
folder, num_pairs = Path(sys.argv[1]), int(sys.argv[2])
for side in ("src", "tgt"):
    with open(folder / side, "w") as file:
        for i in range(num_pairs):
            file.write(f"{i} word number {i % 977} of {side} and {i % 89} more of them\\n")
files = {"source": str(folder / "src"), "target": str(folder / "tgt")}
data = {"train": [files], "cache_dir": str(folder / "cache"), "num_threads": 2}
data["drop_duplicates"] = True
tokenizer = {"vocab_size": 500, "kind": "bpe", "sample_lines": 1000}
config = Config(run_dir="x", data=data, tokenizer=tokenizer)
raw = load_corpora(config.data.train, config.data)
encode_corpus(raw, prepare_tokenizers(config, raw), config.data, True)
print(peak_memory(torch.device("cpu")))
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    peaks = []
    for num_pairs in (60_000, 600_000):
        folder = tmp_path / str(num_pairs)
        folder.mkdir()
        command = [sys.executable, "-c", PREPARE, str(folder), str(num_pairs)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout))
    size = sum(path.stat().st_size for path in folder.rglob("*.arrow"))
    assert size > 40e6
    # Nothing that was read stays; 40 bytes a pair are what is sorted to find duplicates.
    assert peaks[1] - peaks[0] < 0.6 * size
