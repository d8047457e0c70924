"""Settings of ``adiabat plan``: a budget, what limits it, and the runs that say what to do with it (mission B8)."""

from collections.abc import Mapping
from typing import ClassVar, Self

from pydantic import PositiveFloat, model_validator

from adiabat.config.faults import Need
from adiabat.config.section import Section, Text, Texts
from adiabat.config.shared import EncoderSection, RunSection
from adiabat.config.sweep import ReadingSection
from adiabat.config.units import Bytes, Seconds


class PlanSection(ReadingSection):
    """``[plan]``."""

    needs: ClassVar[Mapping[str, Need]] = {name: Need("runs") for name in ("budget_seconds", "loss", "least_steps", "resamples", "measure")}
    budget: PositiveFloat | None = None
    """Operations by parameters and tokens (`adiabat.plan.flops`). Required, or `budget_seconds`."""
    budget_seconds: Seconds | None = None
    """Time in place of a budget, in seconds, or such as ``"8h"``: what each model and method computes in it, at the speed of its runs."""
    runs: Text | None = None
    """Directory of a sweep, or its ``runs.parquet``; None uses what was published, which is little."""
    models: Texts = ()
    """MODELs that are asked where there are no runs."""
    data_tokens: PositiveFloat | None = None
    """That there are to train on, each read once; None sets no limit."""
    memory: Bytes | None = None
    """That there is for a run, in bytes; such as ``"24GiB"``. None sets no limit."""
    measure: bool = True
    """Whether time and memory of what is recommended are measured here, by a few steps; where model and data can be read."""
    out: Text | None = None
    """Directory for ``result.json``, the page and the TOML files; None writes nothing."""


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
