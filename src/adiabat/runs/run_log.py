"""``log.jsonl``: one row per logging step and per epoch, the same whether a run was interrupted or not (but
for the seconds).

The validations in it decide which weights are the result, and how long a run has not improved.
"""

import importlib.util
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from adiabat.core.disk import appending_to, make_folder, move, part_of
from adiabat.core.errors import AdiabatError, JobError, MissingDependencyError, disk_error_of
from adiabat.core.files import advice_on
from adiabat.core.formats import rebuilt
from adiabat.core.provenance import Line, line_of, read_lines
from adiabat.core.wording import again
from adiabat.runs.run_config import exists
from adiabat.stats.jackknife import lower_end
from adiabat.stats.samples import Sample

REMEDY = "start again in another directory"


def require_tensorboard() -> None:
    """Refuse TensorBoard logging if its package is missing."""
    if importlib.util.find_spec("tensorboard") is None:
        raise MissingDependencyError("tensorboard", extra="tensorboard", purpose="run.tensorboard = true")


class JobLog:
    """Writes the rows of one job; optionally the same numbers for TensorBoard.

    Files are opened with the first row. Each row has a checksum over itself and all rows before it, so that a
    checkpoint, which holds the last one, notices a row that was lost or changed.
    """

    def __init__(self, path: Path, *, tensorboard: Path | None = None, silent: bool = False) -> None:
        """Set up the log without writing; `tensorboard` is a folder for event files."""
        if tensorboard:
            require_tensorboard()
        self.path = path
        self._silent = silent
        self._stream: IO[str] | None = None
        self._board_folder = tensorboard
        self._board: Any = None
        self._kept_step = -1
        self.checksum = ""
        """Checksum of the last row, which covers all earlier ones."""

    def row(self, *, step: int, epoch: int, values: Mapping[str, float | int], seconds: float) -> None:
        """Add one row."""
        if self._silent:
            return
        with plain_faults(self.path):
            self._stream = self._stream or TextIOWrapper(appending_to(self.path), encoding="utf-8")
            line = line_of(
                {"step": step, "epoch": epoch, **values, "seconds": round(seconds, 3)}, after=self.checksum
            )
            self._stream.write(str(line))
            self._stream.flush()
            self.checksum = line.checksum
            if self._board_folder:
                if self._board is None:
                    from torch.utils.tensorboard import SummaryWriter

                    make_folder(self._board_folder)
                    # Hides later steps that an interrupted run had written.
                    self._board = SummaryWriter(str(self._board_folder), purge_step=self._kept_step + 1)
                for name, value in values.items():
                    self._board.add_scalar(name, value, step)

    def flush(self) -> None:
        """Flush every row to disk, so that a checkpoint never outlives the rows before it."""
        with plain_faults(self.path):
            if self._stream:
                os.fsync(self._stream.fileno())
            if self._board:
                self._board.flush()

    def close(self) -> None:
        """Close all files."""
        self.close_stream()
        if self._board:
            self._board.close()

    def truncate(self, *, step: int, checksum: str | None = None) -> None:
        """Drop the rows after a step, and an incomplete last one; the remaining rows must match the checksum,
        if there is one.

        The shortened log replaces the old one atomically, so a run that is killed here loses nothing.
        """
        if self._silent:
            return
        self.close_stream()
        self._kept_step = step
        lines = list(self._lines(step)) if step >= 0 else []
        self.checksum = lines[-1].checksum if lines else ""
        if checksum is not None and self.checksum != checksum:
            raise JobError(
                f"{self.path} must hold every row up to step {step}, but rows "
                f"are missing or changed; {REMEDY}"
            )
        with plain_faults(self.path), part_of(self.path) as (part, file):
            file.write("".join(map(str, lines)).encode())
            file.flush()
            move(part, self.path)

    def _lines(self, step: int) -> Iterator[Line]:
        """The rows up to a step; reading ends at the first one after it."""
        for line in _lines(self.path) if exists(self.path) else ():
            if line.row["step"] > step:
                return
            yield line

    def close_stream(self) -> None:
        """Close the JSON lines; the next row opens them again."""
        if self._stream:
            self._stream.close()
            self._stream = None


