"""Settings that may be written with a unit: amounts of memory and spans of time."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Annotated

from pydantic import BeforeValidator, Field, PositiveFloat

from adiabat.config.section import MisfitError

BYTES = {unit: base**power for power, letter in enumerate("KMGT", 1) for unit, base in ((f"{letter}B", 1000), (f"{letter}iB", 1024))}
"""Units of memory."""

SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}
"""Units of time."""


def in_units(units: Mapping[str, int], kind: type[int] | type[float], wanted: str) -> Callable[[object], object]:
    """Make a check of a setting that may be text, a number and its unit."""
    written = re.compile(rf"\s*([0-9]*\.?[0-9]+)\s*({'|'.join(units)})\s*")

    def check(given: object) -> object:
        if not isinstance(given, str):
            return given
        found = written.fullmatch(given)
        amount = float(found[1]) * units[found[2]] if found else math.inf
        if not math.isfinite(amount):
            raise MisfitError(wanted)
        return kind(amount)

    return check


Bytes = Annotated[
    int,
    Field(gt=0),
    BeforeValidator(in_units(BYTES, int, 'an amount with a unit, such as "24GiB" or "80GB"')),
]
"""Such as ``"24GiB"``."""

Seconds = Annotated[
    PositiveFloat,
    BeforeValidator(in_units(SECONDS, float, 'a number of seconds, or text with a unit, such as "90min", "8h" or "7d"')),
]
"""Such as ``28800`` or ``"8h"``."""
