"""One run of a ladder: how far a tower drifts at a rate, until it leaves the band (mission A12)."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from adiabat.config import TuneSettings
from adiabat.errors import DivergedError
from adiabat.jobs.job import Job
from adiabat.measure.drift import MEASURES
from adiabat.measure.safe_rate_results import Rung
from adiabat.model.device import device_name
from adiabat.train.limits import Limits, Position
from adiabat.train.log import read_log
from adiabat.train.loop import Loop
from adiabat.train.passes import side_passes
from adiabat.tune.building import make_loop, prepared_tower, writing
from adiabat.tune.ground import Ground
from adiabat.tune.objective import DriftingDocuments
from adiabat.watch import Watch


@dataclass(frozen=True, slots=True)
class Attempt:
    """A run that is to be made.

    Attributes:
        rate: Its learning rate.
        seed: Of the run.
    """

    rate: float
    seed: int

    def __str__(self) -> str:
        return f"rate {self.rate:g}, seed {self.seed}"

    def settings(self, settings: TuneSettings) -> TuneSettings:
        """Of the run."""
        tune, run = settings.tune.model_copy(update={"learning_rate": self.rate}), settings.run.model_copy(update={"seed": self.seed})
        return settings.model_copy(update={"tune": tune, "guard": settings.watched, "run": run})

    def folder(self, ladder: Path) -> Path:
        """Where it is made."""
        return ladder / "rungs" / f"{self.rate:g}-seed-{self.seed}"


def make_rung(attempt: Attempt, ground: Ground, settings: TuneSettings, ladder: Path, watch: Watch) -> Rung:
    """Make a run, which ends when its drift leaves the band, or its steps are done."""
    own = attempt.settings(settings)
    objective = ground.drifting(prepared_tower(ground.model.query, own)[0], own)
    loop = _loop(attempt, objective, settings, ladder, watch)
    try:
        with side_passes(objective.encoder, precision=settings.run.precision) as objective.passes:
            reason = loop.run(resume=True).position.outside
    except DivergedError as fault:
        reason = fault.what
    return _rung(attempt, loop, reason)


def clear_rung(attempt: Attempt, ladder: Path) -> None:
    """Remove what a run needs no more once its row is written; its log stays."""
    shutil.rmtree(Job(attempt.folder(ladder)).checkpoints, ignore_errors=True)


def _loop(attempt: Attempt, objective: DriftingDocuments, settings: TuneSettings, ladder: Path, watch: Watch) -> Loop:
    steps, folder = settings.ladder.steps, attempt.folder(ladder)
    every = -(-steps // settings.ladder.looks)
    # No model is left, so that no weights are kept to come back to.
    limits = Limits(every, None, None, max_steps=steps, keep="last", **writing(settings))

    def show(position: Position) -> None:
        drift = position.best.loss if position.best else 0.0
        watch.progress(f"{attempt}: drift {drift:.3g} of {objective.guard.most:.3g}", position.step, steps)

    folder.mkdir(parents=True, exist_ok=True)
    return make_loop(objective, attempt.settings(settings), folder, limits=limits, watch=show, note=watch.note)


def _rung(attempt: Attempt, loop: Loop, reason: str | None) -> Rung:
    rows = [row for row in read_log(loop.log.path) if row["step"]]
    looks = [row for row in rows if f"validation_{MEASURES[0]}" in row]
    return Rung(
        rate=attempt.rate,
        seed=attempt.seed,
        steps=[int(row["step"]) for row in looks],
        drift={name: [float(row[f"validation_{name}"]) for row in looks] for name in MEASURES},
        left_at=loop.position.step if reason else None,
        reason=reason or "",
        seconds=loop.position.seconds,
        device=device_name(loop.device),
    )
