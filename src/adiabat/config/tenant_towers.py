"""Settings of ``adiabat tune --by``, which tunes a query tower for each tenant of one store."""

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field, PositiveInt

from adiabat.config.section import Section
from adiabat.config.tuning import TuneDataSection, TuneSettings


class TenantDataSection(TuneDataSection):
    """``[data]``: queries of all tenants, with documents from one store; `max_validation` is that of each
    tenant, and of the shared tower.
    """

    validation_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Share of the queries held out for validation, after those for the test. It chooses among a tenant's
    towers too, so it is larger than that of a single job."""

    def faults(self) -> Iterator[tuple[str, str]]:
        """Validation queries are held out for all tenants at once."""
        if self.validation is not None:
            yield (
                "validation",
                "must be left out, since documents are held out for all tenants together, got "
                f"{self.validation}; add its rows to the data",
            )


class TenantsSection(Section):
    """``[tenants]``: a query tower for each tenant."""

    test_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """Share of the queries held out for a verdict on each tenant; 0 measures none."""
    fewest: PositiveInt = 100
    """Queries to tune and validate with that a tenant needs for a tower of its own."""


class TenantSettings(TuneSettings):
    """All settings of ``adiabat tune --by``: those of each job, and of the choice among towers."""

    data: TenantDataSection = TenantDataSection()
    tenants: TenantsSection = TenantsSection()

    def of_job(self, validation: str, *, is_shared: bool) -> TuneSettings:
        """The settings of one tower's job, whose data are files that were written for it."""
        tables: dict[str, Any] = self.model_dump(exclude_unset=True, exclude={"tenants", "data"})
        tables["data"] = {"validation": validation, "ids": self.data.ids, "missing": self.data.missing}
        # The evidence is that of all tenants; what a tenant gains is measured on its validation queries.
        if not is_shared:
            tables["tune"] = {**tables.get("tune", {}), "evidence": "off"}
        return TuneSettings.model_validate(tables)
