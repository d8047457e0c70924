"""Settings of ``adiabat scaling`` and ``adiabat plan``: sizes, methods and budgets."""

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from adiabat.config.dual_training import MemorySection, TowersSection, TrainRunSection, TrainSection
from adiabat.config.dual_training_data import BatchesSection, MixtureSection, TrainDataSection
from adiabat.config.reader import TRAIN_TABLES
from adiabat.config.section import Bytes, Seconds, Section, SeedNumbers, Text, Texts, each_once
from adiabat.config.shared import EncoderSection, RankingMeasureSection, RunSection
from adiabat.config.tasks import AnyTask, require_names
from adiabat.config.training_choices import FallingSchedule, FixedTemperature, InBatchSoftmax, Schedule, TrainLoss
from adiabat.config.validation import Need

TAKEN: Mapping[str, tuple[str, ...]] = {
    "encoder": ("blocks",),
    "towers": ("document_model",),
    "train": ("method", "freeze", "learning_rate", "epochs", "steps", "budget_flops", "budget_seconds"),
}
"""Settings of these tables that a scaling experiment itself gives each run."""

ALL_TASKS = "mean of all"
"""In place of a task's name, where the mean over all of them stands."""

PRETRAINING_SHARE = 0.1
"""Of the highest rate of a model's pre-training: what full training and freezing take (Ziarko et al. 2024, section 4.1 and E.1)."""

Counts = Annotated[tuple[PositiveInt, ...], Field(strict=False)]
Part = Annotated[float, Field(gt=0, lt=1)]


class ReadingSection(Section):
    """How runs are read: what the pages of a scaling experiment and of a plan have in common."""

    loss: Literal["validation", "training"] = "validation"
    """Of each run: on held-out pairs when it is over, or the mean over its last steps, as in Ziarko et al. 2024."""
    least_steps: PositiveInt = 10
    """No law is fitted to runs of fewer steps: they say more about where training starts."""
    resamples: Annotated[int, Field(ge=2)] = 500
    """How often runs are drawn again, for intervals."""


class ScalingSection(ReadingSection):
    """``[scaling]``: where it goes, and which runs it makes of each model and method."""

    out: Text | None = None
    """Directory of the scaling experiment. Required."""
    name: Text = "scaling"
    """For the head of the page."""
    budgets: Annotated[tuple[PositiveFloat, ...], Field(strict=False), each_once("budget")] = ()
    """Operations by parameters and tokens of each run (`adiabat.scaling_laws.flops`). Required."""
    seeds: SeedNumbers = (0,)
    """A run of each model, method and budget with each of them."""
    last_steps: PositiveInt = 20
    """Of a run, whose mean is its training loss."""
    keep_models: bool = False
    """Whether trained models stay; checkpoints do not in any case."""
    engine: Literal["process", "ray"] = "process"
    """``ray`` spreads runs over a Ray cluster (extra ``ray``), whose machines must share the directory of the scaling experiment."""


class ScalingJobSection(Section):
    """``[job]`` of a scaling experiment."""

    data: Text | None = None
    """What all runs are trained on; ``data.sources`` lists several."""


class FamilySection(Section):
    """One of ``[[models]]``: a model, or several that are made of its leading blocks."""

    model: Text
    name: Text | None = None
    """For names of runs; None takes the last part of the model's."""
    family: Text | None = None
    """Of models that differ in size alone: one law is fitted to all of them. None makes one of the leading blocks of this model, or, where
    it is taken as it is, of all models that are."""
    blocks: Annotated[Counts, each_once("number of blocks")] = ()
    """How many of its leading blocks make a model; none takes it as it is."""
    pretraining_rate: PositiveFloat | None = None
    """Highest learning rate of its pre-training, of which full training and freezing take a tenth."""

    @property
    def title(self) -> str:
        """For names of runs."""
        return self.name or PurePath(self.model).name

    @property
    def group(self) -> str:
        """Its family; empty for the family of all models that are taken as they are."""
        return self.family or (self.title if self.blocks else "")


class MethodsSection(Section):
    """``[methods]``: what of each model is trained."""

    full: bool = True
    freezing: Annotated[tuple[Part, ...], Field(strict=False), each_once("share")] = ()
    """Shares of the leading blocks that are frozen, with the tables of tokens."""
    bias: bool = False
    lora: Annotated[Counts, each_once("rank")] = ()
    """Ranks of adapters."""

    @model_validator(mode="after")
    def _there_is_one(self) -> Self:
        if not (self.full or self.freezing or self.bias or self.lora):
            raise ValueError("methods must name at least one, got none; set methods.full = true, or list ranks as methods.lora = [32, 128]")
        return self


