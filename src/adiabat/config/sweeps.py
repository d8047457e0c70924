"""Settings of ``adiabat sweep``: a tuning or training run, the settings that vary, and the tasks that every run is measured on."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError, field_validator, model_validator

from adiabat.config.dual_training import MemorySection, TowersSection, TrainRunSection, TrainSection, TrainSettings
from adiabat.config.dual_training_data import BatchesSection, MixtureSection, TrainDataSection
from adiabat.config.reader import TRAIN_TABLES, _idle, _phrases, keys_of, leaves, with_values
from adiabat.config.section import RangeValues, Section, SeedNumbers, Text, Texts, each_once, overlaid, value_at
from adiabat.config.shared import EncoderSection, RankingEncoderSection, RankingMeasureSection, StepsRunSection
from adiabat.config.tasks import AnyTask, require_names
from adiabat.config.tuning import GuardSection, RehearsalSection, TuneDataSection, TuneSection, TuneSettings
from adiabat.config.validation import Need, shown, unknown_phrases

STEPS, BATCH_SIZE = 2_000, 256
"""Of the standard short training run, by Reimers 2021."""


class SweepSection(Section):
    """``[sweep]``: where the sweep goes, how often and how each combination is run."""

    out: Text | None = None
    """Directory of the sweep. Required."""
    name: Text = "sweep"
    """For the head of the page."""
    verb: Literal["tune", "train"] = "tune"
    """Verb that makes each run. It decides which tables the file has: those of ``adiabat tune`` or those of ``adiabat train``."""
    seeds: SeedNumbers = (0,)
    """One run of each combination with each of them; with one, nothing tells how much differs from run to run."""
    sample: PositiveInt | None = None
    """So many combinations, drawn at random; None runs all of them."""
    targets: Annotated[Texts, each_once("task")] = ()
    """Names of the tasks that training is for, each once; the others must not get worse. None named takes the first task of a sweep over
    ``tune``, and all tasks of one over ``train``."""
    stores: Text | None = None
    """Directory where vectors of the tasks' corpora are kept, for other sweeps too; None keeps them in the directory of the sweep."""
    keep_models: bool = False
    """Whether models stay once they are measured. Checkpoints do not in any case."""
    engine: Literal["process", "ray"] = "process"
    """``ray`` spreads runs over a Ray cluster (extra ``ray``), whose machines must share the directory of the sweep."""


class TuneSweepJobSection(Section):
    """``[job]`` of a sweep over ``tune``: the start of all runs. All three are required."""

    model: Text | None = None
    store: Text | None = None
    """Document vectors of the model."""
    data: Text | None = None
    """What is tuned on."""


class ProbesSection(Section):
    """``[probes]``: unlabelled texts of other languages and fields, to see how far a tuned tower's answers drift."""

    needs: ClassVar[Mapping[str, Need]] = {name: Need("use", (True,)) for name in ("data", "store", "depth")}
    data: Text = "default"
    """A file of texts, or ``default``: those that come with adiabat."""
    store: Text | None = None
    """Where they are looked for; None takes that of the sweep."""
    depth: Annotated[int, Field(ge=2)] = 100
    """Documents whose order is compared."""
    use: bool = True
    """Whether drift is measured at all."""


class TrainSweepJobSection(Section):
    """``[job]`` of a sweep over ``train``: model and data of the runs whose variant names none."""

    model: Text | None = None
    """Where training starts. Variants that compare backbones have their own."""
    data: Text | None = None
    """Training data. Variants that compare data sets have their own."""


class ShortTrainSection(TrainSection):
    """``[train]`` of a sweep: a run without a length takes the standard short run's 2,000 steps."""

    batch_size: Annotated[int, Field(ge=1)] = BATCH_SIZE


class SpeedSection(Section):
    """``[speed]``: how the encoding of documents is timed where runs start from several models."""

    texts: PositiveInt = 512
    """Documents of the tasks, drawn at random, that are encoded in a round."""
    rounds: Annotated[int, Field(ge=3)] = 5
    """Timed rounds; the median counts. In each of them the models take turns."""


