"""What a scaling experiment leaves behind: a row for each run, and the whole for ``result.json`` (Ziarko et al. 2024)."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from adiabat.results.record import Record
from adiabat.scaling_laws.flops import PassedParameters
from adiabat.scaling_laws.frontier import Crossing, Profile
from adiabat.scaling_laws.laws import Kind, Method, Option, Way

LossOf = Literal["validation", "training"]
"""Which loss of a run: on pairs that were held out, when it is over, or the mean over its last steps."""


@dataclass(frozen=True, slots=True)
class ScalingRun:
    """One run of a scaling experiment.

    Attributes:
        parameters: ``N_F``, ``N_B`` and ``N_U`` of a tower.
        status: ``done``, or ``failed`` where it ended without a model.
        passes: How often it went over its pairs; 0 where that is not known.
        loss: Mean over its last steps, in nats; None of one that failed, here and below.
        validation_loss: On pairs held out, of the weights that were kept, in nats.
        validation: Further figures of that validation: ``P@1`` and ``RR``.
        memory: Most that was held at a time, in bytes (`adiabat.models.device.peak_memory`); 0 where it was not measured.
    """

    name: str
    way: Way
    parameters: PassedParameters
    learning_rate: float
    batch_size: int
    budget: float
    seed: int
    status: Literal["done", "failed"]
    reason: str
    steps: int = 0
    tokens: float = 0.0
    passes: float = 0.0
    flops: float = 0.0
    loss: float | None = None
    validation_loss: float | None = None
    validation: dict[str, float] = field(default_factory=dict)
    queries: int = 0
    seconds: float = 0.0
    memory: int = 0
    device: str = ""
    scores: dict[str, float] = field(default_factory=dict)

    @property
    def option(self) -> Option:
        """What was trained, with what that costs."""
        return Option(self.way, self.parameters)

    def loss_of(self, kind: LossOf) -> float | None:
        """Its loss.

        Returns:
            In nats; None of a run that failed.
        """
        return self.validation_loss if kind == "validation" else self.loss


@dataclass(frozen=True, slots=True)
class Predicted:
    """A run beside what a law says of it.

    Attributes:
        fitted: By the law fitted to all runs of its kind.
        held_out: By the law fitted without the largest model of its kind; None where too few runs are left for that.
        largest: Whether it is of that model.
    """

    run: str
    loss: float
    fitted: float
    held_out: float | None
    largest: bool


@dataclass(frozen=True, slots=True)
class LineRecord:
    """A straight line through logarithms.

    Attributes:
        slope: Of the logarithm.
        intercept: Of the logarithm.
        low: The intervals' lower ends of slope and intercept; None where there are none.
        high: Their upper ends.
        at: Where it runs through, rising.
    """

    slope: float
    intercept: float
    low: tuple[float, float] | None
    high: tuple[float, float] | None
    at: list[float]
    values: list[float]


@dataclass(frozen=True, slots=True)
class Coefficient:
    """Of a law.

    Attributes:
        name: In the source's letters.
        value: As the source writes it.
        low: Lower end of the 95 % interval.
        high: Upper end.
    """

    name: str
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class LawRecord:
    """A law fitted to the runs of one family and method.

    Attributes:
        formula: In the source's letters.
        coefficients: In the order of the formula.
        noise: Standard deviation of the logarithm of a run's loss about the law.
        model_error: ``exp(mean |ln(predicted / loss)|) - 1`` on the largest model, of the law fitted without it; None where too few
            runs are left for that.
        budget_error: The same on the largest budget, of the law fitted without it.
        left_open: Coefficients that the runs do not determine, and why.
        passed_over: Formulas of laws that come closer to runs held out, and fall below 0 where they are asked.
        predicted: Of every run.
    """

    formula: str
    coefficients: list[Coefficient]
    noise: float
    model_error: float | None
    budget_error: float | None
    left_open: list[str]
    passed_over: list[str]
    predicted: list[Predicted]


@dataclass(frozen=True, slots=True)
class KindRecord:
    """What the runs of one family and method say.

    Attributes:
        kind: Family and method.
        runs: How many have a loss.
        law: None where there are too few runs for any.
        why_not: What is missing for a law; "" where there is one.
        frontier: Least loss by budget; None of one budget.
        profiles: Losses by size at each budget that has three sizes.
        sizes: Optimal size by budget; None where fewer than two profiles have an optimum.
    """

    kind: Kind
    runs: int
    law: LawRecord | None
    why_not: str
    frontier: LineRecord | None
    profiles: list[Profile]
    sizes: LineRecord | None


@dataclass(frozen=True, slots=True)
class CrossingRecord:
    """Where one method of a family overtakes another.

    Attributes:
        family: Of models.
        before: Method that is ahead at smaller budgets.
        after: Method that is ahead at larger ones.
        found: Where their frontiers cross.
    """

    family: str
    before: Method
    after: Method
    found: Crossing


@dataclass(frozen=True, slots=True)
class Correlation:
    """Spearman's correlation of losses with the scores of a task.

    Attributes:
        task: Its name; "mean of all" for the mean over tasks.
        family: Of the models; None for those of all families together.
        runs: How many have the score.
        value: In [-1, 1]; None where too few differ.
        interval: Of runs drawn again, 95 %; None likewise.
    """

    task: str
    family: str | None
    runs: int
    value: float | None
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Choice:
    """A model and method at a budget.

    Attributes:
        loss: Predicted, in nats; None where nothing predicts it.
        law: Its 95 % interval, of the law; None where there is none.
        run: The same, of one run, which has noise of its own.
        memory: Most that a run of it held, in bytes; None where none was made here.
        wins: Share of laws fitted to runs drawn again by which it is the best of all; None where there are none.
    """

    way: Way
    parameters: PassedParameters
    tokens: float
    flops: float
    loss: float | None
    law: tuple[float, float] | None
    run: tuple[float, float] | None
    memory: int | None
    wins: float | None = None

    @property
    def option(self) -> Option:
        """What it is."""
        return Option(self.way, self.parameters)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a value is what it is.

    Attributes:
        source: Where that comes from.
    """

    what: str
    value: str
    why: str
    source: str


