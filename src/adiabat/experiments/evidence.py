"""The evidence before a tuning job: what `adiabat advise` measures, on the job's own queries.

It takes about a minute, and tells what the job may gain before it takes a step.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from adiabat.adiabatic.tuning_context import TuningContext
from adiabat.adiabatic.tuning_loop import check_settings
from adiabat.config.shared import AdviseSettings
from adiabat.config.tuning import TuneSettings
from adiabat.core.disk import make_folder
from adiabat.core.errors import DataError
from adiabat.core.progress import Watch
from adiabat.experiments.advice import advise_on
from adiabat.experiments.advice_rules import percent_of
from adiabat.models.model_names import trained_by
from adiabat.results.advice_result import Advice
from adiabat.results.evaluation_result import Change
from adiabat.results.record import read_result
from adiabat.runs.output_dir import write_report
from adiabat.store.addressing import joined

EVIDENCE = "evidence"
"""Folder of the evidence in a job."""

MOST_DOCUMENTS = 200_000
"""Largest store that gets a BM25 index for the evidence; that of more documents takes minutes."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was measured before a job, or why nothing could be.

    Attributes:
        advice: The figures and the recommendation; None if there are too few queries.
        fault: Why nothing was measured; "" otherwise.
    """

    advice: Advice | None
    fault: str = ""

    @property
    def says_tune(self) -> bool:
        """Whether the figures recommend to tune, or to try."""
        return self.advice is not None and (self.advice.says_tune or self.says_try)

    @property
    def says_try(self) -> bool:
        """Whether the first epoch tells if tuning gains: fusion does, and a linear map is no sure prophet of
        what steps can do.
        """
        return self.advice is not None and self.advice.choice == "fuse with BM25"

    @property
    def reason(self) -> str:
        """The recommendation with its reason."""
        if self.advice is None:
            return self.fault
        return f"{self.advice.choice}. {self.advice.reason}"

    @property
    def mapped(self) -> Change | None:
        """The gain to expect: that of a linear map of the queries, on new documents."""
        return None if self.advice is None else self.advice.target.mapped

    def promise(self) -> str:
        """The gain to expect in words; "" if it was not measured."""
        if self.mapped is None:
            return ""
        gain = f"{percent_of(self.mapped)} of {self.mapped.measure} on new documents"
        return f"expect about {gain}, as a linear map of the queries gains"

    @property
    def expected(self) -> tuple[float, float, float] | None:
        """The gain to expect in percent with its ends; None if it was not measured."""
        mapped = self.mapped
        if mapped is None or mapped.improvement is None or mapped.improvement_interval is None:
            return None
        return mapped.improvement, *mapped.improvement_interval

    def write(self, job: Path) -> None:
        """Write the record and its page into a job, unless they are there."""
        if self.advice is not None and not _record(job).exists():
            make_folder(_record(job).parent)
            write_report(self.advice, _record(job).parent)


def evidence_for(context: TuningContext, job: Path, settings: TuneSettings, watch: Watch) -> Evidence:
    """Read what a job measured at its first start, or measure it; nothing is written.

    Settings and data that cannot be tuned on are refused first, before the minute that the evidence takes.
    """
    if _record(job).exists():
        return Evidence(read_result(_record(job), Advice))
    check_settings(settings)
    context.require_possible([settings])
    train, validation = context.examples(settings.data)
    if settings.data.validation is not None:
        # Another file numbers its clusters anew.
        train, validation = replace(train, clusters=None), replace(validation, clusters=None)
    asked = AdviseSettings(
        encoder=settings.encoder,
        run=AdviseSettings().run.model_copy(
            update={"seed": settings.run.seed, "device": settings.run.device}
        ),
    )
    try:
        advice = advise_on(
            context.start_on_device(settings),
            [(context.store, joined(train, validation))],
            settings=asked,
            command="",
            inputs={"target": dict(context.inputs)},
            tuning="",
            trained=trained_by(context.inputs["model"]),
            lexical=context.store.count <= MOST_DOCUMENTS,
            watch=watch,
        )
    except DataError as fault:
        return Evidence(None, str(fault))
    return Evidence(replace(advice, title=f"evidence before tuning: {advice.title}"))


def _record(job: Path) -> Path:
    return job / EVIDENCE / "result.json"