@contextmanager
def plain_faults(
    path: Path, *, advice: str | None = None, error: type[AdiabatError] = JobError
) -> Iterator[None]:
    """Describe a failed disk operation in one line.

    Args:
        advice: What to do where the disk is full or may not be written; None resumes the run.
    """
    try:
        yield
    # Libraries report a full disk in classes of their own.
    except Exception as fault:
        cause = disk_error_of(fault)
        if cause is None:
            raise
        remedy = advice or advice_on(cause, f"free some space and {again(resume=True)}")
        raise error(f"{path} could not be written: {cause}; {remedy}") from fault


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """Rows of a log."""
    return (line.row for line in _lines(path))


def _lines(path: Path) -> Iterator[Line]:
    """Lines of a log whose rows have the columns of this version."""
    for number, line in enumerate(read_lines(path, remedy=REMEDY, error=JobError), start=1):
        # Further columns differ from job to job, but all are numbers.
        kind = _ValidationRow if "validation_loss" in line.row else _Row
        place = Path(f"{path}:{number}")
        numbers = rebuilt(dict[str, float], line.row, place, remedy=REMEDY, error=JobError)
        required = {field.name: line.row[field.name] for field in fields(kind) if field.name in numbers}
        rebuilt(kind, required, place, remedy=REMEDY, error=JobError)
        yield line


@dataclass(frozen=True, slots=True)
class _Row:
    """Columns that every row of a log has."""

    step: int
    epoch: int


@dataclass(frozen=True, slots=True)
class _ValidationRow(_Row):
    """Columns of a row with a validation."""

    validation_loss: float
    validation_errors: int
    validation_pairs: int


Keep = Literal["ranking", "both", "loss", "last"]
"""Weights of the result: those of the epoch that ranks best, with both signals lowest, with the loss lowest,
or of the last epoch."""

IDLE = "validation_idle"
"""Column of the epochs without an improvement, in logs of runs that keep by ranking: a row has no scores of
single queries."""


BETTER = 0.8
"""One-sided confidence with which an epoch must rank better than the best so far, query by query."""


@dataclass(frozen=True, slots=True)
class Validation:
    """The result of a validation.

    Attributes:
        loss: Over the validation set.
        errors: Number of (positive, negative) pairs in the wrong order, or of queries whose top document is
            wrong; ties are errors.
        pairs: Number of pairs, or queries, evaluated.
        measures: Further figures, for the log.
        scores: Ranking score of each query, which runs that keep by ranking compare; empty for others.
        outside: Why these weights must not be the result, such as too much drift; None if they may.
    """

    loss: float
    errors: int
    pairs: int
    measures: Mapping[str, float] = field(default_factory=dict)
    scores: tuple[float, ...] = ()
    outside: str | None = None

    def improves_on(self, best: "Validation", *, keep: Keep) -> bool:
        """Whether an epoch's weights replace the best so far."""
        if self.outside is not None:
            return False
        if keep == "last":
            return True
        if keep == "ranking":
            gains = np.subtract(self.scores, best.scores)
            return lower_end(Sample("gain", gains), BETTER) > 0
        # Strictly lower: an equal epoch is idle, and NaN never improves.
        return self.loss < best.loss and (keep == "loss" or self.errors < best.errors)


def idle_counts(rows: Iterable[Mapping[str, Any]], *, keep: Keep) -> list[int]:
    """Epochs since the last improvement, at the start and after each epoch of a log.

    The same rule as that of the loop (`Validation.improves_on`), applied to what the log says.
    """
    if keep == "ranking":
        return [int(row[IDLE]) for row in rows if IDLE in row]
    counts: list[int] = []
    best: Validation | None = None
    for row in (row for row in rows if "validation_loss" in row):
        validation = Validation(row["validation_loss"], row["validation_errors"], row["validation_pairs"])
        improved = best is None or validation.improves_on(best, keep=keep)
        best = validation if improved else best
        counts.append(0 if improved else counts[-1] + 1)
    return counts


def least_idle(counts: Sequence[int]) -> int:
    """The smallest limit of idle epochs that would not have stopped the run before now."""
    # A count c before the last epoch did not stop the run, so the limit was above it: c + 1 or more. The last
    # count itself would stop it only now.
    return max([counts[-1], *(count + 1 for count in counts[:-1])])
