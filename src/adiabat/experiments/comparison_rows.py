"""``runs.jsonl``: a row for each model that was trained and measured, which a comparison that was cut short goes on from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from adiabat.results.comparison_result import Speed
from adiabat.runs.row_files import Rows, json_rows

Key = tuple[str, int | None]
"""Name of a candidate, and the seed of a run; None is the untrained start."""

ROWS = "runs.jsonl"
"""In the directory of a comparison."""


@dataclass(frozen=True, slots=True)
class TaskRow:
    """What one model scored on one task.

    Attributes:
        kind: How it was measured.
        documents: Of the corpus.
        values: Of the main measure, one for each query.
        measures: Means of all measures.
        notes: What was left out.
        trained: Queries that the run trained or validated on.
    """

    kind: Literal["ranking", "pairs"]
    documents: int
    values: list[float]
    measures: dict[str, float]
    notes: tuple[str, ...] = ()
    trained: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """One model.

    Attributes:
        candidate: Whose it is; "" for a start that all share.
        seed: Of the run; None for an untrained start.
        tasks: By name.
        parameters: Of both towers, each once.
        seconds: Of training and measuring.
        device: That it ran on.
        trained: Parameters that were updated.
        pairs: Trained on.
        steps: Taken.
        passes: Over the pairs.
        step_seconds: Median time of a step.
        speed: Of encoding.
        digests: SHA-256 of the model and of the data that the run began with.
    """

    candidate: str
    seed: int | None
    tasks: dict[str, TaskRow]
    parameters: int
    seconds: float
    device: str
    trained: int = 0
    pairs: int = 0
    steps: int = 0
    passes: float = 0.0
    step_seconds: float | None = None
    speed: Speed | None = None
    digests: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """What the row is known by."""
        return self.candidate, self.seed


def rows_at(path: Path) -> Rows[Key, Row]:
    """The models of a comparison that were trained and measured."""
    return json_rows(path, Row, key=lambda row: row.key)


def digests_of(rows: Rows[Key, Row], candidate: str) -> Mapping[str, str]:
    """What runs of a candidate began with."""
    return next((row.digests for row in rows.every if row.candidate == candidate and row.seed is not None), {})
