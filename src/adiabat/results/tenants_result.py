"""The record of the towers of several tenants: what each tenant's own tower, that of all, and their average
change, and which one each tenant takes.
"""

from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal

from adiabat.results.evaluation_result import Change
from adiabat.results.record import Record
from adiabat.results.training_record import CandidateFigure

TowerName = Literal["start", "shared", "average", "own"]
"""The untuned tower, the one that is tuned on the queries of all tenants, the mean of its weights and those
of the tenant's own, and the tenant's own."""


@dataclass(frozen=True, slots=True)
class TenantTower:
    """A tower that a tenant may take.

    Attributes:
        figures: Its changes from the start on the tenant's validation queries, then on each retention set.
    """

    name: TowerName
    figures: tuple[CandidateFigure, ...]


@dataclass(frozen=True, slots=True)
class Tenant:
    """One tenant.

    Attributes:
        train: Number of queries that its towers are tuned on.
        validation: Number of queries that chose among them.
        test: Number of queries that the verdict is about.
        towers: All but the start that were tried; empty without validation queries.
        chosen: The one that it takes.
        why: In words.
        model: The chosen tower as a MODEL.
        target: Change of the chosen tower on the tenant's test queries; None without any, or for the start.
        holds: Whether a change that is shown holds among all tenants (Benjamini and Hochberg 1995).
        retained: Change of the chosen tower on each retention set, by its name.
    """

    name: str
    train: int
    validation: int
    test: int
    towers: list[TenantTower]
    chosen: TowerName
    why: str
    model: str
    target: Change | None = None
    holds: bool = True
    retained: dict[str, Change] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantsResult(Record):
    """The whole ``result.json`` of towers for tenants.

    Attributes:
        model: That they start from.
        by: Column that names the tenants, or ``file``.
        tenants: In alphabetical order.
        shared: What the validation queries of all tenants showed for the shared tower, in percent; 0 if it
            kept its start.
        serve: The call that serves all chosen towers.
    """

    ROWS: ClassVar[str] = "tenants"

    model: str
    by: str
    tenants: list[Tenant]
    shared: float
    serve: str
    kind: Literal["tenants"] = "tenants"

    def rows(self) -> list[dict[str, Any]]:
        """A row for each tenant, with its change on its test queries."""
        rows = []
        for tenant in self.tenants:
            row = asdict(tenant)
            del row["towers"], row["retained"]
            rows.append(row)
        return rows