class VariantSection(Section):
    """One of ``[[variants]]``: a name, and tables that are laid over the common ones."""

    model_config = ConfigDict(extra="allow")
    name: Text
    grid: Mapping[str, Any] = {}
    """Its own, beside that of the sweep: for settings that this variant alone has, or whose range is another one here."""

    @property
    def own(self) -> dict[str, Any]:
        """Nested tables that are laid over the common ones."""
        return dict(self.model_extra or {})


class TuneVariantSection(VariantSection):
    """One of ``[[variants]]`` of a sweep over ``tune``."""

    towers: Literal["query", "both"] = "query"
    """What is tuned: the query tower against stored vectors, or both towers from the same start. With both, each run embeds the corpora of
    the tasks, and drift is not measured, since it compares answers among untuned document vectors."""


class SweepSettings(Section):
    """What sweeps over both verbs have in common."""

    run_kind: ClassVar[type[TuneSettings] | type[TrainSettings]]
    variant_kind: ClassVar[type[VariantSection]] = VariantSection
    shared: ClassVar[tuple[str, ...]]
    """Tables of a run that stand outside of grid and variants."""
    varying: ClassVar[tuple[str, ...]]
    """Tables of a run that a grid or a variant may set: the others change no number, or decide the stored documents."""

    sweep: SweepSection = SweepSection()
    grid: Mapping[str, Any] = {}
    """Every combination of these values is run: ``[grid.tune]`` with ``learning_rate = [1e-8, 1e-7]``, or a `RangeValues`."""
    variants: Annotated[tuple[VariantSection, ...], Field(strict=False)] = ()
    """Each is run with every combination; for settings that go together, such as an optimizer and its rate, a data set or a model."""
    tasks: Annotated[tuple[AnyTask, ...], Field(strict=False)] = ()
    measure: RankingMeasureSection = RankingMeasureSection()
    """Of the tasks; the first of its measures ranks the variants on retrieval tasks."""
    run: StepsRunSection = StepsRunSection()
    """Its seed is that of draws and statistics; runs have theirs from `SweepSection.seeds`."""

    @field_validator("tasks")
    @classmethod
    def _tasks_are_told_apart(cls, tasks: tuple[AnyTask, ...]) -> tuple[AnyTask, ...]:
        require_names("tasks", [task.name for task in tasks])
        return tasks

    @model_validator(mode="wrap")
    @classmethod
    def _everything_at_once(cls, table: Any, handler: Any) -> Self:
        """Check what each run becomes, whatever else is wrong."""
        found: list[Any] = []
        try:
            settings: Self = handler(table)
        except ValidationError as fault:
            found = fault.errors()
        told = {*(phrase for one in found for phrase in _phrases(one, cls)), *(_idle(cls, table) if found else ())}
        wrong = [phrase for phrase in _Checks(cls, table).faults() if phrase not in told]
        if not found and not wrong:
            return settings
        lines: list[Any] = [{name: one[name] for name in ("type", "loc", "input", "ctx") if name in one} for one in found]
        lines += [{"type": "value_error", "loc": (), "input": None, "ctx": {"error": ValueError(phrase)}} for phrase in wrong]
        raise ValidationError.from_exception_data(cls.__name__, lines)

    def values(self, variant: VariantSection | None = None) -> dict[str, tuple[Any, ...]]:
        """What the grid varies."""
        grids = [self.grid] if variant is None else [self.grid, variant.grid]
        return {key: _values(value) for grid in grids for key, value in leaves(grid)}

    @property
    def varied(self) -> list[str]:
        """Dotted keys that any grid varies."""
        return list(dict.fromkeys(key for variant in self.variants or (None,) for key in self.values(variant)))

    def common(self) -> dict[str, Any]:
        """What all runs share."""
        return {name: getattr(self, name).model_dump(exclude_unset=True) for name in self.shared}

    @classmethod
    def completed(cls, run: Mapping[str, Any]) -> dict[str, Any]:
        """The tables of a run with the defaults that a sweep gives it."""
        return dict(run)


class TuneSweepSettings(SweepSettings):
    """Everything that ``adiabat sweep`` over ``tune`` may be told (Vasilyev et al. 2024)."""

    run_kind = TuneSettings
    variant_kind = TuneVariantSection
    shared = ("encoder", "data", "tune", "guard", "rehearsal", "run")
    varying = ("tune", "data", "guard", "rehearsal")

    job: TuneSweepJobSection = TuneSweepJobSection()
    encoder: RankingEncoderSection = RankingEncoderSection()
    data: TuneDataSection = TuneDataSection()
    tune: TuneSection = TuneSection()
    guard: GuardSection = GuardSection()
    rehearsal: RehearsalSection = RehearsalSection()
    variants: Annotated[tuple[TuneVariantSection, ...], Field(strict=False)] = ()
    probes: ProbesSection = ProbesSection()


