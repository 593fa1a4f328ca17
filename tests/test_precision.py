"""Which numbers are computed with where nothing is said."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from transformer.precision import choose_precision

CPU_INFO = Path("/proc/cpuinfo")


def test_auto_takes_bfloat16_on_a_cpu_that_multiplies_it_and_only_there() -> None:
    flags = CPU_INFO.read_text(encoding="utf-8").split()
    has_it = "avx512_bf16" in flags or "amx_bf16" in flags
    expected = "bfloat16" if has_it else "float32"
    assert choose_precision("auto", torch.device("cpu")) == expected


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"avx2": True, "avx512_f": True, "avx512_bf16": False, "amx_bf16": False}, "float32"),
        ({"avx512_bf16": True, "amx_bf16": False}, "bfloat16"),
        ({"avx512_bf16": False, "amx_bf16": True}, "bfloat16"),
        ({"sve": True}, "float32"),
    ],
)
def test_either_instruction_set_does(
    monkeypatch: pytest.MonkeyPatch, flags: dict[str, bool], expected: str
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: flags)
    assert choose_precision("auto", torch.device("cpu")) == expected
    for asked in ("float32", "bfloat16"):
        assert choose_precision(asked, torch.device("cpu")) == asked
