"""Glossaries, leads and captions of pages as data, from ``captions.toml``."""

import tomllib
from functools import cache
from importlib import resources
from typing import Any


def text_of(page: str, name: str, **values: object) -> str:
    """A text of a page, with these values in its places."""
    text: str = _texts()[page][name]
    return text.format(**values)


def texts_of(page: str, name: str, /, **values: object) -> dict[str, Any]:
    """The texts of a section or figure by field, such as title, lead, label and caption."""
    return {field: text.format(**values) for field, text in _texts()[page][name].items()}


def glossary(page: str) -> list[tuple[str, str]]:
    """The terms that a page explains, with their meanings."""
    return list(_texts()[page]["terms"].items())


def sentences(section: str) -> dict[str, str]:
    """All texts of a section by name."""
    return dict(_texts()[section])


@cache
def _texts() -> dict[str, Any]:
    """All texts, read once."""
    file = resources.files("adiabat.report") / "captions.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))
