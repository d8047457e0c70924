"""Records of towers for tenants, for the tests of the report room and of the rules."""

from dataclasses import replace
from typing import Any

from adiabat.results.tenants_result import Tenant, TenantsResult, TenantTower, TowerName
from adiabat.results.training_record import CandidateFigure
from tests.report.sample_advice import make_gain


def make_tower(name: TowerName, change: float, *, is_retained: bool = True) -> TenantTower:
    """A tower that gains so much on 30 validation queries."""
    own = CandidateFigure("tenant", 30, 0.5, change, change - 0.02, True)
    kept = CandidateFigure("law", 250, 0.6, 0.001, -0.004, is_retained)
    return TenantTower(name, (own, kept))


def make_tenant(name: str, chosen: TowerName = "shared", gain: float = 4.0, **more: Any) -> Tenant:
    towers = [make_tower("shared", 0.02), make_tower("average", 0.03), make_tower("own", 0.01)]
    tenant = Tenant(name, 200, 30, 50, towers, chosen, "because", f"towers/{name}/{chosen}")
    return replace(tenant, **{"target": make_gain(gain), "retained": {"law": make_gain(0.2)}, **more})


def make_tenants(**more: Any) -> TenantsResult:
    start = make_tenant("start", "start", target=None, retained={})
    few = make_tenant("few", towers=[make_tower("shared", 0.02)], test=0, target=None, retained={})
    risky = [make_tower("shared", 0.02), make_tower("own", 0.05, is_retained=False)]
    values: dict[str, Any] = {
        "title": "towers of 5 tenants",
        "command": "adiabat tune small store rows.jsonl --by firm",
        "created": "2026-11-28T10:00:00+00:00",
        "seconds": 310.0,
        "seed": 0,
        "versions": {"adiabat": "0.2"},
        "settings": {"tenants": {"fewest": 100}},
        "inputs": {"target": {"data": "rows.jsonl", "store": "store"}},
        "notes": ["a note"],
        "model": "small",
        "by": "firm",
        "tenants": [
            make_tenant("a", "average"),
            make_tenant("b", "own", 0.5, towers=risky),
            make_tenant("chance", holds=False),
            few,
            start,
        ],
        "shared": 2.5,
        "serve": "adiabat serve store --tower a=towers/a/average",
    }
    return TenantsResult(**(values | more))
