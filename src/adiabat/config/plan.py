"""Settings of ``adiabat plan``: a budget, what limits it, and the runs that say what to do with it (mission B8)."""

import math
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import PositiveFloat, field_validator, model_validator

from adiabat.config.faults import Need
from adiabat.config.section import Section, Text, Texts
from adiabat.config.shared import EncoderSection, RunSection
from adiabat.config.sweep import ReadingSection

BYTES = {unit: base**power for power, letter in enumerate("KMGT", 1) for unit, base in ((f"{letter}B", 1000), (f"{letter}iB", 1024))}
"""Units of memory."""

_AMOUNT = re.compile(rf"\s*([0-9]*\.?[0-9]+)\s*({'|'.join(BYTES)})\s*")


class PlanSection(ReadingSection):
    """``[plan]``."""

    needs: ClassVar[Mapping[str, Need]] = {name: Need("runs") for name in ("budget_seconds", "loss", "least_steps", "resamples", "measure")}
    budget: PositiveFloat | None = None
    """Operations by parameters and tokens (`adiabat.plan.flops`). Required, or `budget_seconds`."""
    budget_seconds: PositiveFloat | None = None
    """Time in place of a budget: what each model and method computes in it, at the speed of its runs."""
    runs: Text | None = None
    """Directory of a sweep, or its ``runs.parquet``; None uses what was published, which is little."""
    models: Texts = ()
    """MODELs that are asked where there are no runs."""
    data_tokens: PositiveFloat | None = None
    """That there are to train on, each read once; None sets no limit."""
    memory: int | None = None
    """That there is for a run, in bytes; such as ``"24GiB"``. None sets no limit."""
    measure: bool = True
    """Whether time and memory of what is recommended are measured here, by a few steps; where model and data can be read."""
    out: Text | None = None
    """Directory for ``result.json``, the page and the TOML files; None writes nothing."""

    @field_validator("memory", mode="before")
    @classmethod
    def _amount(cls, given: Any) -> Any:
        if not isinstance(given, str):
            return given
        found = _AMOUNT.fullmatch(given)
        if found is None or not math.isfinite(float(found[1]) * BYTES[found[2]]):
            raise ValueError(f'plan.memory must be an amount with a unit, such as "24GiB" or "80GB", got "{given}"')
        return int(float(found[1]) * BYTES[found[2]])

    @field_validator("memory")
    @classmethod
    def _there_is_some(cls, given: int | None) -> int | None:
        if given is not None and given <= 0:
            raise ValueError(f"plan.memory must be > 0, got {given}")
        return given


class PlanSettings(Section):
    """Everything that ``adiabat plan`` may be told."""

    plan: PlanSection = PlanSection()
    encoder: EncoderSection = EncoderSection()
    """Of `PlanSection.models`; runs have theirs."""
    run: RunSection = RunSection()

    @model_validator(mode="after")
    def _asks_runs_or_models(self) -> Self:
        if self.plan.budget is not None and self.plan.budget_seconds is not None:
            raise ValueError("plan.budget must be left out with plan.budget_seconds; leave one of them out")
        if self.plan.runs is not None and self.plan.models:
            raise ValueError("plan.models must be left out with plan.runs, which name their models; leave one of them out")
        if self.encoder.model_fields_set and not self.plan.models:
            raise ValueError("encoder has no effect without plan.models; leave it out")
        if self.plan.memory is not None and not (self.plan.models or self.plan.runs):
            raise ValueError("plan.memory has no effect without plan.runs or plan.models; name one of them, or leave it out")
        if "seed" in self.run.model_fields_set and not self.plan.runs:
            raise ValueError("run.seed has no effect without plan.runs: nothing is drawn; leave it out")
        if self.run.device != "auto" and not (self.plan.runs and self.plan.measure):
            raise ValueError("run.device has no effect where nothing is measured, which takes plan.runs; leave it out")
        return self
