"""DATA as users write it: a path or a hub name, and behind a question mark its split, its configuration and
the names of its columns.

``answers.csv?query=frage&positive=antwort_id`` maps two columns of one file, and ``set?split=test`` names a
split of a folder. A value is percent-encoded where it holds ``&``, ``%`` or ``?``.
"""

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from adiabat.core.errors import ConfigError
from adiabat.data.lines import COLUMN_ALIASES, HUB_PREFIX

if TYPE_CHECKING:
    from adiabat.config.shared import HeldOutSection

COLUMNS = (*(name for name in COLUMN_ALIASES if "." not in name), "vector")
"""Our names of columns, which an address may map; vectors are those of an import."""


@dataclass(frozen=True, slots=True)
class Source:
    """An address in its parts; `path` is that of a file or folder, or a hub name with its prefix."""

    path: str
    split: str | None = None
    config: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, address: str | Path) -> "Source":
        """Take an address apart; the path of an existing file may hold question marks itself."""
        path, query = _parted(str(address))
        values: dict[str, str] = {}
        for pair in query.split("&") if query else ():
            key, value = _pair(pair, address)
            if key in values:
                raise ConfigError(
                    f'{address} must give "{key}" once behind the question mark, got it twice; leave one out'
                )
            values[key] = value
        return cls(path, values.pop("split", None), values.pop("config", None), values)

    def __str__(self) -> str:
        named = {"split": self.split, "config": self.config, **self.columns}
        pairs = [f"{key}={_quoted(value)}" for key, value in named.items() if value is not None]
        return "?".join(filter(None, [self.path, "&".join(pairs)]))

    @property
    def is_hub(self) -> bool:
        """Whether it is a data set of the hub."""
        return self.path.startswith(HUB_PREFIX)

    def split_or(self, split: str | None) -> str | None:
        """The split to read, where settings or the caller may name one too."""
        if self.split is not None and split not in (None, self.split):
            raise ConfigError(
                f'{self} and the settings must name one split, got "{self.split}" '
                f'and "{split}"; leave one out'
            )
        return split if self.split is None else self.split


def with_split(address: str, split: str | None) -> str:
    """An address with the split of settings."""
    source = Source.of(address)
    return str(replace(source, split=source.split_or(split)))


def with_columns(address: str, columns: Mapping[str, str]) -> str:
    """An address with further names of columns."""
    source = Source.of(address)
    return str(replace(source, columns={**source.columns, **columns}))


def validation_source(section: "HeldOutSection", trained: Collection[str]) -> str | None:
    """The address of the validation data; they are read from the split of the training data, unless both are
    in one place.
    """
    if not section.validation:
        return None
    own, split = Source.of(section.validation), section.validation_split
    places = {os.path.realpath(Source.of(address).path) for address in trained}
    if split is None and own.split is None and os.path.realpath(own.path) not in places:
        split = section.split
    return with_split(section.validation, split)


def _parted(address: str) -> tuple[str, str]:
    """Path and query; the longest beginning that exists is the path."""
    if "?" not in address or os.path.exists(address):
        return address, ""
    # A path may hold question marks itself.
    ends = [mark.start() for mark in re.finditer(r"\?", address)]
    end = next((end for end in reversed(ends) if os.path.exists(address[:end])), ends[0])
    path, query = address[:end], address[end + 1 :]
    # Without a key it is the name of a file that is missing.
    return (path, query) if "=" in query else (address, "")


def _pair(pair: str, address: str | Path) -> tuple[str, str]:
    """Take ``NAME=VALUE`` apart, and check both."""
    key, equals, value = pair.partition("=")
    if not equals or key not in ("split", "config", *COLUMNS):
        raise ConfigError(
            f"{address} must give NAME=VALUE of adiabat's names behind the "
            f'question mark, got "{pair}"; the names are split, config, {", ".join(COLUMNS)}'
        )
    try:
        value = unquote(value, errors="strict")
    except UnicodeDecodeError:
        raise ConfigError(
            f'{address} must be percent-encoded UTF-8, got "{value}"; encode it again'
        ) from None
    # An empty label says that all rows count as answers, empty scores that there is no teacher.
    if not value and key not in ("label", "scores"):
        raise ConfigError(f'{address} must give "{key}" a value, got none; write {key}=NAME, or leave it out')
    return key, value


def _quoted(value: str) -> str:
    """A value with the three characters encoded that would end it."""
    return re.sub("[%&?]", lambda match: f"%{ord(match[0]):02X}", value)
