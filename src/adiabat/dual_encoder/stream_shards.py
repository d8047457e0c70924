"""What a window of a stream takes of each source, and the row that says so: all that it takes to read the same window again."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from adiabat.config.section import Exhausted
from adiabat.core.checksums import last_checksum, line_of, read_lines
from adiabat.core.errors import DataError, JobError
from adiabat.core.files import reading
from adiabat.data.batch_sampler import window_quotas
from adiabat.data.examples import ExampleReader, SourcePosition
from adiabat.data.lines import Cursor
from adiabat.data.records import Example
from adiabat.data.text_hashes import TrainedTexts
from adiabat.models.model_names import unpacked
from adiabat.results.evaluation_result import TrainedFile
from adiabat.runs.run_log import plain_faults

ROWS = "windows.jsonl"
"""File of the rows, in the folder of the windows."""

Take = Callable[[Iterator[Example], int], None]
"""Takes the examples of a source, whose number comes with them."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a window took of one source: examples that its weight asks for, those that came, and where reading began and ended."""

    asked: int
    given: int
    start: SourcePosition
    end: SourcePosition


@dataclass(frozen=True, slots=True)
class Row:
    """A window, as ``windows.jsonl`` holds it.

    Attributes:
        first: Its first step.
        steps: How many it has; none where its pairs made no batch.
        left: Pairs that are in none of its batches.
        validated: Queries among them that validation asks too.
        drawn: Pairs of its batches, by source; one that comes twice counts twice.
        last: Whether the run ends with it.
        texts: The file of hashes of its texts.
    """

    window: int
    first: int
    steps: int
    pairs: int
    left: int
    validated: int
    drawn: tuple[int, ...]
    sha256: str
    last: bool
    parts: tuple[Part, ...]
    texts: TrainedFile

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> "Row":
        """Read what `asdict` gave."""

        def position(plain: dict[str, Any]) -> SourcePosition:
            return SourcePosition(Cursor(**plain["mark"]), plain["ended"], plain["ends"])

        parts = tuple(Part(part["asked"], part["given"], position(part["start"]), position(part["end"])) for part in row["parts"])
        return cls(**{**row, "drawn": tuple(row["drawn"]), "parts": parts, "texts": TrainedFile(**row["texts"])})


@dataclass(frozen=True, slots=True)
class Sources:
    """Where windows of so many examples are read from, by weights that add up to 1."""

    tapes: Sequence[ExampleReader]
    weights: Float[np.ndarray, " s"]
    size: int
    exhausted: Exhausted

    def read(self, number: int, starts: Sequence[SourcePosition], take: Take) -> tuple[Part, ...]:
        """Read a window.

        A source that ends gives no more to it (``drop``, ``stop``), or begins anew (``cycle``), as far as no row comes twice in the
        window. Of ``drop``, one that has ended is left out until all have; then all begin anew, with the next window.
        """
        if all(start.ended for start in starts):
            starts = [start.rewound() for start in starts]
        live = [not start.ended for start in starts]
        quotas = window_quotas(number, self.size, self.weights, live=live).tolist()
        parts = tuple(self._part(source, start, quota, take) for source, (start, quota) in enumerate(zip(starts, quotas, strict=True)))
        if self.exhausted == "drop" and all(part.end.ended for part in parts) and not any(part.given for part in parts):
            # All had ended with the window before, which could not know: it had got all it asked for.
            return self.read(number, [part.end for part in parts], take)
        return parts

    def _part(self, source: int, start: SourcePosition, quota: int, take: Take) -> Part:
        tape = self.tapes[source]
        take(tape.read(start, quota), source)
        end = tape.position()
        count = end.mark.rows - start.mark.rows
        if self.exhausted == "cycle" and end.ended:
            take(tape.read(end.rewound(), min(quota - count, start.mark.rows)), source)
            end = tape.position()
            count += end.mark.rows
        return Part(quota, count, start, end)

    def is_last(self, parts: Sequence[Part]) -> bool:
        """Whether no window comes after one."""
        return self.exhausted == "stop" and any(part.end.ended for part in parts)

    def times(self, parts: Sequence[Part]) -> tuple[float, ...]:
        """How often a window's pass takes the pairs of each source, so that weights are kept."""
        if self.exhausted == "cycle":
            return tuple(part.asked / part.given if part.given else 0.0 for part in parts)
        if not self.is_last(parts):
            return (1.0,) * len(parts)
        least = min(part.given / part.asked for part in parts if part.end.ended)
        return tuple(least * part.asked / part.given if part.given else 0.0 for part in parts)


REMEDY = "start again in another directory"


def read_rows(path: Path) -> list[Row]:
    """Rows of the windows that were read before."""
    if not path.exists():
        return []
    with reading(path, remedy=REMEDY, error=JobError):
        return [Row.from_json(line.row) for line in read_lines(path, remedy=REMEDY, error=JobError)]


def whole_rows(path: Path) -> list[Row]:
    """As `read_rows`, and cut off what a killed run had half written."""
    if path.exists():
        with plain_faults(path):
            os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
    return read_rows(path)


def append_row(path: Path, row: Row) -> None:
    """Put a row on the disk before anything that follows from it."""
    line = line_of(asdict(row), after=last_checksum(path, remedy=REMEDY, error=JobError))
    with plain_faults(path), path.open("a", encoding="utf-8") as file:
        file.write(str(line))
        file.flush()
        os.fsync(file.fileno())


def write_texts(folder: Path, number: int, content: bytes) -> None:
    """Put the hashes of a window's texts on the disk, where they stay when the window goes."""
    with plain_faults(path := _texts_file(folder, number)):
        path.write_bytes(content)


def texts_of(row: Row, folder: Path) -> TrainedTexts:
    """What a window was trained on."""
    try:
        return unpacked(_texts_file(folder, row.window), row.texts)
    except DataError as fault:
        return TrainedTexts(unknown=str(fault))


def _texts_file(folder: Path, number: int) -> Path:
    return folder / f"texts-{number:06d}.bin"
