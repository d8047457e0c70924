"""The part of each source in a shard of a stream, and the row that records it, so that the same shard can be
read again.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from adiabat.config.section import Exhausted
from adiabat.core.disk import appending_to, new_file, shorten
from adiabat.core.errors import DataError, JobError
from adiabat.core.files import LARGEST_LOG, is_there, read_plain
from adiabat.core.formats import rebuilt
from adiabat.core.provenance import last_checksum, line_of, read_lines
from adiabat.data.batch_sampler import shard_quotas
from adiabat.data.examples import ExampleReader, SourcePosition
from adiabat.data.records import Example
from adiabat.data.text_hashes import TrainedTexts
from adiabat.models.model_names import unpacked
from adiabat.results.training_record import TrainedFile
from adiabat.runs.run_log import plain_faults

ROWS = "shards.jsonl"
"""File of the rows, in the folder of the shards."""

Take = Callable[[Iterator[Example], int], None]
"""Consumes the examples of a source, given with its number."""


@dataclass(frozen=True, slots=True)
class Part:
    """A source's part of a shard: number of examples requested by its weight, number read, and positions
    where reading began and ended.
    """

    asked: int
    given: int
    start: SourcePosition
    end: SourcePosition


@dataclass(frozen=True, slots=True)
class Row:
    """A shard's row in ``shards.jsonl``.

    Attributes:
        first: First step.
        steps: Number of steps; 0 if the pairs fill no batch.
        left: Number of pairs in no batch.
        validated: Number of queries that are also validation queries.
        drawn: Number of pairs in batches, by source; a pair drawn twice counts twice.
        last: Whether the run ends with this shard.
        texts: File of text hashes.
    """

    shard: int
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


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of shards of `size` examples, with weights that add up to 1.

    Attributes:
        tapes: A reader for each source, which goes on from any position.
        exhausted: What follows the end of a source; see `read`.
    """

    tapes: Sequence[ExampleReader]
    weights: Float[np.ndarray, " s"]
    size: int
    exhausted: Exhausted

    def read(self, number: int, starts: Sequence[SourcePosition], take: Take) -> tuple[Part, ...]:
        """Read a shard.

        When a source ends, it adds no more examples to the shard (``drop``, ``stop``), or restarts
        (``cycle``), but never repeats a row within a shard. Under ``drop``, an ended source is left out until
        all have ended; all restart with the next shard.
        """
        # When every source has ended, all begin again with this shard.
        if all(start.ended for start in starts):
            starts = [start.rewound() for start in starts]
        live = [not start.ended for start in starts]
        # The others take the share of a source that has ended.
        quotas = shard_quotas(number, self.size, self.weights, live=live).tolist()
        parts = tuple(
            self._part(source, start, quota, take)
            for source, (start, quota) in enumerate(zip(starts, quotas, strict=True))
        )
        if (
            self.exhausted == "drop"
            and all(part.end.ended for part in parts)
            and not any(part.given for part in parts)
        ):
            # All sources ended exactly with the previous shard, which got all examples it requested and could
            # not notice.
            return self.read(number, [part.end for part in parts], take)
        return parts

    def _part(self, source: int, start: SourcePosition, quota: int, take: Take) -> Part:
        """Read one source's part, at most to where it started: no row is in a shard twice."""
        tape = self.tapes[source]
        take(tape.read(start, quota), source)
        end = tape.position()
        count = end.mark.rows - start.mark.rows
        # The rest of the quota comes from the beginning, at most up to where this part started.
        if self.exhausted == "cycle" and end.ended:
            take(tape.read(end.rewound(), min(quota - count, start.mark.rows)), source)
            end = tape.position()
            count += end.mark.rows
        return Part(quota, count, start, end)

    def is_last(self, parts: Sequence[Part]) -> bool:
        """Whether the shard with these parts is the last one."""
        return self.exhausted == "stop" and any(part.end.ended for part in parts)

    def times(self, parts: Sequence[Part]) -> tuple[float, ...]:
        """How often the pass over a shard repeats the pairs of each source, to match the weights.

        Under ``cycle``, a source that gave less than was asked is repeated: asked / given. The last shard of
        ``stop`` ends with the source that ran out first, of which the share ``given / asked`` is left; the
        pass takes that share of every source.
        """
        if self.exhausted == "cycle":
            return tuple(part.asked / part.given if part.given else 0.0 for part in parts)
        if not self.is_last(parts):
            return (1.0,) * len(parts)
        least = min(part.given / part.asked for part in parts if part.end.ended)
        return tuple(least * part.asked / part.given if part.given else 0.0 for part in parts)


REMEDY = "start again in another directory"


def read_rows(path: Path) -> list[Row]:
    """Rows of the shards read so far."""
    if not is_there(path, error=JobError):
        return []
    lines = enumerate(read_lines(path, remedy=REMEDY, error=JobError), start=1)
    return [_row(line.row, Path(f"{path}:{number}")) for number, line in lines]


def _row(plain: dict[str, Any], path: Path) -> Row:
    """A row from its line; `path` names file and line in errors."""
    # Rows of adiabat 0.1 have no signatures of near duplicates.
    return rebuilt(Row, plain, path, remedy=REMEDY, error=JobError, optional=("signatures",))


def whole_rows(path: Path) -> list[Row]:
    """Like `read_rows`, but first cuts off a last row that a killed run left incomplete."""
    if is_there(path, error=JobError):
        with plain_faults(path):
            shorten(path, read_plain(path, limit=LARGEST_LOG, error=JobError).rfind(b"\n") + 1)
    return read_rows(path)


def append_row(path: Path, row: Row) -> None:
    """Append a row and flush it to disk before its shard is used."""
    line = line_of(asdict(row), after=last_checksum(path, remedy=REMEDY, error=JobError))
    with plain_faults(path), appending_to(path) as file:
        file.write(str(line).encode())
        file.flush()
        os.fsync(file.fileno())


def write_texts(folder: Path, number: int, content: bytes) -> None:
    """Write the hashes of a shard's texts; they stay on disk after the shard is deleted."""
    path = _texts_file(folder, number)
    with plain_faults(path), new_file(path) as file:
        file.write(content)


def texts_of(row: Row, folder: Path) -> TrainedTexts:
    """Hashes of the texts of a shard."""
    try:
        return unpacked(_texts_file(folder, row.shard), row.texts)
    except DataError as fault:
        return TrainedTexts(unknown=str(fault))


def _texts_file(folder: Path, number: int) -> Path:
    """File of a shard's text hashes."""
    return folder / f"texts-{number:06d}.bin"
