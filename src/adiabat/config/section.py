"""The base class of settings tables, and types of values that several tables use."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveFloat,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from adiabat.config.faults import Need, PlacedError, without_effect

_ESCAPED = re.compile(r"[\x00\x08\x0b\x0c\x1b]|^[A-Za-z]:[\t\n\r]")
"""What a backslash in double quotes leaves of a path of Windows or a pattern, and no path or name has."""


def _without_escapes(text: str) -> str:
    if _ESCAPED.search(text):
        advice = (
            "in TOML, a backslash in double quotes begins an escape: write "
            "single quotes, or double the backslash"
        )
        raise MisfitError(f"text without control characters ({advice})")
    return text


Text = Annotated[str, Field(min_length=1), AfterValidator(_without_escapes)]
Texts = Annotated[tuple[Text, ...], Field(strict=False)]
"""A list in TOML; strict validation would refuse it for a tuple."""
Fraction = Annotated[float, Field(ge=0, le=1)]
Amount = Annotated[int, Field(ge=0)]

SeedNumber = Annotated[int, Field(ge=0, le=2**32 - 1)]
"""Seed accepted by all random generators."""
DropSameId = Literal["auto", True, False]
"""Whether the document with the query's id is left out of its ranking; ``auto``: if it has the query's text
too."""
OptimizerName = Literal["adamw", "adamax", "adamax-no-momentum", "adadelta", "adafactor", "sgd"]
MixtureRule = Literal["proportional", "equal", "temperature", "weights"]
Exhausted = Literal["stop", "cycle", "drop"]
ScheduleName = Literal["constant", "linear", "quadratic", "exponential", "cosine"]
ScalingRule = Literal["none", "linear", "sqrt"]


class MisfitError(ValueError):
    """A value has none of the types of its setting; the text describes them."""


def each_once(kind: str) -> AfterValidator:
    """A validator of lists without repeated values."""

    def check(values: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(set(values)) < len(values):
            raise MisfitError(f"a list that names each {kind} once")
        return values

    return AfterValidator(check)


def no_text(wanted: str) -> BeforeValidator:
    """A validator that refuses a text for a number, which was once a way to ask for something else."""

    def check(value: object) -> object:
        if isinstance(value, str):
            raise MisfitError(wanted)
        return value

    return BeforeValidator(check)


# --- Tables ---


class Section(BaseModel):
    """A table of settings: unknown keys are refused, values are not converted, and settings are immutable."""

    # Strict: TOML has types, so a text is never read as a number. Frozen: runs share their settings.
    # No infinities: JSON, which results are written in, has none.
    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )
    bare: ClassVar[str] = ""
    """Setting that a plain value stands for in place of the table; "" accepts no plain value."""
    needs: ClassVar[tuple[Need, ...]] = ()
    """What settings need of others in the table, without which they have no effect."""

    @model_validator(mode="before")
    @classmethod
    def _long_forms(cls, table: Any) -> Any:
        if not isinstance(table, Mapping):
            return table
        return {name: cls.long_form(name, value) for name, value in table.items()}

    @classmethod
    def long_form(cls, name: str, value: Any, *, fill: bool = True) -> Any:
        """The table for a setting's short form; `fill` lays a table without `kind` over the default.

        Short forms are a word for a table of that kind, a value for a table with its main setting, and true
        or false for an optional table with its defaults or without it.
        """
        kinds = cls.tables_at(name)
        if not kinds or value is None or isinstance(value, Section):
            return value
        default = cls.model_fields[name].default
        if isinstance(value, bool) and cls.is_optional(name):
            return {} if value else None
        if not issubclass(kinds[0], Choice):
            return {kinds[0].bare: value} if kinds[0].bare and not isinstance(value, Mapping) else value
        if isinstance(value, str):
            value = {"kind": value}
        # Of an optional choice the first kind is the usual one.
        usual = default
        if not isinstance(usual, Choice):
            usual = kinds[0].model_validate({"kind": next(iter(by_kind(kinds)))})
        if not isinstance(value, Mapping):
            return {"kind": usual.kind, usual.bare: value} if usual.bare else value
        # A table of the default's kind keeps what that default sets, such as the temperature of scaling
        # experiments.
        is_filled = fill and value.get("kind", usual.kind) == usual.kind
        return overlaid(type(usual), usual.model_dump(exclude_unset=True), value) if is_filled else value

    def recorded(self) -> dict[str, Any]:
        """The settings of a result: None is left out, and a table that is on by default and was switched off
        is false.
        """
        recorded = self.model_dump(mode="json", exclude_none=True)
        for name, field in type(self).model_fields.items():
            if self.is_optional(name) and field.default is not None and getattr(self, name) is None:
                recorded[name] = False
        return recorded

    def overlay(self) -> dict[str, Any]:
        """The settings that differ from what would be filled in, as tables to lay over others."""
        # What was not stated may have another default in the table below.
        return self.model_dump(exclude_unset=True)

    @classmethod
    @cache
    def tables_at(cls, name: str) -> tuple[type["Section"], ...]:
        """The tables that a setting accepts; empty for a value or a list."""
        field = cls.model_fields.get(name)
        # A list of tables has no short form, and settings are not laid over its entries.
        return () if field is None or get_origin(field.annotation) is tuple else sections_in(field.annotation)

    @classmethod
    def is_optional(cls, name: str) -> bool:
        """Whether a setting may be None, as a table that is off."""
        return type(None) in get_args(cls.model_fields[name].annotation)

    def every_need(self) -> Iterator[Need]:
        """The needs of settings; overridden where they depend on other settings."""
        yield from self.needs

    def unmet(self) -> dict[str, list[tuple[Need, Any]]]:
        """Each setting without effect, whatever its value: its unmet needs, and the values that leave them
        unmet.
        """
        unmet: dict[str, list[tuple[Need, Any]]] = {}
        for need in self.every_need():
            value = value_at(self, need.other)
            # A need of a choice is one of its kind.
            value = value.kind if isinstance(value, Choice) else value
            if not need.is_met_by(value):
                unmet.setdefault(need.name, []).append((need, value))
        return unmet

    def _is_default(self, key: str) -> bool:
        table, _, name = key.rpartition(".")
        owner = value_at(self, table) if table else self
        return owner is None or bool(getattr(owner, name) == type(owner).model_fields[name].default)

    def faults(self) -> Iterator[tuple[str, str]]:
        """Each setting that does not fit others of the table, with what is wrong; to be overridden."""
        yield from ()

    def misfits(self) -> list[tuple[str, str]]:
        """The faults of combinations of settings."""
        faults = []
        for name, needs in self.unmet().items():
            if not self._is_default(name):
                cause = " and ".join(need.cause(value) for need, value in needs)
                remedy = " and ".join(need.remedy(value) for need, value in needs)
                faults.append((name, without_effect(cause, remedy)))
        return [*faults, *self.faults()]

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        # Pydantic checks combinations where each value of a table is right by itself.
        if faults := self.misfits():
            raise PlacedError(faults)
        return self


class Choice(Section):
    """One of several alternative tables, distinguished by `kind`."""

    kind: str

    @model_serializer(mode="wrap")
    def _with_kind(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Say which table it is, without the settings of other kinds, which have no effect in it."""
        others = {need.name for need in self.needs if need.other == "kind" and not need.is_met_by(self.kind)}
        dumped = handler(self)
        return {"kind": self.kind} | {name: value for name, value in dumped.items() if name not in others}


