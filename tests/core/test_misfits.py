"""Faults of records in our words, wherever pydantic finds them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError, field_validator

from adiabat.core.errors import DataError
from adiabat.core.files import reading
from adiabat.core.misfits import misfits

LEAKS = ("Value error", "Input should be", "type=", "input_value", "errors.pydantic.dev", "validation error")


@dataclass
class Row:
    """A record with a field of each kind."""

    count: int
    share: float
    kind: Literal["full", "lora"]
    names: list[str]
    inner: "Row | None" = None


class Checked(BaseModel):
    """A table with a check of its own."""

    rate: float

    @field_validator("rate")
    @classmethod
    def _positive(cls, rate: float) -> float:
        if rate <= 0:
            raise ValueError("a rate below 0 goes uphill")
        return rate


WHOLE = {"count": 1, "share": 0.5, "kind": "full", "names": ["a"]}


@pytest.mark.parametrize(
    ("kind", "value", "phrase"),
    [
        (Row, {**WHOLE, "count": "many"}, "count must be a whole number, got 'many'"),
        (Row, {**WHOLE, "count": 1.5}, "count must be a whole number, got 1.5"),
        (Row, {**WHOLE, "share": None}, "share must be a number, got None"),
        (Row, {**WHOLE, "kind": "half"}, "kind must be 'full' or 'lora', got 'half'"),
        (Row, {**WHOLE, "names": "a"}, "names must be a list, got 'a'"),
        (Row, {**WHOLE, "names": [1]}, "names.0 must be text (in quotes), got 1"),
        (Row, {"share": 0.5, "kind": "full", "names": []}, "count must be given, got none"),
        (Row, [1], "its content must be an object, got [1]"),
        (Checked, {"rate": -1.0}, "rate: a rate below 0 goes uphill"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_fault_has_its_key_what_it_must_be_and_its_value(
    kind: type[Any], value: Any, phrase: str, tmp_path: Path
) -> None:
    with pytest.raises(ValidationError) as found:
        TypeAdapter(kind).validate_python(value)
    assert misfits(found.value) == [phrase]
    with pytest.raises(DataError) as told, reading(tmp_path / "record.json", remedy="write it again"):
        raise found.value
    assert phrase in str(told.value)
    assert not any(leak in str(told.value) for leak in LEAKS)
