"""What `--dry-run` says of a tuning job: its resolved settings and its expected time."""

import time
from dataclasses import asdict, dataclass
from typing import Any

import tomli_w

from adiabat.adiabatic.expected_time import ExpectedTime, fitted, measured_pace, time_at
from adiabat.adiabatic.tuning_context import TuningContext
from adiabat.adiabatic.tuning_loop import check_settings
from adiabat.config.tuning import TuneSettings
from adiabat.core.progress import SILENT, Watch
from adiabat.runs.run_config import without_none
from adiabat.training.time_limit import seconds_since

EVIDENCE_SECONDS = 60.0
"""Time of the evidence before a job: 20 to 100 s on the six sets of LOG.md, one thread of a CPU."""


@dataclass(frozen=True, slots=True)
class TuningEstimate:
    """The resolved settings of a tuning job that was not run, and its expected time."""

    settings: dict[str, Any]
    queries: int
    validated: int
    time: ExpectedTime

    def to_json(self) -> dict[str, Any]:
        """Nested plain data, ready for `json.dump`."""
        time = {
            **asdict(self.time),
            "least_seconds": self.time.least_seconds,
            "most_seconds": self.time.most_seconds,
        }
        return {"settings": self.settings, "queries": self.queries, "validated": self.validated, **time}

    def summary(self) -> str:
        """The resolved settings as TOML, with the length and the expected time in comments."""
        lines = [
            f"data: {self.queries:,} queries, validated on {self.validated:,} others",
            self.time.summary(),
        ]
        if self.settings["tune"]["evidence"] != "off":
            lines.append("before that the evidence is measured, which takes about a minute")
        return tomli_w.dumps(without_none(self.settings)) + "".join(f"\n# {line}" for line in lines)


def estimate(
    context: TuningContext, settings: TuneSettings, *, started: float | None = None, watch: Watch = SILENT
) -> TuningEstimate:
    """The resolved settings of a job, and its expected time; nothing is written.

    A time limit counts from `started`, by default now.
    """
    started = time.monotonic() if started is None else started
    check_settings(settings)
    train, validation = context.examples(settings.data)
    pace = measured_pace(context, settings, started=started, watch=watch)
    evidence = 0.0 if settings.tune.evidence == "off" else EVIDENCE_SECONDS
    settings = fitted(settings, pace, spent=seconds_since(started) + evidence)
    expected = time_at(pace, settings)
    compared = settings.model_copy(update={"tune": context.compared(settings.tune)})
    return TuningEstimate(compared.model_dump(mode="json"), len(train), len(validation), expected)
