"""Faults that pydantic finds, in our words: its own end in names of its classes and an address of its
documentation.
"""

from collections.abc import Mapping
from typing import Any

from adiabat.core.errors import several
from adiabat.core.text import cut, shown

WANTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text (in quotes)",
    "string_too_short": "text that is not empty",
    "tuple_type": "a list",
    "list_type": "a list",
    "too_short": "a list that is not empty",
    "model_type": "a table of settings",
    "model_attributes_type": "a table of settings",
    "dataclass_type": "an object",
    "dict_type": "a table",
    "literal_error": "{expected}",
    "greater_than": "> {gt:.15g}",
    "greater_than_equal": ">= {ge:.15g}",
    "less_than": "< {lt:.15g}",
    "less_than_equal": "<= {le:.15g}",
}
"""Wording of pydantic's error types."""

_PREFIXES = ("Value error, ", "Assertion failed, ", "Input should be ")


def constraint_of(fault: Mapping[str, Any]) -> str:
    """What a wrong value must be."""
    wanted = WANTED.get(fault["type"], "").format(**fault.get("ctx", {}))
    return wanted or without_prefix(str(fault["msg"]))


def without_prefix(message: str) -> str:
    """A message of pydantic's without the words that it puts before those of a check."""
    for prefix in _PREFIXES:
        message = message.removeprefix(prefix)
    return message


def said_by(fault: BaseException) -> str:
    """What an error says, after its class unless it is pydantic's, whose phrases say more.

    Cut to 200 characters: a damaged file may be quoted whole.
    """
    # By its name, since a reader that needs no pydantic must not import it.
    if type(fault).__name__ == "ValidationError" and hasattr(fault, "errors"):
        return cut(several(misfits(fault)), limit=200)
    kind = type(fault).__name__
    return cut(f"{kind}: {fault}" if str(fault) else kind, limit=200)


def misfits(error: Any) -> list[str]:
    """A phrase for each fault of a pydantic error: the key, what it must be, and its value."""
    return [_phrase(fault) for fault in error.errors(include_url=False)]


def _phrase(fault: Mapping[str, Any]) -> str:
    """One fault of pydantic, with the key that it is about."""
    key = ".".join(map(str, fault["loc"])) or "its content"
    if fault["type"] == "missing":
        return f"{key} must be given, got none"
    if fault["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"unknown key {key}"
    # Checks of our own raise a ValueError whose words are a sentence already.
    message = str(fault["msg"])
    if fault["type"] in WANTED or message.startswith("Input should be "):
        return f"{key} must be {constraint_of(fault)}, got {shown(fault['input'])}"
    return f"{key}: {without_prefix(message)}"
