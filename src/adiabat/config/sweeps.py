"""Settings of ``adiabat sweep``: a tuning or training run, the settings that vary, and the tasks on which
every run is measured.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, Any, ClassVar, Literal, Self
from unicodedata import category

from pydantic import ConfigDict, Field, PositiveInt, ValidationError, ValidationInfo, model_validator

from adiabat.config.dual_training import TrainRunSection, TrainSection, TrainSettings, TrainTables
from adiabat.config.faults import shown, unknown_phrases
from adiabat.config.reader import TRAIN_TABLES, every_phrase, fault_phrases, keys_of, leaves, with_values
from adiabat.config.section import (
    APART,
    RangeValues,
    Section,
    SeedNumbers,
    Text,
    Texts,
    each_once,
    overlaid,
    switches,
    value_at,
)
from adiabat.config.shared import RankingEncoderSection, RankingMeasureSection, StepsRunSection
from adiabat.config.tasks import AnyTask, repeated_names
from adiabat.config.tuning import (
    GuardSection,
    RehearsalSection,
    TuneDataSection,
    TuneSection,
    TuneSettings,
    value_of,
)

STEPS, BATCH_SIZE = 2_000, 256
"""Length and batch size of the standard short training run of Reimers 2021."""


class SweepSection(Section):
    """``[sweep]``: output directory, verb and seeds."""

    out: Text | None = None
    """Directory of the sweep. Required."""
    name: Text = "sweep"
    """Title of the page."""
    verb: Literal["tune", "train"] = "tune"
    """Verb of each run. The file holds the tables of this verb beside those of the sweep."""
    seeds: SeedNumbers = (0,)
    """Seeds. Every combination is run once per seed; variation between runs shows only with two or more."""
    sample: PositiveInt | None = None
    """Number of combinations to run, drawn at random; None runs all."""
    targets: Annotated[Texts, each_once("task")] = ()
    """Names of the tasks that training should improve; the other tasks should not get worse. Empty takes the
    first task in a sweep over ``tune``, and all tasks in a sweep over ``train``."""
    stores: Text | None = None
    """Directory for the vectors of the tasks' corpora, which several sweeps can share; None takes one inside
    `out`."""
    keep_models: bool = False
    """Keep the models after they are measured; checkpoints are always removed."""
    engine: Literal["process", "ray"] = "process"
    """Where runs are executed: in this process, or on a Ray cluster (extra ``ray``) whose machines share the
    output directory."""


class TuneSweepJobSection(Section):
    """``[job]`` of a sweep over ``tune``: inputs of all runs. All three settings are required."""

    model: Text | None = None
    """Model to tune."""
    store: Text | None = None
    """Store of document vectors of the model."""
    data: Text | None = None
    """Training data."""


class ProbesSection(Section):
    """``[probes]``: unlabelled texts of other languages and fields, on which the drift of tuned towers is
    measured.
    """

    data: Text = "default"
    """File of probe texts, or ``default`` for those packaged with adiabat."""
    store: Text | None = None
    """Store to search with the probes; None takes `job.store`."""
    depth: Annotated[int, Field(ge=2)] = 100
    """Number of documents per probe whose order is compared."""


class TrainSweepJobSection(Section):
    """``[job]`` of a sweep over ``train``: model and data of all runs whose variant does not set them."""

    model: Text | None = None
    """Model to start from; variants can set another one to compare backbones."""
    data: Text | None = None
    """Training data; variants can set others to compare data sets."""


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


class SweepSettings(Section):
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
    tasks: Annotated[tuple[AnyTask, ...], Field(strict=False)] = ()
    measure: RankingMeasureSection = RankingMeasureSection()
    """Measures of the tasks; the first one decides on retrieval tasks."""
    run: StepsRunSection = StepsRunSection()
    """`run.seed` seeds draws and statistics of the sweep; `sweep.seeds` lists the seeds of the runs."""

    def faults(self) -> Iterator[tuple[str, str]]:
        """Names are unique."""
        yield from repeated_names("tasks", [task.name for task in self.tasks])

    @model_validator(mode="wrap")
    @classmethod
    def _everything_at_once(cls, table: Any, handler: Any, info: ValidationInfo) -> Self:
        """Check the settings of each run even if other settings are wrong, to report all faults at once."""
        errors: list[Any] = []
        table = _with_switches(cls, table)
        try:
            settings: Self = handler(table)
        except ValidationError as fault:
            errors = fault.errors()
        wrong = [] if info.context == APART else [*_Checks(cls, table).faults()]
        if not errors and not wrong:
            return settings
        lines: list[Any] = [
            {name: error[name] for name in ("type", "loc", "input", "ctx") if name in error}
            for error in errors
        ]
        lines += [
            {"type": "value_error", "loc": (), "input": None, "ctx": {"error": ValueError(phrase)}}
            for phrase in wrong
        ]
        raise ValidationError.from_exception_data(cls.__name__, lines)

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
        limit of a recipe.
        """
        tune = run.get("tune")
        return {**run, "tune": {"budget_seconds": None, **tune}} if isinstance(tune, Mapping) else dict(run)


