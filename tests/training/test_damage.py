"""Checkpoints that were cut, flipped, forged or made elsewhere: named, refused, and never lost for
it.
"""

from __future__ import annotations

import io
import json
import pickle
import resource
import shutil
import string
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from transformer.config import Config
from transformer.decoding.translator import Translator
from transformer.errors import UserError
from transformer.training.checkpoint import (
    BEST,
    list_checkpoints,
    load_model,
    read_checkpoint,
    rotate_checkpoints,
    write_checkpoint,
)
from transformer.training.resuming import newest_checkpoint
from transformer.training.run import train

Make = Callable[..., Config]
ANY = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a small checkpoint."""
    path = tmp_path_factory.mktemp("whole") / "x.safetensors"
    tensors = {"model.w": torch.arange(12.0).view(3, 4), "model.b": torch.ones(2)}
    write_checkpoint(path, tensors, {"step": 3, "config": {"seed": 1}})
    return path.read_bytes()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a damaged file is put."""
    return tmp_path_factory.mktemp("damaged") / "x.safetensors"


def assert_refused(path: Path, data: bytes) -> None:
    """Holds that a file of these bytes is refused by its name."""
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"x\.safetensors: "):
        read_checkpoint(path)


def test_a_file_cut_at_any_byte_is_refused(whole: bytes, path: Path) -> None:
    for size in range(len(whole)):
        assert_refused(path, whole[:size])


def test_a_flipped_bit_in_any_byte_is_refused(whole: bytes, path: Path) -> None:
    for place in range(len(whole)):
        data = bytearray(whole)
        data[place] ^= 1 << (place * 5 % 8)
        assert_refused(path, bytes(data))


@pytest.mark.slow
def test_every_flipped_bit_is_refused(whole: bytes, path: Path) -> None:
    for place in range(len(whole) * 8):
        data = bytearray(whole)
        data[place // 8] ^= 1 << place % 8
        assert_refused(path, bytes(data))


@ANY
@given(st.integers(0, 10**4), st.integers(0, 200), st.binary(max_size=200))
def test_other_bytes_in_any_place_are_refused(
    whole: bytes, path: Path, place: int, removed: int, added: bytes
) -> None:
    place %= len(whole) + 1
    data = whole[:place] + added + whole[place + removed :]
    if data != whole:
        assert_refused(path, data)


@ANY
@given(st.binary(max_size=300))
@example(b"")
@example(struct.pack("<Q", 2**63) + b"{}")
@example(struct.pack("<Q", 99_000_000) + b"{}")
@example(struct.pack("<Q", 2) + b"{}")
@example(struct.pack("<Q", 200_000) + b"[" * 200_000)
def test_arbitrary_bytes_are_refused(path: Path, data: bytes) -> None:
    assert_refused(path, data)


def torch_bytes(value: object) -> bytes:
    """Returns what `torch.save` writes."""
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


class Intruder:
    """Does something when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("pickled", [pickle.dumps, torch_bytes], ids=["pickle", "torch.save"])
def test_a_file_that_would_run_code_is_refused_and_runs_none(
    path: Path, pickled: Callable[[object], bytes]
) -> None:
    intruded = path.with_name("intruded")
    data = pickled({"model.w": Intruder(intruded)})
    assert_refused(path, data)
    assert not intruded.exists()
    pickle.loads(pickle.dumps(Intruder(intruded)))
    assert intruded.exists()
    intruded.unlink()


def memory() -> int:
    """Returns the most memory that this process has held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def forge(tensors: dict[str, object], metadata: object, content: bytes = b"") -> bytes:
    """Returns a safetensors file whose header says what it is told to."""
    header = {**tensors, "__metadata__": {"transformer": json.dumps(metadata)}}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content


@pytest.mark.parametrize("shape", [[1 << 40], [1 << 20, 1 << 20], [1 << 62], [-1], [2**70]])
def test_a_header_that_claims_more_than_there_is_costs_no_memory(
    path: Path, shape: list[int]
) -> None:
    size = 4
    for length in shape:
        size *= length
    for end in (size, 16):
        claim = {"model.w": {"dtype": "F32", "shape": shape, "data_offsets": [0, end]}}
        before = memory()
        assert_refused(path, forge(claim, {"format": 1, "step": 1, "config": {}}, b"\0" * 16))
        assert memory() - before < 100


HUGE = 10**9


@pytest.mark.parametrize(
    "claims",
    [
        {"num_encoder_layers": HUGE},
        {"num_decoder_layers": HUGE},
        {"d_model": HUGE},
        {"d_model": 2**40, "num_heads": 2**40},
        {"d_ff": HUGE},
        {"d_ff": 2**62},
        {"positions": "learned", "max_positions": HUGE},
    ],
    ids=str,
)
def test_a_configuration_that_claims_a_larger_model_costs_no_memory(
    trained_run: Path, path: Path, claims: dict[str, object]
) -> None:
    read = read_checkpoint(trained_run / BEST)
    read.metadata["config"]["model"] |= claims
    write_checkpoint(path, read.tensors, read.metadata)
    before = memory()
    with pytest.raises(UserError, match=r"x\.safetensors: "):
        load_model(path)
    assert memory() - before < 100


def test_a_file_that_asks_for_a_beam_of_a_thousand_million_is_refused(
    trained_run: Path, path: Path
) -> None:
    read = read_checkpoint(trained_run / BEST)
    read.metadata["config"]["decoding"]["beam_size"] = HUGE
    write_checkpoint(path, read.tensors, read.metadata)
    with pytest.raises(UserError, match=r"decoding\.beam_size: .* less than or equal to 10000"):
        load_model(path)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(string.printable, max_size=5),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(st.text(string.ascii_letters, max_size=5), children, max_size=3)
    ),
    max_leaves=6,
)


