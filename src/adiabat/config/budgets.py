"""Settings of ``adiabat scaling`` and ``adiabat plan``: sizes, methods and budgets."""

from collections.abc import Iterator
from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from adiabat.config.dual_training import TrainRunSection, TrainSection, TrainTables
from adiabat.config.reader import TRAIN_TABLES
from adiabat.config.section import Bytes, Seconds, Section, SeedNumbers, Text, Texts, each_once
from adiabat.config.shared import EncoderSection, RankingMeasureSection, RunSection
from adiabat.config.tasks import AnyTask, repeated_names
from adiabat.config.training_choices import FallingSchedule, FixedTemperature, InBatchSoftmax, Schedule, TrainLoss

TAKEN = (
    *("encoder.blocks", "towers.document_model", "train.method", "train.freeze", "train.learning_rate"),
    *("train.epochs", "train.steps", "train.budget_flops", "train.budget_seconds"),
)
"""Settings that a scaling experiment itself gives each run."""

ALL_TASKS = "mean of all"
"""In place of a task's name, where the mean over all of them stands."""

PRETRAINING_SHARE = 0.1
"""Share of the peak rate of pre-training that full training and freezing take (Ziarko et al. 2024, sections 4.1 and E.1)."""

Counts = Annotated[tuple[PositiveInt, ...], Field(strict=False)]
Part = Annotated[float, Field(gt=0, lt=1)]


class ReadingSection(Section):
    """How runs are read, by a scaling experiment and by a plan."""

    loss: Literal["validation", "training"] = "validation"
    """Loss of a run: on held-out pairs at its end, or the mean over its last steps, as in Ziarko et al. 2024."""
    least_steps: PositiveInt = 10
    """Minimum steps of runs that laws are fitted to; shorter ones mostly show where training starts."""
    resamples: Annotated[int, Field(ge=2)] = 500
    """Bootstrap resamples of the runs, for intervals."""


class ScalingSection(ReadingSection):
    """``[scaling]``: the output directory, and the runs of each model and method."""

    out: Text | None = None
    """Directory of the scaling experiment. Required."""
    name: Text = "scaling"
    """Title of the page."""
    budgets: Annotated[tuple[PositiveFloat, ...], Field(strict=False), each_once("budget")] = ()
    """Training budgets in FLOPs (`adiabat.scaling_laws.flops`). Required."""
    seeds: SeedNumbers = (0,)
    """Seeds; each model, method and budget has a run with each."""
    last_steps: PositiveInt = 20
    """Steps at the end of a run whose mean is its training loss."""
    keep_models: bool = False
    """Keep the trained models; checkpoints are always removed."""
    engine: Literal["process", "ray"] = "process"
    """``ray`` spreads runs over a Ray cluster (extra ``ray``), whose machines must share the directory of the scaling experiment."""


class ScalingJobSection(Section):
    """``[job]`` of a scaling experiment."""

    data: Text | None = None
    """Training data of all runs; ``data.sources`` lists several files."""


class FamilySection(Section):
    """One of ``[[models]]``: a model, or several that are made of its leading blocks."""

    model: Text
    name: Text | None = None
    """Name in names of runs; None takes the last part of the model's name."""
    family: Text | None = None
    """Name of the models that differ in size alone, to which one law is fitted. None makes a family of the leading blocks of this model, or
    one of all models that are taken whole."""
    blocks: Annotated[Counts, each_once("number of blocks")] = ()
    """Numbers of leading blocks that make a model each; empty takes the whole model."""
    pretraining_rate: PositiveFloat | None = None
    """Peak learning rate of its pre-training, of which full training and freezing take a tenth."""

    @property
    def title(self) -> str:
        """For names of runs."""
        return self.name or PurePath(self.model).name

    @property
    def group(self) -> str:
        """Its family; empty for the family of all models that are taken as they are."""
        return self.family or (self.title if self.blocks else "")


class MethodsSection(Section):
    """``[methods]``: methods that each model is trained by."""

    full: bool = True
    freezing: Annotated[tuple[Part, ...], Field(strict=False), each_once("share")] = ()
    """Shares of the leading blocks that are frozen with the token embeddings."""
    bias: bool = False
    lora: Annotated[Counts, each_once("rank")] = ()
    """Ranks of adapters."""

    def faults(self) -> Iterator[tuple[str, str]]:
        """There is a method."""
        if not (self.full or self.freezing or self.bias or self.lora):
            yield "", "must name at least one, got none; set methods.full = true, or list ranks as methods.lora = [32, 128]"


class RatesSection(Section):
    """``[rates]``: learning rates of the methods."""

    full: PositiveFloat | None = None
    """Rate of full training and freezing; None takes a tenth of each model's ``pretraining_rate``."""
    lora: PositiveFloat = 1e-3
    """Rate of LoRA (Ziarko et al. 2024, table 3)."""
    bias: PositiveFloat = 1e-2
    """Rate of training the biases (Ziarko et al. 2024, table 4)."""