class TuneSweepSettings(SweepSettings):
    """All settings of ``adiabat sweep`` over ``tune`` (Vasilyev et al. 2024)."""

    run_kind = TuneSettings
    variant_kind = TuneVariantSection
    shared = ("encoder", "data", "tune", "guard", "rehearsal", "run")
    varying = ("tune", "data", "guard", "rehearsal")

    job: TuneSweepJobSection = TuneSweepJobSection()
    encoder: RankingEncoderSection = RankingEncoderSection()
    data: TuneDataSection = TuneDataSection()
    tune: TuneSection = TuneSection()
    guard: GuardSection | None = None
    rehearsal: RehearsalSection | None = None
    variants: Annotated[tuple[TuneVariantSection, ...], Field(strict=False)] = ()
    probes: ProbesSection | None = ProbesSection()


class TrainSweepSettings(TrainTables, SweepSettings):
    """All settings of ``adiabat sweep`` over ``train`` (Reimers 2021)."""

    run_kind = TrainSettings
    shared = TRAIN_TABLES
    varying = tuple(name for name in TRAIN_TABLES if name != "run")

    job: TrainSweepJobSection = TrainSweepJobSection()
    train: ShortTrainSection = ShortTrainSection()
    run: TrainRunSection = TrainRunSection()
    """`run.seed` seeds draws and statistics of the sweep; `sweep.seeds` lists the seeds of the runs."""
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


def _with_switches(kind: type[SweepSettings], table: Any) -> Any:
    """The table with optional tables in grid and variants as true or false; runs are named, compared and
    resumed by this form.
    """

    def with_grid(run: Mapping[str, Any]) -> dict[str, Any]:
        return (
            {**run, "grid": switches(kind.run_kind, run["grid"])}
            if isinstance(run.get("grid"), Mapping)
            else dict(run)
        )

    def stated(variant: Any) -> Any:
        if not isinstance(variant, Mapping):
            return variant
        overlay = {
            name: value for name, value in variant.items() if name not in kind.variant_kind.model_fields
        }
        return {**with_grid(variant), **switches(kind.run_kind, overlay)}

    if not isinstance(table, Mapping):
        return table
    table = with_grid(table)
    variants = table.get("variants")
    return {**table, "variants": [*map(stated, variants)]} if isinstance(variants, list | tuple) else table


def _values(value: Any) -> tuple[Any, ...]:
    if isinstance(value, Mapping):
        return RangeValues.model_validate(value).values()
    return tuple(tuple(entry) if isinstance(entry, list) else entry for entry in value)


