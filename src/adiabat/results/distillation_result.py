"""What a distillation leaves behind beside its model."""

from dataclasses import dataclass, field
from typing import Any

from adiabat.results.evaluation_result import WithOrigin

DISTILL_FORMAT = 1


@dataclass(frozen=True, slots=True)
class DistillResult(WithOrigin):
    """The whole ``result.json`` of a static model.

    Attributes:
        teacher: Its name.
        tokens: Rows of the table.
        added: Words and phrases among them that the teacher does not have as tokens.
        dims: Numbers in each.
        kept: Share of the variance of the teacher's token vectors that is left.
        counted: Texts in which tokens were counted; 0 where their rank stands for that.
        size: Of the table on disk, in bytes.
        settings: The resolved configuration.
        inputs: What was read.
        notes: What a reader must know.
        format: Version of this layout.
    """

    teacher: str
    tokens: int
    added: int
    dims: int
    kept: float
    counted: int
    size: int
    settings: dict[str, Any] = field(default_factory=dict)
    inputs: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    format: int = DISTILL_FORMAT
