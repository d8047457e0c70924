"""The record of a training run: settings, curves, weights that moved, and the file of the texts that it
trained on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class LayerChange:
    """Change of one parameter tensor (Vasilyev et al. 2024).

    Attributes:
        relative: ``||after - before|| / ||before||``, Frobenius norm; None if the tensor was zero before.
        largest_change: ``(Wt - Wo) / (Wt + Wo)`` of the two; 0 if both are 0.
    """

    name: str
    relative: float | None
    largest_before: float
    largest_after: float
    largest_change: float


@dataclass(frozen=True, slots=True)
class CandidateFigure:
    """What a candidate for the result changed on the queries of one data set, in nDCG@10.

    Attributes:
        name: Of the data set.
        queries: Number of queries.
        before: Mean over the queries for the start.
        change: Mean change.
        lowest: One-sided lower end of the change, at 95 % on the validation queries, at 80 % elsewhere.
        is_retained: Whether a loss of 1 % of `before` is excluded with that confidence.
    """

    name: str
    queries: int
    before: float
    change: float
    lowest: float
    is_retained: bool

    def in_percent(self, difference: float) -> float:
        """A difference in percent of the start's mean; 0 over a start of 0."""
        return 100 * difference / self.before if self.before else 0.0


def all_retained(figures: Sequence[CandidateFigure]) -> bool:
    """Whether a loss is excluded on every retention set, whose figures follow that of the target."""
    return all(figure.is_retained for figure in figures[1:])


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate for the result of a tuning run.

    Attributes:
        share: Share of what tuning changed, in [0, 1].
        pull: Pull to the identity of a linear map over its query vectors; None without a map.
        figures: On the validation queries, then on each retention set.
        outside: Why its drift rules it out; "" if it does not, or was not measured.
        kept: Whether it is the result.
    """

    share: float
    pull: float | None = None
    figures: tuple[CandidateFigure, ...] = ()
    outside: str = ""
    kept: bool = False

    @property
    def name(self) -> str:
        """In words."""
        named = {0.0: "the start", 1.0: "the tuned tower"}
        tower = named.get(self.share, f"{self.share:.0%} of the change")
        return tower if self.pull is None else f"{tower} with a linear map (pull {self.pull:g})"

    @property
    def percent(self) -> float:
        """The mean change on the validation queries in percent."""
        target = self.figures[0]
        return target.in_percent(target.change)

    @property
    def is_sound(self) -> bool:
        """Whether it ranks the validation queries better, and loses nothing on the retention sets."""
        return self.figures[0].lowest > 0 and all_retained(self.figures)


@dataclass(frozen=True, slots=True)
class TrainedFile:
    """The file with hashes of the texts that a run trained or validated on: queries, then documents, then
    ids, 16 bytes each.

    Signatures of the queries follow, 64 bytes each, which find near duplicates.

    Attributes:
        queries: Number of distinct query texts.
        documents: Number of distinct texts of relevant documents.
        doc_ids: Number of distinct ids of relevant documents without known texts.
        unknown: Why there may be others that are not in the file; "" if there are none.
        signatures: Number of distinct signatures; None if there are none in the file, because they are too
            many or the run is older.
    """

    queries: int
    documents: int
    doc_ids: int
    sha256: str
    unknown: str = ""
    signatures: int | None = None


@dataclass(frozen=True, slots=True)
class TrainingRecord:
    """Record of a training run.

    Attributes:
        settings: The resolved configuration, as in ``config.toml``.
        trained_on: One line: data set, split, counts.
        parameters: Number of parameters of the query tower, or of both towers.
        epochs: Number of validations after the start, each at the end of an epoch.
        best_epoch: Epoch of the saved weights; 0 for the start, if nothing improved.
        stop_reason: Why the run ended, in words.
        seconds: Duration of training steps and validation, over all resumed parts.
        loss: (step, training loss) points.
        validation_loss: (epoch, loss) points, epoch 0 first.
        validation_errors: (epoch, number of errors) points, epoch 0 first.
        validation_pairs: Number of validation pairs, or queries, behind the errors.
        notes: Notes in sentences.
        kind: ``tuning`` of a query tower against stored documents, or ``training`` of both towers.
        unit: Unit of the validation errors: ``pairs`` in the wrong order, or ``queries`` whose top document
            is wrong.
        passes: Number of passes over the pairs; None if the run does not count them.
        measures: Further figures of the validation, such as ``RR``: name to (epoch, value) points.
        flops: Operations spent, by parameters and tokens (Ziarko et al. 2024).
        operations: Operations counted one by one, including attention, padding and recomputation; 0 if not
            counted.
        planned: Operations by parameters and tokens that were planned: the budget, or the operations of all
            steps.
        candidates: Candidates for the result of a run that keeps by ranking.
        expected: Gain in percent on new documents that the evidence promised, with its lower and upper end;
            None without evidence.
        texts: Content of ``trained.bin`` beside this record; None in records from before it existed.
    """

    settings: dict[str, Any]
    trained_on: str
    parameters: int
    trainable: int
    steps: int
    epochs: int
    best_epoch: int
    stop_reason: str
    seconds: float
    loss: list[tuple[int, float]]
    validation_loss: list[tuple[int, float]]
    validation_errors: list[tuple[int, int]]
    validation_pairs: int
    layers: list[LayerChange]
    notes: tuple[str, ...] = ()
    kind: Literal["tuning", "training"] = "tuning"
    unit: Literal["pairs", "queries"] = "pairs"
    passes: float | None = None
    measures: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    flops: float = 0.0
    operations: float = 0.0
    planned: float = 0.0
    candidates: tuple[Candidate, ...] = ()
    expected: tuple[float, float, float] | None = None
    texts: TrainedFile | None = None

    @property
    def chosen(self) -> Candidate | None:
        """The candidate that is the result; None if the start was kept, or there were none."""
        return next((candidate for candidate in self.candidates if candidate.kept), None)

    @property
    def shown(self) -> float | None:
        """Gain in percent that the validation queries showed: that of the chosen candidate, 0 if the start
        was kept; None without candidates.
        """
        if not self.candidates:
            return None
        return 0.0 if self.chosen is None else self.chosen.percent
