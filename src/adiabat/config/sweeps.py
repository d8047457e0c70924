"""Settings of ``adiabat sweep``: a tuning or training run, the settings that vary, and the tasks on which
every run is measured.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Annotated, Any, ClassVar, Literal
from unicodedata import category

from pydantic import ConfigDict, Field, PositiveInt, ValidationError, model_validator

from adiabat.config.dual_training import (
    ModelJobSection,
    TrainRunSection,
    TrainSection,
    TrainSettings,
    TrainTables,
)
from adiabat.config.faults import shown
from adiabat.config.reader import TRAIN_TABLES, every_phrase, leaves
from adiabat.config.section import RangeValues, Section, Text, Texts, each_once, switches, value_at
from adiabat.config.shared import ExperimentSection, StepsRunSection
from adiabat.config.tasks import TaskTables, repeated_names
from adiabat.config.tuning import ProbedSection, TuneSettings, TuneTables, value_of

STEPS, BATCH_SIZE = 2_000, 256
"""Length and batch size of the standard short training run of Reimers 2021."""


class SweepSection(ExperimentSection):
    """``[sweep]``: output directory, verb and seeds."""

    name: Text = "sweep"
    """Title of the page."""
    verb: Literal["tune", "train"] = "tune"
    """Verb of each run. The file holds the tables of this verb beside those of the sweep."""
    sample: PositiveInt | None = None
    """Number of combinations to run, drawn at random; None runs all."""
    targets: Annotated[Texts, each_once("task")] = ()
    """Names of the tasks that training should improve; the other tasks should not get worse. Empty takes the
    first task in a sweep over ``tune``, and all tasks in a sweep over ``train``."""
    stores: Text | None = None
    """Directory for the vectors of the tasks' corpora, which several sweeps can share; None takes one inside
    `out`."""


class TuneSweepJobSection(ModelJobSection):
    """``[job]`` of a sweep over ``tune``: inputs of all runs. All three settings are required."""

    store: Text | None = None
    """Store of document vectors of the model."""


class ProbesSection(ProbedSection):
    """``[probes]``: unlabelled texts of other languages and fields, on which the drift of tuned towers is
    measured.
    """

    data: Text = "default"
    """File of probe texts, or ``default`` for those packaged with adiabat."""


class ShortTrainSection(TrainSection):
    """``[train]`` of a sweep. Without a length, a run has 2,000 steps, as the short runs of Reimers 2021."""

    batch_size: Annotated[int, Field(ge=1)] = BATCH_SIZE
    """Queries per optimizer step, over all processes."""


class SpeedSection(Section):
    """``[speed]``: timing of document encoding, if runs start from several models."""

    texts: PositiveInt = 512
    """Number of documents encoded per round, drawn at random from the tasks."""
    rounds: Annotated[int, Field(ge=3)] = 5
    """Number of timed rounds, in which the models take turns; the median is reported."""


LONGEST_NAME = 60
"""Maximum characters of a variant's name, which is part of the names of its runs and their folders."""


class VariantSection(Section):
    """One of ``[[variants]]``: a name, and tables of settings that override the common ones."""

    model_config = ConfigDict(extra="allow")
    name: Text
    """Name in tables and run names: at most 60 characters without slashes, line ends and control
    characters."""
    grid: Mapping[str, Any] = {}
    """Additional grid of this variant."""

    @property
    def own(self) -> dict[str, Any]:
        """Nested tables that override the common ones."""
        return dict(self.model_extra or {})


class TuneVariantSection(VariantSection):
    """One of ``[[variants]]`` of a sweep over ``tune``."""

    towers: Literal["query", "both"] = "query"
    """Tune the query tower against stored vectors, or both towers. With both, each run embeds the corpora of
    the tasks, and drift is not measured, because it compares results among untuned document vectors."""


