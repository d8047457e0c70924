"""The result of a scaling experiment, with a row for each run, or of a plan (Ziarko et al. 2024)."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from adiabat.results.record import Ends, Record
from adiabat.scaling_laws.flops import PassedParameters
from adiabat.scaling_laws.frontier import Crossing, Profile
from adiabat.scaling_laws.held_out import Coverage
from adiabat.scaling_laws.laws import Kind, Method, Option, Way

LossOf = Literal["validation", "training"]
"""Loss of a run: on held-out pairs at its end, or the mean over its last steps."""


@dataclass(frozen=True, slots=True)
class ScalingRun:
    """One run of a scaling experiment.

    Attributes:
        parameters: ``N_F``, ``N_B`` and ``N_U`` of a tower.
        status: ``done``, or ``failed`` if it left no model.
        passes: Number of passes over its pairs; 0 if unknown.
        loss: Mean over its last steps, in nats; None for a failed run, as below.
        validation_loss: Loss on held-out pairs of the saved weights, in nats.
        validation: Further validation measures: ``P@1`` and ``RR``.
        memory: Peak memory in bytes (`adiabat.models.device.peak_memory`); 0 if not measured.
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
        """Name of model and method, with the trained parameters."""
        return Option(self.way, self.parameters)

    def loss_of(self, kind: LossOf) -> float | None:
        """Its loss.

        Returns:
            In nats; None for a failed run.
        """
        return self.validation_loss if kind == "validation" else self.loss


@dataclass(frozen=True, slots=True)
class Predicted:
    """A run with the predictions of a law.

    Attributes:
        fitted: Prediction of the law of all runs of its kind.
        held_out: Prediction of the law fitted without the largest model of its kind; None if too few runs
            remain for that.
        largest: Whether the run is of that model.
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
        slope: Slope of the logarithm.
        intercept: Intercept of the logarithm.
        low: Lower ends of the intervals of slope and intercept; None without intervals.
        high: Upper ends of these intervals.
        at: Positions at which the line is drawn, ascending.
    """

    slope: float
    intercept: float
    low: Ends | None
    high: Ends | None
    at: list[float]
    values: list[float]


@dataclass(frozen=True, slots=True)
class Coefficient:
    """Coefficient of a law.

    Attributes:
        name: Name in the notation of the source.
        value: Value in the notation of the source.
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
        formula: Formula in the notation of the source.
        coefficients: Coefficients in the order of the formula.
        noise: Standard deviation of the logarithm of a run's loss about the law.
        model_error: ``exp(mean |ln(predicted / loss)|) - 1`` on the largest model, for the law fitted without
            it; None if too few runs remain for that.
        budget_error: The same on the largest budget, for the law fitted without it.
        left_open: Coefficients that the runs do not determine, with the reason.
        passed_over: Formulas of laws with smaller held-out errors that predict negative losses for the
            options.
        predicted: Predictions for every run.
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
    """Results of the runs of one family and method.

    Attributes:
        kind: Family and method.
        runs: Number of runs with a loss.
        law: None if there are too few runs for any.
        why_not: What is missing for a law; "" if there is one.
        frontier: Lowest loss by budget; None with a single budget.
        profiles: Losses by size at each budget that has three sizes.
        sizes: Optimal size by budget; None if fewer than two profiles have an optimum.
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
    """Budget at which one method of a family overtakes another.

    Attributes:
        family: Family of models.
        before: Method that is better at smaller budgets.
        after: Method that is better at larger budgets.
        found: Crossing of their frontiers.
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
        family: Family of the models; None for all families together.
        runs: Number of runs with the score.
        value: In [-1, 1]; None if too few values differ.
        interval: 95 % interval over resampled runs; None likewise.
    """

    task: str
    family: str | None
    runs: int
    value: float | None
    interval: Ends | None


@dataclass(frozen=True, slots=True)
class Choice:
    """A model and method at a budget.

    Attributes:
        loss: Predicted loss in nats; None without a prediction.
        law: 95 % interval of the law; None without one.
        run: 95 % interval of a single run, including its noise.
        memory: Peak memory of its runs, in bytes; None without runs.
        wins: Share of resampled laws by which it is the best of all options; None without laws.
        held_out: Interval of a single run that is wide enough for the held-out budgets; None where none could
            be held out.
        line: Loss by the straight line through the logarithms of its own losses by budget; None with one
            budget.
        line_held_out: Interval of the line, as wide as held-out budgets require; None likewise.
    """

    way: Way
    parameters: PassedParameters
    tokens: float
    flops: float
    loss: float | None
    law: Ends | None
    run: Ends | None
    memory: int | None
    wins: float | None = None
    held_out: Ends | None = None
    line: float | None = None
    line_held_out: Ends | None = None

    @property
    def option(self) -> Option:
        """Name of the option."""
        return Option(self.way, self.parameters)


