"""Small models in double precision, in the variants that differ most, and tokens for them."""

import torch
from torch import Tensor

from transformer.config import ModelConfig
from transformer.model.transformer import Transformer

V = 20
VARIANTS = [
    {},
    {"norm_first": False},
    {"positions": "rotary", "qk_norm": True, "norm": "rms", "activation": "swiglu"},
    {"positions": "learned", "activation": "gelu", "norm_first": False, "norm": "rms"},
]


def small(**changes: object) -> ModelConfig:
    sizes = {"d_model": 16, "num_heads": 4, "d_ff": 32, "dropout": 0.0}
    return ModelConfig(**{**sizes, "num_encoder_layers": 2, "num_decoder_layers": 2, **changes})


def make(vocab_size: int = V, seed: int = 0, **changes: object) -> Transformer:
    torch.manual_seed(seed)
    return Transformer(small(**changes), vocab_size, vocab_size).double()


def tokens(rows: int, length: int, seed: int = 0, vocab_size: int = V) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(4, vocab_size, (rows, length), generator=generator)
