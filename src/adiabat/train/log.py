"""``log.jsonl``: one row per logging step and per epoch, the same whether a run was interrupted or not (but for the seconds)."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from adiabat.errors import JobError, MissingDependencyError


class JobLog:
    """Writes the rows of one job; optionally the same numbers for TensorBoard."""

    def __init__(self, path: Path, *, tensorboard: Path | None = None) -> None:
        """Set the log up; nothing is written yet.

        Args:
            path: Of the JSON lines.
            tensorboard: Folder for TensorBoard's event files; None writes none.

        Raises:
            MissingDependencyError: If `tensorboard` is given and the package is not installed.
        """
        self.path = path
        self._stream: IO[str] | None = None
        self._board = _summary_writer(tensorboard) if tensorboard else None

    def row(self, *, step: int, epoch: int, values: Mapping[str, float | int], seconds: float) -> None:
        """Add one row.

        Args:
            step: Optimiser steps taken.
            epoch: Epochs finished.
            values: Name to number.
            seconds: Since the job began, interruptions left out.

        Raises:
            JobError: If the disk is full or not writable.
        """
        try:
            stream = self._opened()
            stream.write(json.dumps({"step": step, "epoch": epoch, **values, "seconds": round(seconds, 3)}) + "\n")
            stream.flush()
        except OSError as fault:
            raise JobError(f"{self.path} could not be written: {fault}; free some space and run the same command with --resume") from fault
        if self._board:
            for name, value in values.items():
                self._board.add_scalar(name, value, step)

    def _opened(self) -> IO[str]:
        if self._stream is None:
            self._stream = self.path.open("a", encoding="utf-8")
        return self._stream

    def flush(self) -> None:
        """Hand everything to the operating system."""
        if self._stream:
            self._stream.flush()
        if self._board:
            self._board.flush()

    def close(self) -> None:
        """End writing."""
        self.close_stream()
        if self._board:
            self._board.close()

    def truncate(self, *, step: int) -> None:
        """Drop the rows after a step, and a half-written last one: what a resumed run writes again.

        Args:
            step: Last step to keep; -1 keeps nothing.
        """
        self.close_stream()
        kept = [row for row in read_log(self.path) if row["step"] <= step] if self.path.exists() else []
        self.path.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")

    def close_stream(self) -> None:
        """Close the JSON lines; the next row opens them again."""
        if self._stream:
            self._stream.close()
            self._stream = None


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """Rows of a log.

    Args:
        path: Of the JSON lines.

    Yields:
        Each whole row; a last line that was cut off is left out.
    """
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            return


def _summary_writer(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as fault:
        raise MissingDependencyError("tensorboard", extra="tensorboard", purpose="run.tensorboard = true") from fault
    return SummaryWriter(str(folder))  # type: ignore[no-untyped-call]