def sections_in(annotation: Any) -> tuple[type[Section], ...]:
    """Every table that a type mentions, each once, in order."""
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return (annotation,) if issubclass(annotation, Section) else ()
    return tuple(dict.fromkeys(kind for argument in get_args(annotation) for kind in sections_in(argument)))


def by_kind(tables: Sequence[type[Section]]) -> dict[str, type[Section]]:
    """Tables by the values of their `kind`; empty if they have none."""
    return {
        word: table
        for table in tables
        if "kind" in table.model_fields
        for word in get_args(table.model_fields["kind"].annotation)
    }


def value_at(settings: Section, key: str) -> Any:
    """A setting by its dotted key; None if its table is absent or of a kind without it."""
    setting: Any = settings
    # A table that is off ends the way: its settings count as None.
    for name in key.split("."):
        setting = getattr(setting, name, None)
    return setting


def nest(names: Sequence[str], value: Any) -> dict[str, Any]:
    """Nested tables with a value in the innermost one."""
    for name in reversed(names):
        value = {name: value}
    return dict(value)


def overlaid(
    kind: type[Section] | None, below: Mapping[str, Any], above: Mapping[str, Any]
) -> dict[str, Any]:
    """Lay settings over others: tables merge, but a table of another `kind`, or any other value, replaces the
    lower one.
    """
    table = dict(below)
    for name, value in above.items():
        tables = kind.tables_at(name) if kind else ()
        lower, upper = table.get(name), value
        if kind and tables:
            # Both in full, so that a word and a table of the same kind can be laid over each other.
            lower, upper = kind.long_form(name, lower), kind.long_form(name, value, fill=False)
        if isinstance(lower, Section):
            lower = lower.model_dump(exclude_unset=True)
        table[name] = upper
        is_change = isinstance(upper, Mapping) and "kind" not in upper
        if tables and is_change and not isinstance(lower, Mapping | None):
            # A value that is no table of this setting is left to be refused.
            table[name] = lower
        elif isinstance(lower, Mapping) and isinstance(upper, Mapping):
            choices = by_kind(tables) if tables and issubclass(tables[0], Choice) else {}
            lower_kind = lower.get("kind")
            if choices and upper.get("kind", lower_kind) != lower_kind:
                # A table of another kind replaces the lower one whole.
                continue
            # A kind that is no word is left to be refused.
            word = lower_kind if isinstance(lower_kind, str) else ""
            inner = choices.get(word) if choices else next(iter(tables), None)
            table[name] = overlaid(inner, lower, upper)
    return table


