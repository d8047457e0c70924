"""Checks of towers for tenants by settings and files, before torch is loaded."""

from pathlib import Path

from adiabat.adiabatic.tune_checks import RULES, inputs_of, require_named
from adiabat.config.tenant_towers import TenantSettings
from adiabat.data.examples import require_columns
from adiabat.data.tenants import FILE, tenant_files
from adiabat.runs.output_dir import require_begun
from adiabat.runs.run_config import Rules, is_described

TABLE = "tenants"
"""Table that identifies the configuration of towers for tenants."""


def require_tenants(
    model: str, store: str, data: str, out: Path, by: str, settings: TenantSettings, *, resume: bool
) -> tuple[bool, str | None]:
    """Check inputs and directory.

    Returns:
        Whether the directory holds towers to resume, and a note if it does not though it should.
    """
    begun = is_described(out, TABLE)
    note = require_begun(out, "set of towers for tenants", begun=begun, resume=resume)
    sources = [data] if by != FILE else list(map(str, tenant_files(data)))
    for source in sources:
        require_named(inputs_of(model, store, source), settings)
    if by != FILE:
        require_columns(data, {**settings.data.columns.given(), "topic": by})
    return begun, note


def rules_of() -> Rules:
    """What may change when an interrupted call is resumed; jobs compare their own settings too."""
    paths = {f"inputs.{name}" for name in ("model", "store", "data")}
    return Rules(
        free=RULES.free | paths | {"tenants.fewest"},
        free_in=RULES.free_in,
        words={
            "inputs.store_vectors": "the vectors of the store differ from those the towers began with",
            "inputs.queries": "the queries differ from those the towers began with",
        },
    )
