"""Thumbs on results, kept as examples that `adiabat tune` reads as they are."""

import json
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from adiabat.core.disk import appending_to, real
from adiabat.core.errors import DataError
from adiabat.core.files import writing_to
from adiabat.core.provenance import now
from adiabat.core.text import cut
from adiabat.core.wording import option


def _told(text: str) -> str:
    """What the reader of examples takes as a text."""
    if not text.strip():
        raise ValueError("must not be blank")
    try:
        text.encode()
    except UnicodeEncodeError as fault:
        raise ValueError("must be Unicode, got half of a surrogate pair") from fault
    return text


Told = Annotated[str, AfterValidator(_told)]


class Preference(BaseModel):
    """A judgement of one result of a query.

    Attributes:
        pos: Documents that answer the query, as texts or ids of the store.
        neg: Documents that were shown and do not.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    query: Told
    pos: list[Told] = Field(min_length=1)
    neg: list[Told] = Field(default_factory=list)
    tower: str = ""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        """No document both answers a query and does not."""
        if both := set(self.pos) & set(self.neg):
            raise ValueError(
                f"a document must be in pos or in neg, got one in both: {cut(min(both), limit=60)}"
            )
        return self


@dataclass
class Preferences:
    """The file of preferences; None where none are kept."""

    path: Path | None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def at(cls, path: str | None) -> "Preferences":
        """Those of a file, made now: a place that cannot be written is known at the start."""
        if path is None:
            return cls(None)
        place = real(Path(path))
        with writing_to(place), appending_to(place):
            pass
        return cls(place)

    def append(self, preference: Preference) -> None:
        """Add one line.

        Raises:
            DataError: If none are kept, or the file cannot be written.
        """
        if self.path is None:
            started = option("preferences", "FILE")
            raise DataError(f"this server keeps no preferences; start it with {started}")
        row = {**preference.model_dump(), "time": now()}
        line = json.dumps(row, ensure_ascii=False) + "\n"
        # One line in one write: two servers may share the file.
        with self._lock, writing_to(self.path), appending_to(self.path) as file:
            file.write(line.encode())