class SweepSettings(TaskTables):
    """Settings that sweeps over both verbs share."""

    run_kind: ClassVar[type[TuneSettings] | type[TrainSettings]]
    variant_kind: ClassVar[type[VariantSection]] = VariantSection
    shared: ClassVar[tuple[str, ...]]
    """Tables of a run outside of grid and variants."""
    varying: ClassVar[tuple[str, ...]]
    """Tables of a run that a grid or a variant may set; the others do not affect results, or affect stored
    documents."""

    sweep: SweepSection = SweepSection()
    grid: Mapping[str, Any] = {}
    """Values of settings; every combination is run. For example ``[grid.tune]`` with ``learning_rate = [1e-8,
    1e-7]``, or with a range ``{ low = 1e-8, high = 1e-5, count = 8 }``."""
    variants: Annotated[tuple[VariantSection, ...], Field(strict=False)] = ()
    """Sets of settings that belong together, such as an optimizer with its rate, a data set or a model; each
    runs with every combination."""
    run: StepsRunSection = StepsRunSection()

    @model_validator(mode="before")
    @classmethod
    def _with_switches(cls, table: Any) -> Any:
        """The table with optional tables in grid and variants as true or false; runs are named, compared and
        resumed by this form.
        """
        if not isinstance(table, Mapping):
            return table
        table = cls._with_grid(table)
        variants = table.get("variants")
        return (
            {**table, "variants": [*map(cls._variant, variants)]}
            if isinstance(variants, list | tuple)
            else table
        )

    @classmethod
    def _with_grid(cls, run: Mapping[str, Any]) -> dict[str, Any]:
        grid = run.get("grid")
        return {**run, "grid": switches(cls.run_kind, grid)} if isinstance(grid, Mapping) else dict(run)

    @classmethod
    def _variant(cls, variant: Any) -> Any:
        if not isinstance(variant, Mapping):
            return variant
        own = {name: value for name, value in variant.items() if name not in cls.variant_kind.model_fields}
        return {**cls._with_grid(variant), **switches(cls.run_kind, own)}

    def faults(self) -> Iterator[tuple[str, str]]:
        """What grid and variants may set, each setting in one place; the settings of each run are checked
        when all are planned.
        """
        yield from repeated_names("tasks", [task.name for task in self.tasks])
        yield from self._grid_faults("grid", self.grid)
        for variant in self.variants:
            yield from self._key_faults("variants", variant.own)
            yield from self._grid_faults("variants.grid", variant.grid)
            yield from self._faults_of_places(variant)
        yield from _name_faults([variant.name for variant in self.variants])
        for one, other in combinations(self.variants, 2):
            if one.model_copy(update={"name": other.name}) == other:
                names = f"{shown(one.name)} and {shown(other.name)}"
                yield "variants", f"must differ, got {names}, with the same settings; leave one out"
        yield from self._idle_faults()

    def _grid_faults(self, prefix: str, grid: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        yield from self._key_faults(prefix, grid)
        for key, value in leaves(grid):
            yield from _value_faults(f"{prefix}.{key}", value)

    def _key_faults(self, prefix: str, tables: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        for key, _ in leaves(tables):
            if key.partition(".")[0] not in self.varying or key == "job.out":
                allowed = " and ".join(self.varying)
                told = f"must be a setting that may vary from run to run; these are the keys of {allowed}"
                yield f"{prefix}.{key}", told

    def _faults_of_places(self, variant: VariantSection) -> Iterator[tuple[str, str]]:
        """Settings that a variant sets and a grid varies, or that are in a table which is switched off."""
        own, common = dict(leaves(variant.own)), dict(leaves(self.grid))
        alone = dict(leaves(variant.grid))
        for key in common:
            if key in own or key in alone:
                yield key, "must be set by grid or by variants, got both; leave one out"
        for key in alone:
            if key in own:
                yield f"variants.grid.{key}", f"varies variants.{key}, which is also set; leave one out"
        yield from self._off_faults({**common, **alone}, variant.own)

    def _off_faults(self, grid: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Keys of a grid in tables that the settings, a variant or the grid switch off."""
        tables = {name: getattr(self, name) for name in self.shared if name in self.model_fields_set} | dict(
            own
        )
        off = [name for name, table in tables.items() if table is None or table is False]
        off += [
            name for name, options in grid.items() if isinstance(options, list | tuple) and False in options
        ]
        for key in grid:
            for name in off:
                if key.startswith(f"{name}."):
                    yield f"grid.{key}", f"has no effect with {name} = false; leave one out"

    def _idle_faults(self) -> Iterator[tuple[str, str]]:
        """Common settings that no run uses."""
        plain, grid = self.run_kind(), dict(leaves(self.grid))
        if not self.variants:
            yield from self._off_faults(grid, {})
        own = [{**dict(leaves(variant.own)), **dict(leaves(variant.grid))} for variant in self.variants]
        for key, value in leaves(self.common()):
            # A recorded config.toml lists every default.
            if value == value_at(plain, key):
                continue
            lost = [
                other
                for other, options in grid.items()
                if key.startswith(f"{other}.") and not _keeps_keys(options)
            ]
            if key in grid:
                yield key, f"has no effect where grid.{key} varies it; leave it out, or leave out grid.{key}"
            elif lost:
                table = f"grid.{lost[0]}"
                yield key, f"would be lost where {table} takes another kind; give it in each table of {table}"
            elif own and all(key in settings for settings in own):
                yield (
                    key,
                    "has no effect where every variant sets it; leave it out, or leave it out of a variant",
                )

    def values(self, variant: VariantSection | None = None) -> dict[str, tuple[Any, ...]]:
        """Values of each key that the grid varies."""
        grids = [self.grid] if variant is None else [self.grid, variant.grid]
        return {key: _values(value) for grid in grids for key, value in leaves(grid)}

    @property
    def varied(self) -> list[str]:
        """Dotted keys that any grid varies."""
        return list(
            dict.fromkeys(key for variant in self.variants or (None,) for key in self.values(variant))
        )

    def common(self) -> dict[str, Any]:
        """Settings that all runs share."""
        tables = ((name, getattr(self, name)) for name in self.shared)
        return {name: table.model_dump(exclude_unset=True) for name, table in tables if table is not None}

    @classmethod
    def completed(cls, run: Mapping[str, Any]) -> dict[str, Any]:
        """The tables of a run, with the sweep's defaults added; runs of equal lengths go without the time
        limit and the evidence of a recipe.
        """
        tune = run.get("tune")
        if not isinstance(tune, Mapping):
            return dict(run)
        return {**run, "tune": {"budget_seconds": None, "evidence": "off", **tune}}


class TuneSweepSettings(TuneTables, SweepSettings):
    """All settings of ``adiabat sweep`` over ``tune`` (Vasilyev et al. 2024)."""

    run_kind = TuneSettings
    variant_kind = TuneVariantSection
    shared = ("encoder", "data", "tune", "guard", "rehearsal", "run")
    varying = ("tune", "data", "guard", "rehearsal")

    job: TuneSweepJobSection = TuneSweepJobSection()
    variants: Annotated[tuple[TuneVariantSection, ...], Field(strict=False)] = ()
    probes: ProbesSection | None = ProbesSection()


class TrainSweepSettings(TrainTables, SweepSettings):
    """All settings of ``adiabat sweep`` over ``train`` (Reimers 2021)."""

    run_kind = TrainSettings
    shared = TRAIN_TABLES
    varying = tuple(name for name in TRAIN_TABLES if name != "run")

    job: ModelJobSection = ModelJobSection()
    train: ShortTrainSection = ShortTrainSection()
    run: TrainRunSection = TrainRunSection()
    speed: SpeedSection = SpeedSection()

    @classmethod
    def completed(cls, run: Mapping[str, Any]) -> dict[str, Any]:
        """The tables of a run; without a length, it becomes the standard short run."""
        train = run.get("train", {})
        if not isinstance(train, Mapping):
            return dict(run)
        steps = {} if {"epochs", "budget_flops", "budget_seconds"} & train.keys() else {"steps": STEPS}
        return {**run, "train": {"batch_size": BATCH_SIZE, **steps, **train}}


SWEEPS: Mapping[str, type[SweepSettings]] = {"tune": TuneSweepSettings, "train": TrainSweepSettings}


def sweep_kind(table: Mapping[str, Any]) -> type[SweepSettings]:
    """The settings class of a sweep, by its verb."""
    verb = value_of(table.get("sweep"), "verb")
    return SWEEPS.get(verb, TuneSweepSettings) if isinstance(verb, str) else TuneSweepSettings


def _values(value: Any) -> tuple[Any, ...]:
    if isinstance(value, Mapping):
        return RangeValues.model_validate(value).values()
    return tuple(tuple(entry) if isinstance(entry, list) else entry for entry in value)


def _name_faults(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Faults of names that would be part of the names of runs and their folders."""
    yield from repeated_names("variants", names)
    for name in dict.fromkeys(names):
        if len(name) > LONGEST_NAME or any(
            letter in "/\\" or category(letter) in ("Cc", "Zl", "Zp") for letter in name
        ):
            allowed = f"at most {LONGEST_NAME} characters, and no slashes, line ends or control characters"
            yield "variants.name", f"must have {allowed}, got {shown(name)}; rename the variant"
    distinct = list(dict.fromkeys(names))
    folded = Counter(name.casefold() for name in distinct)
    if alike := [shown(name) for name in distinct if folded[name.casefold()] > 1]:
        told = "must have names that differ in more than upper and lower case, got"
        yield "variants", f"{told} {', '.join(alike)}; rename them"


def _keeps_keys(options: Any) -> bool:
    """Whether the values of a grid keep the keys of the common table."""
    tables = (
        [value for value in options if not isinstance(value, bool)]
        if isinstance(options, list | tuple)
        else [None]
    )
    return all(isinstance(table, Mapping) and "kind" not in table for table in tables)


def _value_faults(key: str, value: Any) -> Iterator[tuple[str, str]]:
    """Faults of the values of a key in a grid."""
    if isinstance(value, Mapping):
        try:
            RangeValues.model_validate(value)
        except ValidationError as fault:
            yield f"{key}:", "; ".join(every_phrase(RangeValues, value, fault.errors()))
    elif not isinstance(value, list | tuple) or not value:
        yield key, f"must be a list of values, or a table with low and high, got {shown(value)}"
    elif again := [entry for number, entry in enumerate(value) if entry in value[:number]]:
        yield key, f"must name each value once, got {shown(again[0])} more than once"
