"""What a sweep of tuning leaves behind: plain data for ``result.json``, of which its page, figures and tables are made.

Reference: Vasilyev et al. 2024.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from adiabat.results.evaluation_result import Change, GridComparison, LayerChange
from adiabat.results.record import Record
from adiabat.results.suite_result import Kind

Value = str | float | int | bool | list[str] | None
"""Of a setting."""


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """One tuned tower beside the untuned one, on one task.

    Attributes:
        task: Name, unique in the sweep.
        kind: What is asked.
        unit: What the units are, in the singular, such as ``query``.
        units: How many.
        changes: One for each measure and similarity; the first carries the verdict.
        languages: Of a grid.
        grids: Tables of a grid, with counts of language pairs improved and worsened.
        notes: What was left out, or needs saying.
    """

    task: str
    kind: Kind
    unit: str
    units: int
    changes: list[Change]
    languages: list[str] = field(default_factory=list)
    grids: list[GridComparison] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def main(self) -> Change:
        """The change that carries the verdict."""
        return self.changes[0]


@dataclass(frozen=True, slots=True)
class Drift:
    """How far what a tuned tower finds for probe texts is from what the untuned one finds.

    Attributes:
        probes: How many texts.
        means: Measure to its mean over probes; `adiabat.adiabatic.drift` has the formulas.
        errors: Measure to the standard error of that mean.
        groups: Group of probes, such as a language, to the means of its probes.
    """

    probes: int
    means: dict[str, float]
    errors: dict[str, float]
    groups: dict[str, dict[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SweepRun:
    """One tuning run of a sweep.

    Attributes:
        name: Unique in the sweep; also that of its folder.
        variant: Name of the overlay that it has; "" where there is none.
        varied: Dotted setting to its value, of those that the grid varies.
        seed: Of the run.
        learning_rate: As taken, after any scaling with the batch size.
        batch_size: Queries per step.
        status: ``done``, or ``failed`` where it ended without a model.
        reason: Why it stopped, or failed.
        seconds: Of training and validation.
        steps: Taken.
        epochs: Finished.
        best_epoch: Whose weights were kept; 0 is the start.
        validation_loss: (epoch, loss) points, epoch 0 first.
        validation_errors: (epoch, errors) points, epoch 0 first.
        validation_pairs: That the errors are counted over.
        trainable: Parameters that were updated.
        tasks: In the order of the sweep.
        layers: How much each tensor moved.
        drift: From the untuned tower on the probes; None where there are none.
        device: That it ran on.
    """

    name: str
    variant: str
    varied: dict[str, Value]
    seed: int
    learning_rate: float
    batch_size: int
    status: Literal["done", "failed"]
    reason: str
    seconds: float = 0.0
    steps: int = 0
    epochs: int = 0
    best_epoch: int = 0
    validation_loss: list[tuple[int, float]] = field(default_factory=list)
    validation_errors: list[tuple[int, int]] = field(default_factory=list)
    validation_pairs: int = 0
    trainable: int = 0
    tasks: list[TaskOutcome] = field(default_factory=list)
    layers: list[LayerChange] = field(default_factory=list)
    drift: Drift | None = None
    device: str = ""

    def task(self, name: str) -> TaskOutcome | None:
        """What it did on a task.

        Returns:
            None where it was not measured.
        """
        return next((one for one in self.tasks if one.task == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult(Record):
    """The whole ``result.json`` of a sweep.

    Attributes:
        model: Where tuning starts.
        targets: Names of the tasks that tuning is for; the others must not get worse.
        tasks: Names of all tasks, in order.
        varied: Dotted settings that the grid varies, in order.
        runs: In order of the grid.
        noise: Measure of drift to how far the untuned tower drifts when only the writing of the probes changes (`adiabat.adiabatic.drift`);
            empty where drift was not measured.
    """

    ROWS: ClassVar[str] = "runs"

    model: str
    targets: list[str]
    tasks: list[str]
    varied: list[str]
    runs: list[SweepRun]
    noise: dict[str, float] = field(default_factory=dict)
    kind: Literal["sweep"] = "sweep"