class TrainSweepSettings(SweepSettings):
    """Everything that ``adiabat sweep`` over ``train`` may be told (Reimers 2021)."""

    run_kind = TrainSettings
    shared = TRAIN_TABLES
    varying = tuple(name for name in TRAIN_TABLES if name != "run")

    job: TrainSweepJobSection = TrainSweepJobSection()
    encoder: EncoderSection = EncoderSection()
    data: TrainDataSection = TrainDataSection()
    towers: TowersSection = TowersSection()
    mixture: MixtureSection = MixtureSection()
    batches: BatchesSection = BatchesSection()
    train: ShortTrainSection = ShortTrainSection()
    memory: MemorySection = MemorySection()
    run: TrainRunSection = TrainRunSection()
    """Its seed is that of draws and statistics; runs have theirs from `SweepSection.seeds`."""
    speed: SpeedSection = SpeedSection()

    @classmethod
    def completed(cls, run: Mapping[str, Any]) -> dict[str, Any]:
        """The tables of a run; one without a length is the standard short run."""
        train = run.get("train", {})
        if not isinstance(train, Mapping):
            return dict(run)
        steps = {} if {"epochs", "budget_flops", "budget_seconds"} & train.keys() else {"steps": STEPS}
        return {**run, "train": {"batch_size": BATCH_SIZE, **steps, **train}}


SWEEPS: Mapping[str, type[SweepSettings]] = {"tune": TuneSweepSettings, "train": TrainSweepSettings}


def sweep_kind(table: Mapping[str, Any]) -> type[SweepSettings]:
    """The settings of a sweep, by the verb that its table names."""
    section = table.get("sweep", {})
    verb = section.get("verb", "tune") if isinstance(section, Mapping) else "tune"
    return SWEEPS.get(verb, TuneSweepSettings) if isinstance(verb, str) else TuneSweepSettings


def _values(value: Any) -> tuple[Any, ...]:
    if isinstance(value, Mapping):
        return RangeValues.model_validate(value).values()
    return tuple(tuple(one) if isinstance(one, list) else one for one in value)


class _Placeless(RangeValues):
    """A `RangeValues` with a default for every key, which phrases of faults look at."""

    low: PositiveFloat = 1e-8
    high: PositiveFloat = 1e-5