class RatesSection(Section):
    """``[rates]``: learning rates of the methods."""

    full: PositiveFloat | None = None
    """Of full training and freezing; None takes a tenth of each model's ``pretraining_rate``."""
    lora: PositiveFloat = 1e-3
    """Ziarko et al. 2024, table 3."""
    bias: PositiveFloat = 1e-2
    """Ziarko et al. 2024, table 4."""


class ScalingTrainSection(TrainSection):
    """``[train]`` of a scaling experiment: temperature, weight decay and schedule of Ziarko et al. 2024, section 4.1, as defaults.

    A loss or schedule of another kind starts from the defaults of its kind.
    """

    loss: TrainLoss = InBatchSoftmax(temperature=FixedTemperature(value=1 / 40))
    weight_decay: Annotated[float, Field(ge=0)] = 0.1
    schedule: Schedule = FallingSchedule(kind="cosine", final_fraction=0.1)


class ScalingSettings(Section):
    """Everything that ``adiabat scaling`` may be told."""

    scaling: ScalingSection = ScalingSection()
    models: Annotated[tuple[FamilySection, ...], Field(strict=False)] = ()
    methods: MethodsSection = MethodsSection()
    rates: RatesSection = RatesSection()
    job: ScalingJobSection = ScalingJobSection()
    encoder: EncoderSection = EncoderSection()
    data: TrainDataSection = TrainDataSection()
    towers: TowersSection = TowersSection()
    mixture: MixtureSection = MixtureSection()
    batches: BatchesSection = BatchesSection()
    train: ScalingTrainSection = ScalingTrainSection()
    memory: MemorySection = MemorySection()
    run: TrainRunSection = TrainRunSection()
    """Its seed is that of draws; runs have theirs from `ScalingSection.seeds`."""
    tasks: Annotated[tuple[AnyTask, ...], Field(strict=False)] = ()
    """What every trained model is measured on, to be compared with its loss."""
    measure: RankingMeasureSection = RankingMeasureSection()
    """Of the tasks; the first of its measures is the score of each."""

    @model_validator(mode="after")
    def _runs_have_what_they_take(self) -> Self:
        require_names("tasks", [ALL_TASKS, *(task.name for task in self.tasks)])
        require_names("models", [family.title for family in self.models])
        if faults := list(self._faults()):
            raise ValueError("; ".join(faults))
        return self

    def _faults(self) -> Iterator[str]:
        for table, names in TAKEN.items():
            section = getattr(self, table)
            for name in names:
                if getattr(section, name) != type(section).model_fields[name].default:
                    yield f"{table}.{name} must be left out of a scaling experiment, which gives each run its own; leave it out"
        if self.data.stream:
            yield "data.stream must be left out of a scaling experiment, whose runs end with a budget; leave it out"
        if self.rates.full is None and (self.methods.full or self.methods.freezing):
            for family in self.models:
                if family.pretraining_rate is None:
                    yield (
                        f"models.pretraining_rate of {family.model} must be given where rates.full is not, got none; "
                        "full training and freezing take a tenth of it"
                    )

    def common(self) -> dict[str, Any]:
        """What all runs share."""
        table = {name: getattr(self, name).model_dump(exclude_unset=True) for name in TRAIN_TABLES}
        return {**table, "train": {**table["train"], **self.train.model_dump(include=set(ScalingTrainSection.__annotations__))}}


class PlanSection(ReadingSection):
    """``[plan]``."""

    needs: ClassVar[Mapping[str, Need]] = {name: Need("runs") for name in ("budget_seconds", "loss", "least_steps", "resamples", "measure")}
    budget: PositiveFloat | None = None
    """Operations by parameters and tokens (`adiabat.scaling_laws.flops`). Required, or `budget_seconds`."""
    budget_seconds: Seconds | None = None
    """Time in place of a budget, in seconds, or such as ``"8h"``: what each model and method computes in it, at the speed of its runs."""
    runs: Text | None = None
    """Directory of a scaling experiment, or its ``runs.parquet``; None uses what was published, which is little."""
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