@dataclass(frozen=True)
class _Checks:
    """Checks of grid and variants; the rest of the table may be faulty."""

    kind: type[SweepSettings]
    table: Any

    def faults(self) -> Iterator[str]:
        """A phrase for each fault."""
        if not isinstance(self.table, Mapping):
            return
        grid, variants = self.table.get("grid", {}), self.table.get("variants", ())
        if not isinstance(grid, Mapping) or not isinstance(variants, list | tuple):
            return
        variants = [
            variant
            for variant in variants
            if isinstance(variant, Mapping) and isinstance(variant.get("grid", {}), Mapping)
        ]
        values = dict(leaves(grid))
        wrong = [
            *self._of_grid("grid.", grid),
            *(phrase for variant in variants for phrase in self._of_variant(variant, values)),
        ]
        common = {
            name: self.table[name]
            for name in self.kind.shared
            if isinstance(self.table.get(name), Mapping | bool)
        }
        wrong += [
            phrase
            for variant in variants or [{}]
            for phrase in self._switched_off(common, {**values, **_own_grid(variant)}, variant)
        ]
        yield from dict.fromkeys(wrong)
        named = [variant for variant in variants if "name" in variant]
        names = [str(variant["name"]) for variant in named]
        if again := sorted({name for name in names if names.count(name) > 1}):
            yield (
                f"variants must have names of their own, got {', '.join(map(shown, again))} "
                "more than once; rename them"
            )
        yield from _name_faults(list(dict.fromkeys(names)))
        for one, other in combinations(named, 2):
            if {**one, "name": ""} == {**other, "name": ""}:
                yield (
                    f"variants must differ, got {shown(one['name'])} and {shown(other['name'])}, "
                    "with the same settings; leave one out"
                )
        yield from self._without_effect(common, values, variants)
        if not wrong:
            for variant in variants or [{}]:
                yield from sorted(self._of_runs(common, {**values, **_own_grid(variant)}, self._own(variant)))

    def _own(self, variant: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: value for name, value in variant.items() if name not in self.kind.variant_kind.model_fields
        }

    def _without_effect(
        self, common: Mapping[str, Any], values: Mapping[str, Any], variants: Sequence[Mapping[str, Any]]
    ) -> Iterator[str]:
        """Faults of common settings that no run uses."""
        known, plain = set(keys_of(self.kind.run_kind)), self.kind.run_kind()
        overlays = [{**dict(leaves(self._own(variant))), **_own_grid(variant)} for variant in variants]
        for key, value in leaves(common):
            # A recorded config.toml lists every default.
            if key not in known or value == value_at(plain, key):
                continue
            if key in values:
                yield f"{key} has no effect where grid.{key} varies it; leave it out, or leave out grid.{key}"
            elif above := [
                other for other in values if key.startswith(f"{other}.") and not _keeps_keys(values[other])
            ]:
                yield (
                    f"{key} would be lost where grid.{above[0]} takes another kind; give "
                    f"it in each table of grid.{above[0]}"
                )
            elif overlays and all(key in overlay for overlay in overlays):
                yield (
                    f"{key} has no effect where every variant sets it; leave it "
                    "out, or leave it out of a variant"
                )

    def _switched_off(
        self, common: Mapping[str, Any], values: Mapping[str, Any], variant: Mapping[str, Any]
    ) -> Iterator[str]:
        """Faults of grid keys in a table that the variant, the common tables or the grid switch off."""
        table = overlaid(self.kind.run_kind, common, self._own(variant))
        off = {name for name, value in leaves(table) if value is None or value is False}
        off |= {
            name for name, options in values.items() if isinstance(options, list | tuple) and False in options
        }
        for key in values:
            yield from (
                f"grid.{key} has no effect with {name} = false; leave one out"
                for name in sorted(off)
                if key.startswith(f"{name}.")
            )

    def _of_grid(self, prefix: str, grid: Mapping[str, Any]) -> Iterator[str]:
        for key, value in leaves(grid):
            if phrase := self._of_key(prefix, key) or _of_values(f"{prefix}{key}", value):
                yield phrase

    def _of_variant(self, variant: Mapping[str, Any], values: Mapping[str, Any]) -> Iterator[str]:
        """Faults of a variant's settings and of its own grid."""
        overlay, alone = dict(leaves(self._own(variant))), _own_grid(variant)
        yield from (phrase for key in overlay if (phrase := self._of_key("variants.", key)))
        yield from self._of_grid("variants.grid.", variant.get("grid", {}))
        # In the order of the file, not of a set: the same mistakes give the same message.
        for key in filter({*overlay, *alone}.__contains__, values):
            yield f"{key} must be set by grid or by variants, got both; leave one out"
        for key in filter(overlay.__contains__, alone):
            yield f"variants.grid.{key} varies variants.{key}, which is also set; leave one out"

    def _of_key(self, prefix: str, key: str) -> str | None:
        known = keys_of(self.kind.run_kind)
        varied = [name for name in known if name.partition(".")[0] in self.kind.varying and name != "job.out"]
        if key in varied:
            return None
        if key in known:
            tables = " and ".join(self.kind.varying)
            return (
                f"{prefix}{key} must be a setting that may vary from run to run; "
                f"these are the keys of {tables}"
            )
        return unknown_phrases(f"{prefix}{key}", None, [f"{prefix}{name}" for name in varied])[0]

    def _of_runs(
        self, common: Mapping[str, Any], grid: Mapping[str, Any], overlay: Mapping[str, Any]
    ) -> set[str]:
        """Faults of each grid value, tried with the first value of every other key; this finds all values
        that are out of range.
        """
        values = {key: _values(value) for key, value in grid.items()}
        first = {key: options[0] for key, options in values.items()}
        phrases = set()
        for combination in [
            first,
            *({**first, key: option} for key, options in values.items() for option in options[1:]),
        ]:
            run = self.kind.completed(
                with_values(
                    self.kind.run_kind, overlaid(self.kind.run_kind, common, overlay), combination.items()
                )
            )
            try:
                settings = self.kind.run_kind.model_validate(run)
            except ValidationError as fault:
                phrases.update(every_phrase(self.kind.run_kind, run, fault.errors()))
                continue
            if isinstance(settings, TuneSettings) and (told := settings.sweep_fault()):
                phrases.add(told)
        return phrases


