"""Trains, evaluates and runs encoder-decoder Transformers for translation.

The names here are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformer.config import Config, ModelConfig
    from transformer.config_file import load_config
    from transformer.decoding.options import SearchOptions
    from transformer.decoding.request import Request
    from transformer.decoding.sampling_options import SamplingOptions
    from transformer.decoding.translator import Translator
    from transformer.errors import UserError
    from transformer.model.attention import Attention
    from transformer.model.transformer import Transformer
    from transformer.training.checkpoint import load_model
    from transformer.training.run import train

_PUBLIC = {
    "Attention": "transformer.model.attention",
    "Config": "transformer.config",
    "ModelConfig": "transformer.config",
    "Request": "transformer.decoding.request",
    "SamplingOptions": "transformer.decoding.sampling_options",
    "SearchOptions": "transformer.decoding.options",
    "Transformer": "transformer.model.transformer",
    "Translator": "transformer.decoding.translator",
    "UserError": "transformer.errors",
    "load_config": "transformer.config_file",
    "load_model": "transformer.training.checkpoint",
    "train": "transformer.training.run",
}

__all__ = [
    "Attention",
    "Config",
    "ModelConfig",
    "Request",
    "SamplingOptions",
    "SearchOptions",
    "Transformer",
    "Translator",
    "UserError",
    "load_config",
    "load_model",
    "train",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
