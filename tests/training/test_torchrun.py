"""Runs that torchrun starts: what happens when a process dies, on two machines, at a signal."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from transformer.config import Config
from transformer.config_file import dump_config
from transformer.training.checkpoint import list_checkpoints, read_checkpoint
from transformer.training.run import train

Make = Callable[..., Config]

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2")
ALONE = ("--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1")
DYING = Path(__file__).with_name("dying_rank.py")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
SETTINGS = (
    "training.max_steps=8",
    "training.save_every=3",
    "training.log_every=1",
    "training.epsilon=1e-4",  # where the gradient is rounding alone, as of keys' biases
)

pytestmark = pytest.mark.slow


@pytest.fixture
def config(make_config: Make, tmp_path: Path) -> Config:
    """The configuration of a short run, which also stands in `config.yaml`."""
    config = make_config(*SETTINGS)
    (tmp_path / "config.yaml").write_text(dump_config(config))
    return config


def assert_trained_as_alone(config: Config, make_config: Make) -> None:
    """Holds the run's last weights equal, up to rounding, to those of one undisturbed process."""
    alone = make_config(*SETTINGS, run="alone")
    train(alone)
    paths = [list_checkpoints(Path(x.run_dir))[-1][1] for x in (alone, config)]
    first, second = (read_checkpoint(path) for path in paths)
    assert first.step == second.step == 8
    for name, x in first.weights().items():
        torch.testing.assert_close(x, second.weights()[name], rtol=1e-4, atol=2e-5)


def test_a_rank_that_dies_ends_the_run_with_its_own_error_and_nothing_is_lost(
    config: Config, tmp_path: Path
) -> None:
    done = subprocess.run(
        [*TORCHRUN, *ALONE, DYING, "train", tmp_path / "config.yaml"],
        capture_output=True,
        text=True,
        check=False,
        env={**ENVIRONMENT, "DIES_AT": "6"},
    )
    assert done.returncode == 1
    assert "AssertionError: rank 1 has a fault of its own" in done.stderr
    assert "transformer: another process of this run has ended" in done.stderr
    assert list_checkpoints(Path(config.run_dir))[-1][0] == 5, "rank 0 has saved what it had"


def test_torchrun_starts_a_run_again_where_it_was_and_deletes_nothing(
    config: Config, make_config: Make, tmp_path: Path
) -> None:
    """Even with `--overwrite`, which is for the first start only."""
    train(make_config("training.max_steps=1"))
    command = (*TORCHRUN, *ALONE, "--max-restarts=1", DYING, "train")
    done = subprocess.run(
        [*command, tmp_path / "config.yaml", "--overwrite"],
        capture_output=True,
        text=True,
        check=False,
        env={**ENVIRONMENT, "DIES_AT": "6"},
    )
    assert done.returncode == 0, done.stderr
    assert "resuming after step 5" in done.stderr
    assert_trained_as_alone(config, make_config)


def test_two_machines_train_together(config: Config, make_config: Make, tmp_path: Path) -> None:
    """Two agents that meet on the loopback interface, as those of two machines would."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    meeting = ("--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=1", *meeting]
    command += ["--rdzv-id=test", "--local-addr=127.0.0.1", "-m", "transformer", "train"]
    agents = [
        subprocess.Popen(
            [*command, tmp_path / "config.yaml"],
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        for _ in range(2)
    ]
    errors = [agent.communicate(timeout=300)[1] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], errors
    assert_trained_as_alone(config, make_config)


def test_a_signal_to_torchrun_leaves_a_checkpoint_and_the_run_goes_on(
    make_config: Make, tmp_path: Path
) -> None:
    config = make_config("training.max_steps=100000", "validation.every=100000")
    (tmp_path / "config.yaml").write_text(dump_config(config))
    command = [*TORCHRUN, *ALONE, "-m", "transformer", "train", str(tmp_path / "config.yaml")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("step 5/"):
                process.send_signal(signal.SIGTERM)
                break
        rest = process.stderr.read()
    assert process.returncode != 0
    assert "stopped by SIGTERM after step" in rest
    step = list_checkpoints(Path(config.run_dir))[-1][0]
    assert step >= 5
    train(make_config(f"training.max_steps={step + 1}"), resume=True)
    assert list_checkpoints(Path(config.run_dir))[-1][0] == step + 1
