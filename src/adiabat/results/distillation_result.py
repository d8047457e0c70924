"""What a distillation leaves behind beside its model."""

from dataclasses import dataclass
from typing import Literal

from adiabat.results.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillResult(Record):
    """The whole ``result.json`` of a static model.

    Attributes:
        tokens: Rows of the table.
        added: Words and phrases among them that the teacher does not have as tokens.
        dims: Numbers in each.
        kept: Share of the variance of the teacher's token vectors that is left.
        counted: Texts in which tokens were counted; 0 where their rank stands for that.
        size: Of the table on disk, in bytes.
    """

    teacher: str
    tokens: int
    added: int
    dims: int
    kept: float
    counted: int
    size: int
    kind: Literal["distillation"] = "distillation"
