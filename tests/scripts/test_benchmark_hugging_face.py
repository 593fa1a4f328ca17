"""The benchmark's model of Hugging Face's has our weights, and says what ours says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from transformer.config import ModelConfig
from transformer.errors import UserError
from transformer.ids import BOS, EOS, PAD
from transformer.model.transformer import Transformer

pytestmark = pytest.mark.slow  # loading the library alone takes seconds
SMALL = {"d_model": 16, "num_heads": 2, "d_ff": 32}


@pytest.fixture
def to_theirs(script: Callable[[str], Any]) -> Callable[[Transformer], Any]:
    return script("benchmark_hugging_face").to_m2m100


def test_the_same_weights_give_the_same_logits(to_theirs: Callable[[Transformer], Any]) -> None:
    torch.manual_seed(0)
    layers = {"num_encoder_layers": 2, "num_decoder_layers": 3}
    model = Transformer(ModelConfig(**SMALL, **layers), 24, 24).eval()
    for weights in model.parameters():
        weights.data.add_(0.1 * torch.randn_like(weights))
    src = torch.tensor([[9, 5, 17, EOS], [7, EOS, PAD, PAD]])
    tgt = torch.tensor([[BOS, 6, 11], [BOS, 13, 13]])
    with torch.inference_mode():
        found = to_theirs(model)(
            input_ids=src, attention_mask=(src != PAD).long(), decoder_input_ids=tgt
        )
        torch.testing.assert_close(found.logits, model(src, tgt), rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "variant", [{"norm_first": False}, {"norm": "rms"}, {"positions": "rotary"}, {"qk_norm": True}]
)
def test_other_models_are_refused(
    to_theirs: Callable[[Transformer], Any], variant: dict[str, Any]
) -> None:
    model = Transformer(ModelConfig(**SMALL, **variant), 24, 24)
    with pytest.raises(UserError, match="only models with"):
        to_theirs(model)