@dataclass(frozen=True, slots=True)
class HeldOutLoss:
    """A loss, predicted from the runs of its method at smaller budgets.

    Attributes:
        reach: Budget as a multiple of the largest budget behind the prediction.
        predicted: Loss by the law.
        law: 95 % interval of laws fitted to resampled runs.
        line: Loss by the straight line through the logarithms of the option's losses; None with one smaller
            budget.
    """

    option: str
    budget: float
    reach: float
    loss: float
    predicted: float
    law: Ends
    line: float | None


@dataclass(frozen=True, slots=True)
class WidthRecord:
    """Factors by which intervals of a family are widened, so that they hold held-out losses (split conformal
    prediction).

    Attributes:
        law: Factor for both ends of the interval of a law, at `reach` times the largest budget of a method.
        line: Factor about the loss of a straight line; None without lines.
        level: Least probability that the widened interval of a law holds one more loss, if such losses are
            like held-out ones.
        scores: Number of held-out losses behind `law`.
    """

    family: str
    reach: float
    law: float
    line: float | None
    level: float
    scores: int


@dataclass(frozen=True, slots=True)
class HeldOutRecord:
    """Predictions of held-out budgets.

    Attributes:
        losses: Each held-out loss with its predictions.
        coverages: The largest budget, predicted from smaller ones: all families together, then each.
        widths: Factors of each family at the budget of a plan; at one step beyond the largest budget for a
            scaling experiment.
    """

    losses: list[HeldOutLoss]
    coverages: list[Coverage]
    widths: list[WidthRecord]


@dataclass(frozen=True, slots=True)
class Reason:
    """Reason for a recommended value.

    Attributes:
        source: Origin of the reason.
    """

    what: str
    value: str
    why: str
    source: str


@dataclass(frozen=True, slots=True)
class Addition:
    """A run that would make the recommendation more certain.

    Attributes:
        budget: Budget in FLOP.
        seed: Above 0 if the run exists with other seeds.
        gain: Expected relative reduction of the variance of the difference between the best and the
            runner-up.
    """

    run: str
    budget: float
    seed: int
    gain: float


@dataclass(frozen=True, slots=True)
class Advice:
    """Recommendation for a budget.

    Attributes:
        budget: Budget in FLOP; for a time limit, that of the best option.
        budget_seconds: Requested time; None for a budget in FLOP.
        data_tokens: Available tokens; None sets no limit.
        memory: Available memory in bytes; None sets no limit.
        best: Best of all options; None if nothing decides between them.
        runner_up: Best option of another kind; None if only one kind has a law.
        sure: Share of resampled laws by which the best's kind stays ahead; None without another kind.
        candidates: All options, lowest predicted loss first.
        excluded: Reasons for rejecting models and methods, with their names.
        additions: Runs that would reduce the uncertainty most for their cost.
        beyond: Budget of the best as a multiple of the largest budget of its method; None without runs.
        settings: Settings of `adiabat train` for the recommended run; empty if there is none.
        scarce: Whether the tokens decide rather than the budget, which pays for all of them with any model;
            for a plan without runs.
        passes: Number of passes of its tokens over the data of the runs; None if unknown.
        seconds: Duration of the best run on this machine; None if not measured.
        measured_memory: Memory of the best run on this machine, in bytes; None likewise.
        unsound: Kinds with resampled laws that predict negative losses for the options, to the share of these
            laws.
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
        loss: Which loss of the runs is analysed.
        left_out: Name of each run without a usable loss, with the reason.
        kinds: Results of each family and method.
        downstream: Correlations of losses and scores, by task.
        advice: Recommendation; None for a scaling experiment.
        crossings: Crossings of a family's methods near the budgets of its runs.
        held_out: Predictions of held-out budgets; None where none could be held out.
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
    held_out: HeldOutRecord | None = None
    kind: Literal["scaling", "plan"] = "scaling"

    @property
    def counted(self) -> list[tuple[ScalingRun, float]]:
        """Runs that laws are fitted to, each with its loss."""
        return [
            (row, loss)
            for row in self.runs
            if row.name not in self.left_out and (loss := row.loss_of(self.loss))
        ]
