"""Settings of ``adiabat scaling`` and ``adiabat plan``: sizes, methods and budgets."""

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from adiabat.config.dual_training import DataJobSection, TrainSection, TrainTables
from adiabat.config.faults import Need, without_effect
from adiabat.config.reader import TRAIN_TABLES
from adiabat.config.section import Bytes, Seconds, Section, Text, Texts, by_kind, each_once
from adiabat.config.shared import EncoderTables, ExperimentSection, RunTables
from adiabat.config.tasks import TaskTables, repeated_names
from adiabat.config.training_choices import (
    ENDING,
    InBatchLoss,
    InBatchSoftmax,
    Schedule,
    Temperature,
    TrainLoss,
)

TAKEN = {
    "encoder.blocks": "models.blocks",
    "towers.document_model": "models.model",
    "train.method": "methods",
    "train.freeze": "methods.freezing",
    "train.learning_rate": "rates",
    **dict.fromkeys(
        ("train.epochs", "train.steps", "train.budget_flops", "train.budget_seconds"), "scaling.budgets"
    ),
}
"""Settings of a run that the scaling experiment sets itself, and the settings of the experiment that decide
them."""

ALL_TASKS = "mean of all"
"""Label of the mean over all tasks, where a task's name would stand."""

PRETRAINING_SHARE = 0.1
"""Share of the peak rate of pre-training that full training and freezing take (Ziarko et al. 2024, sections
4.1 and E.1)."""

TEMPERATURE, FINAL_FRACTION = 1 / 40, 0.1
"""Of the runs of scaling experiments (Ziarko et al. 2024, section 4.1)."""

# --- Scaling experiments ---

Counts = Annotated[tuple[PositiveInt, ...], Field(strict=False)]
Part = Annotated[float, Field(gt=0, lt=1)]


class ReadingSection(Section):
    """Analysis of runs, in scaling experiments and plans."""

    loss: Literal["validation", "training"] = "validation"
    """Loss of a run: the validation loss at its end, or the mean training loss over its last steps, as in
    Ziarko et al. 2024."""
    least_steps: PositiveInt = 10
    """Minimum number of steps of a run that laws are fitted to; shorter runs mostly show the initial loss."""
    resamples: Annotated[int, Field(ge=2)] = 500
    """Bootstrap resamples of the runs, for intervals."""


class ScalingSection(ReadingSection, ExperimentSection):
    """``[scaling]``: output directory, budgets and seeds."""

    name: Text = "scaling"
    """Title of the page."""
    budgets: Annotated[tuple[PositiveFloat, ...], Field(strict=False), each_once("budget")] = ()
    """Training budgets in FLOPs (`adiabat.scaling_laws.flops`). Required."""
    last_steps: PositiveInt = 20
    """Number of final steps over which the training loss of a run is averaged."""


class FamilySection(Section):
    """One of ``[[models]]``: a model, or several models cut from it by keeping its leading blocks."""

    model: Text
    """Model: a hub name, a directory, or a job."""
    name: Text | None = None
    """Name used in run names; None takes the last part of the model's name."""
    family: Text | None = None
    """Family of models that differ only in size; each family gets its own law. None makes one family of the
    models cut from this model, or one family of all models that are used whole."""
    blocks: Annotated[Counts, each_once("number of blocks")] = ()
    """Numbers of leading transformer blocks to keep, one model for each; empty uses the whole model."""
    pretraining_rate: PositiveFloat | None = None
    """Peak learning rate of the model's pre-training. Full training and freezing use a tenth of it, unless
    `rates.full` is set."""

    @property
    def title(self) -> str:
        """Name used in run names."""
        return self.name or PurePath(self.model).name

    @property
    def group(self) -> str:
        """Name of the family; empty for the family of all models that are used whole."""
        return self.family or (self.title if self.blocks else "")