def switches(kind: type[Section], table: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with optional tables without keys as true or false, however they were written; also in lists
    of values.
    """

    def switch(value: Any) -> Any:
        return True if value == {} else False if value is None else value

    stated = dict(table)
    for name, value in table.items():
        if not (tables := kind.tables_at(name)):
            continue
        if kind.is_optional(name):
            stated[name] = [*map(switch, value)] if isinstance(value, list | tuple) else switch(value)
        elif isinstance(value, Mapping) and not issubclass(tables[0], Choice):
            stated[name] = switches(tables[0], value)
    return stated


# --- Ranges of values ---

MOST_VALUES = 1_000
"""Maximum number of values in a range; each value is a run."""


class SpacedValues(Section):
    """Evenly spaced values of three digits, including both ends."""

    low: PositiveFloat
    """Lowest value."""
    high: PositiveFloat
    """Highest value."""
    count: Annotated[int, Field(ge=2, le=MOST_VALUES)] = 8
    """Number of values, including both ends."""

    @property
    def is_linear(self) -> bool:
        """Whether the values are evenly spaced, rather than their logarithms."""
        return False

    def faults(self) -> Iterator[tuple[str, str]]:
        """Ends ascend, and values differ in three digits."""
        if not self.low < self.high:
            yield "low", f"must be below high, got {self.low:g} and {self.high:g}; swap them"
        elif len(set(values := self.values())) < len(values):
            yield (
                "count",
                f"must give values that differ in three digits, got {len(values)} "
                f"from {self.low:g} to {self.high:g}",
            )

    def values(self) -> tuple[float, ...]:
        """All of them, ascending."""
        first, last = (self.low, self.high) if self.is_linear else (math.log(self.low), math.log(self.high))
        # As many digits as a person would write, so that names of runs stay short.
        points = (first + step / (self.count - 1) * (last - first) for step in range(self.count))
        return tuple(float(f"{point if self.is_linear else math.exp(point):.3g}") for point in points)


class RangeValues(SpacedValues):
    """Values between two ends, in place of a list: ``{ low = 1e-8, high = 1e-5, count = 8 }``."""

    scale: Literal["log", "linear"] = "log"
    """Whether the values are evenly spaced on a logarithmic or a linear scale."""

    @property
    def is_linear(self) -> bool:
        """Whether the values are evenly spaced, rather than their logarithms."""
        return self.scale == "linear"


# --- Amounts with units ---

BYTES = {
    unit: base**power
    for power, letter in enumerate("KMGT", 1)
    # KB counts in thousands and KiB in 1,024, as the standards have it.
    for unit, base in ((f"{letter}B", 1000), (f"{letter}iB", 1024))
}
"""Units of memory."""

SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}
"""Units of time."""


def in_units(
    units: Mapping[str, int], kind: type[int] | type[float], wanted: str
) -> Callable[[object], object]:
    """Make a validator of a setting that may be text with a number and a unit."""
    # A number without sign or exponent, then one of the units; blanks around both do not count.
    written = re.compile(rf"\s*([0-9]*\.?[0-9]+)\s*({'|'.join(units)})\s*")

    def check(setting: object) -> object:
        if not isinstance(setting, str):
            return setting
        match = written.fullmatch(setting)
        # A text of another form is infinite here, and refused with those that are too large.
        amount = float(match[1]) * units[match[2]] if match else math.inf
        if not math.isfinite(amount):
            raise MisfitError(wanted)
        return kind(amount)

    return check


_AMOUNT = BeforeValidator(in_units(BYTES, int, 'an amount with a unit, such as "24GiB" or "80GB"'))

Bytes = Annotated[int, Field(gt=0), _AMOUNT]
"""Bytes, or text such as ``"24GiB"``."""

KeptBytes = Annotated[int, Field(ge=0), _AMOUNT]
"""The same, or 0."""

Seconds = Annotated[
    PositiveFloat,
    BeforeValidator(
        in_units(SECONDS, float, 'a number of seconds, or text with a unit, such as "90min", "8h" or "7d"')
    ),
]
"""Seconds, or text such as ``"8h"``."""
