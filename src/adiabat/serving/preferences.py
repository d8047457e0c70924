"""Thumbs on results, kept as examples that `adiabat tune` reads as they are."""

import json
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from adiabat.core.disk import appending_to, real
from adiabat.core.errors import DataError
from adiabat.core.files import writing_to
from adiabat.core.wording import option


class Preference(BaseModel):
    """A judgement of one result of a query.

    Attributes:
        pos: Documents that answer the query, as texts or ids of the store.
        neg: Documents that were shown and do not.
    """

    model_config = ConfigDict(extra="forbid")

    query: str = Field(min_length=1)
    pos: list[str] = Field(min_length=1)
    neg: list[str] = Field(default_factory=list)
    tower: str = ""


@dataclass
class Preferences:
    """The file of preferences; None where none are kept."""

    path: Path | None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def at(cls, path: str | None) -> "Preferences":
        """Those of a file, which is made by the first one."""
        return cls(None if path is None else real(Path(path)))

    def append(self, preference: Preference) -> None:
        """Add one line.

        Raises:
            DataError: If none are kept, or the file cannot be written.
        """
        if self.path is None:
            started = option("preferences", "FILE")
            raise DataError(f"this server keeps no preferences; start it with {started}")
        row = {**preference.model_dump(), "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        line = json.dumps(row, ensure_ascii=False) + "\n"
        # One line in one write: two servers may share the file.
        with self._lock, writing_to(self.path), appending_to(self.path) as file:
            file.write(line.encode("utf-8", "replace"))