class MethodsSection(Section):
    """``[methods]``: training methods, each applied to every model."""

    full: bool = True
    """Train all weights."""
    freezing: Annotated[tuple[Part, ...], Field(strict=False), each_once("share")] = ()
    """Freeze the token embeddings and these shares of the leading blocks, one method for each share."""
    bias: bool = False
    """Train only the biases."""
    lora: Annotated[Counts, each_once("rank")] = ()
    """Train LoRA adapters of these ranks, one method for each rank."""

    def faults(self) -> Iterator[tuple[str, str]]:
        """At least one method is enabled."""
        if not (self.full or self.freezing or self.bias or self.lora):
            yield (
                "",
                "must name at least one, got none; set methods.full = true, or list "
                "ranks as methods.lora = [32, 128]",
            )


class RatesSection(Section):
    """``[rates]``: learning rates of the methods."""

    full: PositiveFloat | None = None
    """Learning rate of full training and freezing; None takes a tenth of each model's
    ``pretraining_rate``."""
    lora: PositiveFloat = 1e-3
    """Learning rate of LoRA (Ziarko et al. 2024, table 3)."""
    bias: PositiveFloat = 1e-2
    """Learning rate of bias training (Ziarko et al. 2024, table 4)."""


class ScalingTrainSection(TrainSection):
    """``[train]`` of a scaling experiment.

    Some defaults are those of Ziarko et al. 2024, section 4.1, whatever the loss and the schedule.

    These are the weight decay (0.1), the temperature (1/40) and the final learning rate: a linear, quadratic
    or cosine schedule ends at a tenth of the peak rate.
    """

    loss: TrainLoss = InBatchSoftmax(temperature=Temperature(value=TEMPERATURE))
    """Loss to minimise."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.1
    """Weight decay of matrices."""
    schedule: Schedule = Schedule(kind="cosine", final_fraction=FINAL_FRACTION)
    """Learning-rate schedule after the warm-up."""

    @model_validator(mode="before")
    @classmethod
    def _as_in_the_paper(cls, stated: Any) -> Any:
        """Fill in what the defaults cannot say of other kinds of losses and schedules."""
        if not isinstance(stated, Mapping):
            return stated
        filled = {name: cls.long_form(name, value) for name, value in stated.items()}
        # A default holds for one kind alone; these two hold for every kind that has the setting.
        schedule, loss = filled.get("schedule"), filled.get("loss")
        if isinstance(schedule, Mapping) and schedule.get("kind") in ENDING:
            filled["schedule"] = {"final_fraction": FINAL_FRACTION, **schedule}
        # Losses with a temperature are those over a matrix of scores.
        softmaxes = [
            word for word, kind in by_kind(cls.tables_at("loss")).items() if issubclass(kind, InBatchLoss)
        ]
        if isinstance(loss, Mapping) and loss.get("kind") in softmaxes:
            temperature = InBatchLoss.long_form("temperature", loss.get("temperature", {}))
            if isinstance(temperature, Mapping):
                filled["loss"] = {**loss, "temperature": {"value": TEMPERATURE, **temperature}}
        return filled


class _ScalingTables(Section):
    scaling: ScalingSection = ScalingSection()
    models: Annotated[tuple[FamilySection, ...], Field(strict=False)] = ()
    methods: MethodsSection = MethodsSection()
    rates: RatesSection = RatesSection()
    job: DataJobSection = DataJobSection()


class ScalingSettings(TrainTables, TaskTables, _ScalingTables):
    """All settings of ``adiabat scaling``."""

    train: ScalingTrainSection = ScalingTrainSection()

    def faults(self) -> Iterator[tuple[str, str]]:
        """Settings that vary between runs are unset, and each method has a learning rate."""
        yield from repeated_names("tasks", [ALL_TASKS, *(task.name for task in self.tasks)])
        yield from repeated_names("models", [family.title for family in self.models])
        for key, source in TAKEN.items():
            yield from self._taken(key, source)
        if self.data.stream is not None:
            yield (
                "data.stream",
                "must be left out of a scaling experiment, whose runs end with a budget; leave it out",
            )
        for family in (
            self.models if self.rates.full is None and (self.methods.full or self.methods.freezing) else ()
        ):
            if family.pretraining_rate is None:
                told = (
                    "must be given without rates.full, got none; full training and freezing "
                    "take a tenth of it; set it, or rates.full"
                )
                yield f"models.pretraining_rate of {family.model}", told

    def _taken(self, key: str, source: str) -> Iterator[tuple[str, str]]:
        table, name = key.split(".")
        # A setting at its default counts as left out.
        section = getattr(self, table)
        if getattr(section, name) != type(section).model_fields[name].default:
            yield (
                key,
                "must be left out of a scaling experiment, which gives each run its "
                f"own; leave it out; set {source} instead",
            )

    def common(self) -> dict[str, Any]:
        """Settings that all runs share."""
        table = {name: getattr(self, name).model_dump(exclude_unset=True) for name in TRAIN_TABLES}
        return {
            **table,
            "train": {
                **table["train"],
                **self.train.model_dump(include=set(ScalingTrainSection.__annotations__)),
            },
        }


# --- Plans ---


class PlanSection(ReadingSection):
    """``[plan]``: the budget, the runs to plan from, and limits of the device."""

    budget: PositiveFloat | None = None
    """Training budget in FLOPs (`adiabat.scaling_laws.flops`). Required, or `budget_seconds`."""
    budget_seconds: Seconds | None = None
    """Training time in place of `budget`: seconds, or text such as ``"8h"``. The measured speed of the
    runs, or without runs that of this machine, converts it to FLOPs."""
    runs: Text | None = None
    """Directory of a scaling experiment, or its ``runs.parquet``; None uses the few published results."""
    models: Texts = ()
    """Models to choose from if `runs` is not set."""
    data_tokens: PositiveFloat | None = None
    """Number of available training tokens, each read at most once; None sets no limit."""
    memory: Bytes | None = None
    """Memory of the device: bytes, or text such as ``"24GiB"``; None sets no limit."""
    measure: bool = True
    """Run a few steps of the recommended run on this machine to measure its time and memory, if its model and
    data can be read."""
    out: Text | None = None
    """Directory for ``result.json``, the page and the TOML files; None writes nothing."""

    needs = tuple(Need(name, "runs") for name in ("loss", "least_steps", "resamples", "measure"))
    """Settings of the analysis need runs to analyse."""

    def faults(self) -> Iterator[tuple[str, str]]:
        """Memory limits runs or models."""
        if self.memory is not None and self.runs is None and not self.models:
            yield "memory", without_effect("without plan.runs or plan.models", "set one of them")


class PlanSettings(EncoderTables, RunTables):
    """All settings of ``adiabat plan``: of `plan.models`, the encoder; a scaling experiment records those of
    its runs.
    """

    plan: PlanSection = PlanSection()

    def faults(self) -> Iterator[tuple[str, str]]:
        """A plan uses either runs or models, and settings of the other are unset."""
        plan = self.plan
        if plan.budget is not None and plan.budget_seconds is not None:
            yield "plan.budget", "must be left out with plan.budget_seconds; leave one of them out"
        if plan.runs is not None and plan.models:
            yield (
                "plan.models",
                "must be left out with plan.runs, which name their models; leave one of them out",
            )
        if self.encoder.model_fields_set and not plan.models:
            yield "encoder", without_effect("without plan.models", "set plan.models")
        if "seed" in self.run.model_fields_set and not plan.runs:
            yield "run.seed", without_effect("without plan.runs, which it resamples", "set plan.runs")

    def every_need(self) -> Iterator[Need]:
        """Only a plan that measures a run uses a device."""
        if self.plan.budget_seconds is None or self.plan.runs is not None:
            yield Need("run.device", "plan.runs", reason="which measuring needs")
            yield Need("run.device", "plan.measure", (True,))