def places(value: object, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Returns the path of everything that stands in nested objects."""
    if not isinstance(value, dict):
        return [prefix]
    return [prefix] * bool(prefix) + [
        path for key, x in value.items() for path in places(x, (*prefix, key))
    ]


def refusal(use: Callable[[Path], object], run: Path) -> str | None:
    """Returns with what sentence a run is refused; None = it is not."""
    try:
        use(run)
    except UserError as error:
        return str(error)
    return None


@settings(ANY, max_examples=150)
@given(st.data())
def test_whatever_stands_in_the_metadata_is_refused_or_harmless(
    trained_run: Path, path: Path, data: st.DataObject
) -> None:
    """The digest is right: somebody has made the file on purpose."""
    read = read_checkpoint(list_checkpoints(trained_run)[-1][1])
    *above, key = data.draw(st.sampled_from(places(read.metadata)))
    section = read.metadata
    for name in above:
        section = section[name]
    section[key] = data.draw(JSON)
    if read.metadata.get("format") != 1:
        return  # it is written anew
    run = path.parent / "forged"
    shutil.rmtree(run, ignore_errors=True)
    forged = run / "checkpoints" / "step-00000200.safetensors"
    forged.parent.mkdir(parents=True)
    try:
        write_checkpoint(forged, read.tensors, read.metadata)
    except ValueError:
        return  # no JSON
    for use in (load_model, newest_checkpoint):
        said = refusal(use, run)
        assert said is None or "step-00000200.safetensors: " in said or "can be read" in said


@settings(ANY, max_examples=100)
@given(st.data())
def test_whatever_stands_in_the_vocabulary_is_refused_or_harmless(
    trained_run: Path, path: Path, data: st.DataObject
) -> None:
    """The digest is right: somebody has made the file on purpose."""
    read = read_checkpoint(trained_run / BEST)
    whole = read.tensors["tokenizer"].numpy().tobytes()
    place = data.draw(st.integers(0, len(whole)))
    removed, added = data.draw(st.integers(0, 50)), data.draw(st.binary(max_size=50))
    forged = bytearray(whole[:place] + added + whole[place + removed :])
    read.tensors["tokenizer"] = torch.frombuffer(forged or bytearray(1), dtype=torch.uint8)
    write_checkpoint(path, read.tensors, read.metadata)
    said = refusal(lambda x: Translator.load(x, device="cpu").translate(["a b", "c"]), path)
    assert said is None or "x.safetensors: " in said


def test_a_vocabulary_that_only_sentencepiece_can_read_is_refused(
    trained_run: Path, path: Path
) -> None:
    """Its own reader skips an unknown field that the one of Protocol Buffers finds corrupt."""
    read = read_checkpoint(trained_run / BEST)
    whole = read.tensors["tokenizer"].numpy().tobytes()
    forged = bytearray(b"\xd5\x80\x80\x80\x10\x00\x00\x00\x00" + whole)
    read.tensors["tokenizer"] = torch.frombuffer(forged, dtype=torch.uint8)
    write_checkpoint(path, read.tensors, read.metadata)
    with pytest.raises(UserError, match=r"x\.safetensors: .*no.* SentencePiece model"):
        Translator.load(path, device="cpu")


def test_the_last_whole_checkpoint_and_the_best_are_never_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    for step in (5, 10, 15, 20, 99):  # 99: damaged, so that the run went on from 15
        (folder / f"step-{step:08d}.safetensors").write_bytes(b"")
    rotate_checkpoints(tmp_path, keep=1, best_step=5, newest=20)
    assert [step for step, _ in list_checkpoints(tmp_path)] == [5, 20, 99]


def test_a_run_goes_on_past_a_damaged_checkpoint_and_keeps_what_is_whole(
    make_config: Make, caplog: pytest.LogCaptureFixture
) -> None:
    steady = ("training.keep_checkpoints=1", "validation.every=1000", "training.save_every=5")
    train(make_config(*steady, "training.max_steps=5"))
    config = make_config(*steady, "training.max_steps=7")
    run_dir = Path(config.run_dir)
    damaged = run_dir / "checkpoints" / "step-00000009.safetensors"
    damaged.write_bytes(b"half of it")
    train(config, resume=True)
    assert f"{damaged}: damaged" in caplog.text
    assert {7, 9} <= {step for step, _ in list_checkpoints(run_dir)}
    found = newest_checkpoint(run_dir)
    assert found is not None
    assert found.step == 7


def test_a_run_whose_checkpoints_are_all_damaged_is_left_as_it_is(make_config: Make) -> None:
    config = make_config("training.max_steps=5")
    train(config)
    run_dir = Path(config.run_dir)
    ((_, only),) = list_checkpoints(run_dir)
    only.write_bytes(only.read_bytes()[:-1])
    before = {p: p.read_bytes() for p in run_dir.rglob("*.safetensors")}
    with pytest.raises(UserError, match="none of 1 checkpoints can be read"):
        train(config, resume=True)
    assert {p: p.read_bytes() for p in run_dir.rglob("*.safetensors")} == before


def test_a_checkpoint_of_another_model_is_refused_by_what_differs(
    make_config: Make, tmp_path: Path
) -> None:
    train(make_config("training.max_steps=2"))
    other = make_config("training.max_steps=2", "model.d_ff=48", run="other")
    train(other)
    path = list_checkpoints(Path(other.run_dir))[-1][1]
    shutil.copy(path, Path(make_config().run_dir) / "checkpoints" / "step-00000003.safetensors")
    with pytest.raises(UserError, match=r"model\.d_ff: 48 so far, 32 now"):
        train(make_config(), resume=True)
