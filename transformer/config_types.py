"""What settings are made of: their types, and the section that groups them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _whole(value: object) -> object:
    """Turns a float without fraction into an int, such as `1e5` for a number of steps."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        return int(value)
    return value


Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]
LanguageCode = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]*$")]
Probability = Annotated[float, Field(ge=0.0, lt=1.0)]
Count = Annotated[int, Field(ge=0), BeforeValidator(_whole)]
Positive = Annotated[int, Field(ge=1), BeforeValidator(_whole)]
WIDEST_BEAM = 10_000
BeamSize = Annotated[int, Field(ge=1, le=WIDEST_BEAM), BeforeValidator(_whole)]
Seed = Annotated[int, Field(ge=0, lt=2**31), BeforeValidator(_whole)]


class Section(BaseModel):
    """A group of settings; unknown names are refused and values never change after reading."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )
