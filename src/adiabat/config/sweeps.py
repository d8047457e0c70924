"""Settings of ``adiabat sweep``: a tuning run, what varies of it, and the tasks that every run is measured on (Vasilyev et al. 2024)."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError, field_validator, model_validator

from adiabat.config.reader import _idle, _phrases, keys_of
from adiabat.config.section import RangeValues, Section, SeedNumbers, Text, Texts, each_once, overlaid, value_at
from adiabat.config.shared import RankingEncoderSection, RankingMeasureSection, StepsRunSection
from adiabat.config.tasks import AnyTask, require_names
from adiabat.config.tuning import GuardSection, RehearsalSection, TuneDataSection, TuneSection, TuneSettings
from adiabat.config.validation import Need, shown, unknown_phrases

VARIED = ("tune", "data", "guard", "rehearsal")
"""Tables of a run that a grid or a variant may set: the others decide the stored documents, or change no number."""

COMMON = ("encoder", "data", "tune", "guard", "rehearsal", "run")
"""Tables of a tuning run that stand outside of grid and variants."""


class SweepSection(Section):
    """``[sweep]``: where the sweep goes, how often and how each combination is run."""

    out: Text | None = None
    """Directory of the sweep. Required."""
    name: Text = "sweep"
    """For the head of the page."""
    seeds: SeedNumbers = (0,)
    """One run of each combination with each of them; with one, nothing tells how much differs from run to run."""
    sample: PositiveInt | None = None
    """So many combinations, drawn at random; None runs all of them."""
    targets: Annotated[Texts, each_once("task")] = ()
    """Names of the tasks that tuning is for, each once; the others must not get worse. None named takes the first task."""
    stores: Text | None = None
    """Directory where vectors of the tasks' corpora are kept, for other sweeps too; None keeps them in the directory of the sweep."""
    keep_models: bool = False
    """Whether tuned models stay after they were measured. Checkpoints do not in any case."""
    engine: Literal["process", "ray"] = "process"
    """``ray`` spreads runs over a Ray cluster (extra ``ray``), whose machines must share the directory of the sweep."""


class SweepJobSection(Section):
    """``[job]`` of a sweep: what all runs start from. All three are required."""

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


class VariantSection(Section):
    """One of ``[[variants]]``: a name, and tables that are laid over the common ones."""

    model_config = ConfigDict(extra="allow")
    name: Text
    grid: Mapping[str, Any] = {}
    """Its own, beside that of the sweep: for settings that this variant alone has, or whose range is another one here."""
    towers: Literal["query", "both"] = "query"
    """What is tuned: the query tower against stored vectors, or both towers from the same start. With both, each run embeds the corpora of
    the tasks, and drift is not measured, since it compares answers among untuned document vectors."""

    @property
    def own(self) -> dict[str, Any]:
        """Nested tables that are laid over the common ones."""
        return dict(self.model_extra or {})


class SweepSettings(Section):
    """Everything that ``adiabat sweep`` may be told."""

    sweep: SweepSection = SweepSection()
    job: SweepJobSection = SweepJobSection()
    encoder: RankingEncoderSection = RankingEncoderSection()
    data: TuneDataSection = TuneDataSection()
    tune: TuneSection = TuneSection()
    guard: GuardSection = GuardSection()
    rehearsal: RehearsalSection = RehearsalSection()
    run: StepsRunSection = StepsRunSection()
    """Its seed is that of draws and statistics; runs have theirs from `SweepSection.seeds`."""
    grid: Mapping[str, Any] = {}
    """Every combination of these values is run: ``[grid.tune]`` with ``learning_rate = [1e-8, 1e-7]``, or a `RangeValues`."""
    variants: Annotated[tuple[VariantSection, ...], Field(strict=False)] = ()
    """Each is run with every combination; for settings that go together, such as an optimizer and its rate."""
    tasks: Annotated[tuple[AnyTask, ...], Field(strict=False)] = ()
    measure: RankingMeasureSection = RankingMeasureSection()
    probes: ProbesSection = ProbesSection()

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
        wrong = [phrase for phrase in _faults(table) if phrase not in told]
        if not found and not wrong:
            return settings
        lines: list[Any] = [{name: one[name] for name in ("type", "loc", "input", "ctx") if name in one} for one in found]
        lines += [{"type": "value_error", "loc": (), "input": None, "ctx": {"error": ValueError(phrase)}} for phrase in wrong]
        raise ValidationError.from_exception_data(cls.__name__, lines)

    def values(self, variant: VariantSection | None = None) -> dict[str, tuple[Any, ...]]:
        """What the grid varies."""
        grids = [self.grid] if variant is None else [self.grid, variant.grid]
        return {key: _values(value) for grid in grids for key, value in grid_leaves(grid)}

    @property
    def varied(self) -> list[str]:
        """Dotted keys that any grid varies."""
        return list(dict.fromkeys(key for variant in self.variants or (None,) for key in self.values(variant)))

    def common(self) -> dict[str, Any]:
        """What all runs share."""
        return {name: getattr(self, name).model_dump(exclude_unset=True) for name in COMMON}


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Tables out of dotted keys."""
    table: dict[str, Any] = {}
    for key, value in values.items():
        *path, last = key.split(".")
        inner = table
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return table


def grid_leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """What a grid says of each setting."""
    for name, value in table.items():
        if isinstance(value, Mapping) and (value or not prefix) and not {"low", "high"} & value.keys():
            yield from grid_leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _values(value: Any) -> tuple[Any, ...]:
    if isinstance(value, Mapping):
        return RangeValues.model_validate(value).values()
    return tuple(tuple(one) if isinstance(one, list) else one for one in value)


def _faults(table: Any) -> Iterator[str]:
    """What is wrong with grid and variants of a table that may be faulty otherwise."""
    if not isinstance(table, Mapping):
        return
    grid, variants = table.get("grid", {}), table.get("variants", ())
    if not isinstance(grid, Mapping) or not isinstance(variants, list | tuple):
        return
    variants = [one for one in variants if isinstance(one, Mapping) and isinstance(one.get("grid", {}), Mapping)]
    leaves = dict(grid_leaves(grid))
    wrong = list(dict.fromkeys([*_faults_of_grid("grid.", grid), *(told for one in variants for told in _faults_of_variant(one, leaves))]))
    yield from wrong
    names = [str(one.get("name")) for one in variants]
    if again := sorted({name for name in names if names.count(name) > 1}):
        yield f"variants must have names of their own, got {', '.join(map(shown, again))} more than once; rename them"
    alike = [(one["name"], other["name"]) for one, other in combinations(variants, 2) if {**one, "name": ""} == {**other, "name": ""}]
    yield from (f"variants must differ, got {shown(one)} and {shown(other)}, which set the same; leave one out" for one, other in alike)
    common = {name: table[name] for name in COMMON if isinstance(table.get(name), Mapping)}
    yield from _idle_everywhere(common, leaves, variants)
    if not wrong:
        yield from sorted({told for one in variants or [{}] for told in _faults_of_runs(common, {**leaves, **_leaves_of(one)}, _own(one))})


def _idle_everywhere(common: Mapping[str, Any], leaves: Mapping[str, Any], variants: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Settings of the common tables that no run takes."""
    known, plain = set(keys_of(TuneSettings)), TuneSettings()
    own = [{**dict(grid_leaves(_own(one))), **_leaves_of(one)} for one in variants]
    for key, value in grid_leaves(common):
        # A record of resolved settings says every default.
        if key not in known or value == value_at(plain, key):
            continue
        if key in leaves:
            yield f"{key} has no effect where grid.{key} varies it; leave it out"
        elif own and all(key in one for one in own):
            yield f"{key} has no effect where every variant sets it; leave it out"


