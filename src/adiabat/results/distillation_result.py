"""The result of a distillation."""

from dataclasses import dataclass
from typing import Literal

from adiabat.results.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillResult(Record):
    """The whole ``result.json`` of a static model.

    Attributes:
        tokens: Rows of the table.
        added: Number of added words and phrases that the teacher does not have as tokens.
        dims: Dimensions of a row.
        kept: Share of the variance of the teacher's token vectors that remains.
        counted: Number of texts in which tokens were counted; 0 if token ranks were used instead.
        size: Size of the table on disk, in bytes.
    """

    teacher: str
    tokens: int
    added: int
    dims: int
    kept: float
    counted: int
    size: int
    kind: Literal["distillation"] = "distillation"