@dataclass(frozen=True, slots=True)
class Addition:
    """A run that would narrow the answer.

    Attributes:
        budget: In FLOP.
        seed: Above 0 where there is such a run already.
        gain: By how much of itself the variance of the difference of best and runner-up is expected to fall.
    """

    run: str
    budget: float
    seed: int
    gain: float


@dataclass(frozen=True, slots=True)
class Advice:
    """What to train for a budget.

    Attributes:
        budget: In FLOP; of the best, where time was asked for.
        budget_seconds: Time that was asked for; None where a budget was.
        data_tokens: That there are; None sets no limit.
        memory: That there is, in bytes; None sets no limit.
        best: Of all that were asked; None where nothing tells which.
        runner_up: The best of another kind; None where only one has a law.
        sure: Share of laws fitted to runs drawn again by which the best's kind stays ahead; None where there is no other.
        candidates: All, the least predicted loss first.
        excluded: Why some models and methods are no candidates, to their names.
        additions: Runs that would narrow the answer most for what they cost.
        beyond: How many times the largest budget of the runs the best's tokens take; None without runs.
        settings: Of the training run that carries it out, as `adiabat train` is told; empty where nothing tells which.
        scarce: Whether tokens decide rather than the budget, which pays for all of them, whatever the model; of a plan without runs.
        passes: That its tokens are over the data of the runs; None where that is not known.
        seconds: That the best takes on this machine; None where it was not measured.
        measured_memory: That it takes on this machine, in bytes; None likewise.
        unsound: Kinds of which some laws fitted to runs drawn again fall below 0 there, to the share of these laws.
    """

    budget: float
    budget_seconds: float | None
    data_tokens: float | None
    memory: int | None
    best: Choice | None
    runner_up: Choice | None
    sure: float | None
    candidates: list[Choice]
    excluded: dict[str, list[str]]
    reasons: list[Reason]
    additions: list[Addition]
    beyond: float | None
    settings: dict[str, Any] = field(default_factory=dict)
    scarce: bool = False
    passes: float | None = None
    seconds: float | None = None
    measured_memory: int | None = None
    unsound: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingResult(Record):
    """The whole ``result.json`` of a scaling experiment, or of a plan made from its runs.

    Attributes:
        loss: Which loss of the runs everything is about.
        left_out: Name of a run that no law was fitted to, to why.
        kinds: What the runs of each family and method say.
        downstream: Correlation of losses and scores, by task.
        advice: What to train; None of a scaling experiment.
        crossings: Where a family's methods change places, near to the budgets of its runs.
    """

    ROWS: ClassVar[str] = "runs"

    loss: LossOf
    runs: list[ScalingRun]
    left_out: dict[str, str]
    kinds: list[KindRecord]
    downstream: list[Correlation]
    resamples: int
    advice: Advice | None = None
    crossings: list[CrossingRecord] = field(default_factory=list)
    kind: Literal["scaling", "plan"] = "scaling"

    @property
    def counted(self) -> list[tuple[ScalingRun, float]]:
        """Runs that laws are fitted to, each with its loss."""
        return [(row, loss) for row in self.runs if row.name not in self.left_out and (loss := row.loss_of(self.loss))]