def _own(variant: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in variant.items() if name not in VariantSection.model_fields}


def _leaves_of(variant: Mapping[str, Any]) -> dict[str, Any]:
    return dict(grid_leaves(variant.get("grid", {})))


def _faults_of_grid(place: str, grid: Mapping[str, Any]) -> list[str]:
    return [phrase for key, value in grid_leaves(grid) if (phrase := _fault_of_values(place, key, value))]


def _faults_of_variant(variant: Mapping[str, Any], leaves: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with an overlay and a grid of its own, beside the grid of the sweep."""
    own, alone = dict(grid_leaves(_own(variant))), _leaves_of(variant)
    yield from (phrase for key in own if (phrase := _fault_of_key("variants.", key)))
    yield from _faults_of_grid("variants.grid.", variant.get("grid", {}))
    # In the order of the file, not of a set, so that the same mistakes are always told alike.
    for key in filter({*own, *alone}.__contains__, leaves):
        yield f"{key} must be set by grid or by variants, got both; leave one out"
    for key in filter(own.__contains__, alone):
        yield f"variants.grid.{key} varies what variants.{key} sets, got both; leave one out"


def _fault_of_values(place: str, key: str, value: Any) -> str | None:
    if phrase := _fault_of_key(place, key):
        return phrase
    if isinstance(value, Mapping):
        try:
            RangeValues.model_validate(value)
        except ValidationError as fault:
            told = "; ".join(dict.fromkeys(phrase for one in fault.errors() for phrase in _phrases(one, _Placeless)))
            return f"{place}{key}: {told}"
        return None
    if not isinstance(value, list | tuple) or not value:
        return f"{place}{key} must be a list of values, or a table with low and high, got {shown(value)}"
    again = [one for place, one in enumerate(value) if one in list(value)[:place]]
    return f"{place}{key} must name each value once, got {shown(again[0])} more than once" if again else None


class _Placeless(RangeValues):
    """A `RangeValues` with a default for every key, which phrases of faults look at."""

    low: PositiveFloat = 1e-8
    high: PositiveFloat = 1e-5


def _fault_of_key(place: str, key: str) -> str | None:
    known = list(keys_of(TuneSettings))
    varied = [one for one in known if one.partition(".")[0] in VARIED]
    if key in varied:
        return None
    if key in known:
        return f"{place}{key} must be a setting of tuning that may vary from run to run; what may vary are keys of {' and '.join(VARIED)}"
    return unknown_phrases(f"{place}{key}", None, [f"{place}{one}" for one in varied])[0]


def _faults_of_runs(common: Mapping[str, Any], leaves: Mapping[str, Any], own: Mapping[str, Any]) -> set[str]:
    """Every value of the grid once, with the first of each other setting, over a variant: that finds any value that is out of range."""
    values = {key: _values(value) for key, value in leaves.items()}
    first = {key: some[0] for key, some in values.items()}
    combinations = [first, *({**first, key: one} for key, some in values.items() for one in some[1:])]
    told = set()
    for combination in combinations:
        run = overlaid(TuneSettings, common, own)
        for key, value in combination.items():
            run = overlaid(TuneSettings, run, nested({key: value}))
        try:
            if TuneSettings.model_validate(run).tune.learning_rate == "safe":
                told.add("tune.learning_rate must be a number in a sweep, got safe; adiabat safe-rate finds it")
        except ValidationError as fault:
            told |= {*(phrase for one in fault.errors() for phrase in _phrases(one, TuneSettings)), *_idle(TuneSettings, run)}
    return told