class ScalingTrainSection(TrainSection):
    """``[train]`` of a scaling experiment: temperature, weight decay and schedule of Ziarko et al. 2024, section 4.1, as defaults.

    A loss or schedule of another kind starts from the defaults of its kind.
    """

    loss: TrainLoss = InBatchSoftmax(temperature=FixedTemperature(value=1 / 40))
    weight_decay: Annotated[float, Field(ge=0)] = 0.1
    schedule: Schedule = FallingSchedule(kind="cosine", final_fraction=0.1)


class _ScalingTables(Section):
    scaling: ScalingSection = ScalingSection()
    models: Annotated[tuple[FamilySection, ...], Field(strict=False)] = ()
    methods: MethodsSection = MethodsSection()
    rates: RatesSection = RatesSection()
    job: ScalingJobSection = ScalingJobSection()


class ScalingSettings(TrainTables, _ScalingTables):
    """Everything that ``adiabat scaling`` may be told."""

    train: ScalingTrainSection = ScalingTrainSection()
    run: TrainRunSection = TrainRunSection()
    """Its seed is that of draws; runs have theirs from `ScalingSection.seeds`."""
    tasks: Annotated[tuple[AnyTask, ...], Field(strict=False)] = ()
    """What every trained model is measured on, to be compared with its loss."""
    measure: RankingMeasureSection = RankingMeasureSection()
    """Measures of the tasks; the first is the score of each."""

    def faults(self) -> Iterator[tuple[str, str]]:
        """The experiment sets some settings of each run itself, and each method has a rate."""
        yield from repeated_names("tasks", [ALL_TASKS, *(task.name for task in self.tasks)])
        yield from repeated_names("models", [family.title for family in self.models])
        for key in TAKEN:
            table, name = key.split(".")
            section = getattr(self, table)
            if getattr(section, name) != type(section).model_fields[name].default:
                yield key, "must be left out of a scaling experiment, which gives each run its own; leave it out"
        if self.data.stream is not None:
            yield "data.stream", "must be left out of a scaling experiment, whose runs end with a budget; leave it out"
        for family in self.models if self.rates.full is None and (self.methods.full or self.methods.freezing) else ():
            if family.pretraining_rate is None:
                told = "must be given without rates.full, got none; full training and freezing take a tenth of it"
                yield f"models.pretraining_rate of {family.model}", told

    def common(self) -> dict[str, Any]:
        """What all runs share."""
        table = {name: getattr(self, name).model_dump(exclude_unset=True) for name in TRAIN_TABLES}
        return {**table, "train": {**table["train"], **self.train.model_dump(include=set(ScalingTrainSection.__annotations__))}}


class PlanSection(ReadingSection):
    """``[plan]``."""

    budget: PositiveFloat | None = None
    """Training budget in FLOPs (`adiabat.scaling_laws.flops`). Required, or `budget_seconds`."""
    budget_seconds: Seconds | None = None
    """Training time in seconds, or such as ``"8h"``, in place of `budget`; the speed of the runs turns it into FLOPs."""
    runs: Text | None = None
    """Directory of a scaling experiment, or its ``runs.parquet``; None uses published results, which are few."""
    models: Texts = ()
    """Candidate MODELs, where there are no runs."""
    data_tokens: PositiveFloat | None = None
    """Maximum training tokens, each read once; None sets no limit."""
    memory: Bytes | None = None
    """Memory of the device in bytes, or such as ``"24GiB"``; None sets no limit."""
    measure: bool = True
    """Measure time and memory of the recommended run on this machine by a few steps, where model and data can be read."""
    out: Text | None = None
    """Directory for ``result.json``, the page and the TOML files; None writes nothing."""

    def ignored(self) -> Iterator[tuple[str, str]]:
        """Settings of runs need the runs of a scaling experiment."""
        if self.runs is None:
            yield from ((name, "without plan.runs") for name in ("budget_seconds", "loss", "least_steps", "resamples", "measure"))
            if not self.models:
                yield "memory", "without plan.runs or plan.models"


class PlanSettings(Section):
    """Everything that ``adiabat plan`` may be told."""

    plan: PlanSection = PlanSection()
    encoder: EncoderSection = EncoderSection()
    """Encoder settings of `plan.models`; runs have theirs."""
    run: RunSection = RunSection()

    def faults(self) -> Iterator[tuple[str, str]]:
        """A plan reads runs, or looks at models, each with settings of its own."""
        plan = self.plan
        if plan.budget is not None and plan.budget_seconds is not None:
            yield "plan.budget", "must be left out with plan.budget_seconds; leave one of them out"
        if plan.runs is not None and plan.models:
            yield "plan.models", "must be left out with plan.runs, which name their models; leave one of them out"
        if self.encoder.model_fields_set and not plan.models:
            yield "encoder", "has no effect without plan.models; leave it out"
        if "seed" in self.run.model_fields_set and not plan.runs:
            yield "run.seed", "has no effect without plan.runs, which it resamples; leave it out"
        if self.run.device != "auto" and not (plan.runs and plan.measure):
            yield "run.device", "has no effect without plan.runs, which measuring needs; leave it out"