@dataclass(frozen=True)
class _Checks:
    """What is wrong with grid and variants of a table that may be faulty otherwise.

    Attributes:
        kind: Of the settings.
        table: As it was read.
    """

    kind: type[SweepSettings]
    table: Any

    def faults(self) -> Iterator[str]:
        """A phrase for each fault."""
        if not isinstance(self.table, Mapping):
            return
        grid, variants = self.table.get("grid", {}), self.table.get("variants", ())
        if not isinstance(grid, Mapping) or not isinstance(variants, list | tuple):
            return
        variants = [one for one in variants if isinstance(one, Mapping) and isinstance(one.get("grid", {}), Mapping)]
        values = dict(leaves(grid))
        wrong = [*self._of_grid("grid.", grid), *(phrase for one in variants for phrase in self._of_variant(one, values))]
        yield from dict.fromkeys(wrong)
        names = [str(one.get("name")) for one in variants]
        if again := sorted({name for name in names if names.count(name) > 1}):
            yield f"variants must have names of their own, got {', '.join(map(shown, again))} more than once; rename them"
        pairs = [(one["name"], other["name"]) for one, other in combinations(variants, 2) if {**one, "name": ""} == {**other, "name": ""}]
        yield from (f"variants must differ, got {shown(one)} and {shown(other)}, which set the same; leave one out" for one, other in pairs)
        common = {name: self.table[name] for name in self.kind.shared if isinstance(self.table.get(name), Mapping)}
        yield from self._without_effect(common, values, variants)
        if not wrong:
            for one in variants or [{}]:
                yield from sorted(self._of_runs(common, {**values, **_own_grid(one)}, self._own(one)))

    def _own(self, variant: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in variant.items() if name not in self.kind.variant_kind.model_fields}

    def _without_effect(self, common: Mapping[str, Any], values: Mapping[str, Any], variants: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        """Settings of the common tables that no run takes."""
        known, plain = set(keys_of(self.kind.run_kind)), self.kind.run_kind()
        overlays = [{**dict(leaves(self._own(one))), **_own_grid(one)} for one in variants]
        for key, value in leaves(common):
            # A record of resolved settings says every default.
            if key not in known or value == value_at(plain, key):
                continue
            if key in values:
                yield f"{key} has no effect where grid.{key} varies it; leave it out"
            elif above := [other for other in values if key.startswith(f"{other}.")]:
                yield f"{key} is lost where grid.{above[0]} takes another kind; give it in each table of grid.{above[0]}"
            elif overlays and all(key in one for one in overlays):
                yield f"{key} has no effect where every variant sets it; leave it out"

    def _of_grid(self, place: str, grid: Mapping[str, Any]) -> Iterator[str]:
        for key, value in leaves(grid):
            if phrase := self._of_key(place, key) or _of_values(f"{place}{key}", value):
                yield phrase

    def _of_variant(self, variant: Mapping[str, Any], values: Mapping[str, Any]) -> Iterator[str]:
        """An overlay and a grid of its own, beside the grid of the sweep."""
        own, alone = dict(leaves(self._own(variant))), _own_grid(variant)
        yield from (phrase for key in own if (phrase := self._of_key("variants.", key)))
        yield from self._of_grid("variants.grid.", variant.get("grid", {}))
        # In the order of the file, not of a set: the same mistakes give the same message.
        for key in filter({*own, *alone}.__contains__, values):
            yield f"{key} must be set by grid or by variants, got both; leave one out"
        for key in filter(own.__contains__, alone):
            yield f"variants.grid.{key} varies what variants.{key} sets, got both; leave one out"

    def _of_key(self, place: str, key: str) -> str | None:
        known = list(keys_of(self.kind.run_kind))
        varied = [one for one in known if one.partition(".")[0] in self.kind.varying and one != "job.out"]
        if key in varied:
            return None
        if key in known:
            tables = " and ".join(self.kind.varying)
            return f"{place}{key} must be a setting that may vary from run to run; what may vary are keys of {tables}"
        return unknown_phrases(f"{place}{key}", None, [f"{place}{one}" for one in varied])[0]

    def _of_runs(self, common: Mapping[str, Any], grid: Mapping[str, Any], own: Mapping[str, Any]) -> set[str]:
        """Every value of the grid once, with the first of each other setting: that finds any value that is out of range."""
        values = {key: _values(value) for key, value in grid.items()}
        first = {key: some[0] for key, some in values.items()}
        told = set()
        for combination in [first, *({**first, key: one} for key, some in values.items() for one in some[1:])]:
            run = self.kind.completed(with_values(self.kind.run_kind, overlaid(self.kind.run_kind, common, own), combination.items()))
            try:
                settings = self.kind.run_kind.model_validate(run)
            except ValidationError as fault:
                told |= {phrase for one in fault.errors() for phrase in _phrases(one, self.kind.run_kind)}
                told |= {*_idle(self.kind.run_kind, run)}
                continue
            if isinstance(settings, TuneSettings) and settings.tune.learning_rate == "safe":
                told.add("tune.learning_rate must be a number in a sweep, got safe; adiabat safe-rate finds it")
        return told


def _own_grid(variant: Mapping[str, Any]) -> dict[str, Any]:
    return dict(leaves(variant.get("grid", {})))


def _of_values(place: str, value: Any) -> str | None:
    if isinstance(value, Mapping):
        try:
            RangeValues.model_validate(value)
        except ValidationError as fault:
            phrases = dict.fromkeys(phrase for one in fault.errors() for phrase in _phrases(one, _Placeless))
            return f"{place}: {'; '.join(phrases)}"
        return None
    if not isinstance(value, list | tuple) or not value:
        return f"{place} must be a list of values, or a table with low and high, got {shown(value)}"
    again = [one for number, one in enumerate(value) if one in list(value)[:number]]
    return f"{place} must name each value once, got {shown(again[0])} more than once" if again else None