def _name_faults(names: Sequence[str]) -> Iterator[str]:
    """Faults of names that would be part of the names of runs and their folders."""
    for name in names:
        if len(name) > LONGEST_NAME or any(
            letter in "/\\" or category(letter) in ("Cc", "Zl", "Zp") for letter in name
        ):
            allowed = f"at most {LONGEST_NAME} characters, and no slashes, line ends or control characters"
            yield f"variants.name must have {allowed}, got {shown(name)}; rename the variant"
    folded = [name.casefold() for name in names]
    if alike := [name for name, key in zip(names, folded, strict=True) if folded.count(key) > 1]:
        yield (
            "variants must have names that differ in more than upper and lower case, "
            f"got {', '.join(map(shown, alike))}; rename them"
        )


def _keeps_keys(options: Any) -> bool:
    """Whether the values of a grid keep the keys of the common table."""
    tables = (
        [value for value in options if not isinstance(value, bool)]
        if isinstance(options, list | tuple)
        else [None]
    )
    return all(isinstance(table, Mapping) and "kind" not in table for table in tables)


def _own_grid(variant: Mapping[str, Any]) -> dict[str, Any]:
    return dict(leaves(variant.get("grid", {})))


def _of_values(key: str, value: Any) -> str | None:
    if isinstance(value, Mapping):
        try:
            RangeValues.model_validate(value)
        except ValidationError as fault:
            phrases = dict.fromkeys(
                phrase for error in fault.errors() for phrase in fault_phrases(error, RangeValues)
            )
            return f"{key}: {'; '.join(phrases)}"
        return None
    if not isinstance(value, list | tuple) or not value:
        return f"{key} must be a list of values, or a table with low and high, got {shown(value)}"
    again = [entry for number, entry in enumerate(value) if entry in list(value)[:number]]
    return f"{key} must name each value once, got {shown(again[0])} more than once" if again else None
