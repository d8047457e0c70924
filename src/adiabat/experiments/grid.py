"""From the settings of an experiment to its trials.

A sweep runs all or some combinations of its grid for every variant, with every seed; a scaling experiment
runs every model, method and budget, with every seed (Ziarko et al. 2024).
"""

import hashlib
import json
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, product
from typing import Any, TypeVar

import numpy as np

from adiabat.config.budgets import PRETRAINING_SHARE, FamilySection, ScalingSettings
from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import SettingsError, checked, with_values
from adiabat.config.section import Section, overlaid, value_at
from adiabat.config.sweeps import SweepSettings, TuneVariantSection, VariantSection
from adiabat.config.tuning import TuneSettings
from adiabat.core.errors import ConfigError, several
from adiabat.results.sweep_result import Value, case_of
from adiabat.scaling_laws.laws import Way

MOST_RUNS = 100_000
"""Maximum number of runs of a sweep; all are planned before the first one starts."""

RunT = TypeVar("RunT", bound=Section)

Cell = tuple[VariantSection | None, dict[str, Any]]
"""A variant, and the value of each setting of its grid."""


@dataclass(frozen=True, slots=True)
class SweepTrial:
    """One planned run.

    Attributes:
        name: Name of its folder and row, made of the values that vary.
        variant: Name of its variant; "" without variants.
        varied: Dotted setting to value, for settings that any grid varies.
    """

    name: str
    variant: str
    varied: dict[str, Value]
    settings: TuneSettings | TrainSettings
    both: bool = False

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return self.settings.run.seed

    @property
    def case(self) -> str:
        """Variant and values, which the runs of all seeds share; "" in a sweep without variation."""
        return case_of(self.name, self.seed)

    def key(self, *tables: str) -> str:
        """Short digest of variant and grid values, which identifies a run's inputs in later calls,
        independent of paths.
        """
        return short_digest(
            self.variant, {key: value for key, value in self.varied.items() if key.startswith(tables)}
        )

    @property
    def tuned(self) -> TuneSettings:
        """Its settings, in a sweep over ``tune``."""
        assert isinstance(self.settings, TuneSettings)
        return self.settings

    @property
    def trained(self) -> TrainSettings:
        """Its settings, in a sweep over ``train``."""
        assert isinstance(self.settings, TrainSettings)
        return self.settings


def short_digest(*parts: object) -> str:
    """The first twelve digits of a SHA-256."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def trials_of_sweep(settings: SweepSettings) -> list[SweepTrial]:
    """All runs of a sweep, seed by seed, so that the first seed gives early results for the whole grid."""
    cells = _drawn_cells(settings)
    runs: list[SweepTrial] = []
    # Runs of other seeds and values have the same faults; each is told of the first run that has it.
    faults: dict[str, str] = {}
    for seed in settings.sweep.seeds:
        for variant, varied in cells:
            title = _title(variant, varied, seed)
            try:
                runs.append(_sweep_trial(title, settings, variant, varied, seed))
            except SettingsError as fault:
                for phrase in fault.phrases:
                    faults.setdefault(phrase, title)
    if faults:
        raise SettingsError([f"{title}: {phrase}" for phrase, title in faults.items()])
    counts = Counter(run.name for run in runs)
    if again := [name for name, count in counts.items() if count > 1]:
        raise ConfigError(
            "runs of a sweep must have names of their own, got several: "
            f"{several(again)}; rename variants or values"
        )
    return runs


def checked_run(name: str, kind: type[RunT], base: Mapping[str, Any], overlay: Mapping[str, Any]) -> RunT:
    """Settings of a run: a variant laid over the common settings; faults are prefixed with the name of the
    run.
    """
    try:
        return checked(kind, overlaid(kind, base, overlay))
    except ConfigError as fault:
        raise ConfigError(f"{name}: {fault}") from fault


def exact(number: float) -> str:
    """The shortest text of a number that no other number has."""
    # Format `g` rounds to six digits; names of runs must not meet because of it.
    return short if float(short := f"{number:g}") == number else repr(number)


def _drawn_cells(settings: SweepSettings) -> list[Cell]:
    """All combinations, or a random sample of the requested size."""
    grids = [(variant, settings.values(variant)) for variant in settings.variants or (None,)]
    ends = list(accumulate(math.prod(map(len, values.values())) for _, values in grids))
    sample, seeds = settings.sweep.sample, len(settings.sweep.seeds)
    numbers: Sequence[int] = range(ends[-1])
    if sample is not None and sample < ends[-1]:
        # In the order of the grid, whatever the order of the draw.
        numbers = sorted(
            np.random.default_rng([settings.run.seed, 6])
            .choice(ends[-1], size=sample, replace=False)
            .tolist()
        )
    if len(numbers) * seeds > MOST_RUNS:
        raise ConfigError(
            f"a sweep must have at most {MOST_RUNS:,} runs, got {len(numbers) * seeds:,}; "
            "take fewer values, or set sweep.sample"
        )
    cells = []
    for number in numbers:
        # Combinations are numbered through all variants: `ends` holds the first number after each.
        which = bisect_right(ends, number)
        cells.append(_cell(*grids[which], number - (ends[which - 1] if which else 0)))
    return cells


def _cell(variant: VariantSection | None, values: Mapping[str, tuple[Any, ...]], position: int) -> Cell:
    """The combination with a number; the last setting varies fastest."""
    settings = {}
    for key, options in reversed(list(values.items())):
        position, number = divmod(position, len(options))
        settings[key] = options[number]
    return variant, {key: settings[key] for key in values}


def _title(variant: VariantSection | None, varied: Mapping[str, Any], seed: int) -> str:
    labels = [variant.name] if variant else []
    labels += [f"{key.rpartition('.')[2]}={_shown(value)}" for key, value in varied.items()]
    return ", ".join([*labels, f"seed={seed}"])


def _sweep_trial(
    title: str, settings: SweepSettings, variant: VariantSection | None, varied: Mapping[str, Any], seed: int
) -> SweepTrial:
    kind = settings.run_kind
    common = settings.common() if variant is None else overlaid(kind, settings.common(), variant.own)
    table = settings.completed(with_values(kind, common, varied.items()))
    run = checked(kind, overlaid(kind, table, {"run": {"seed": seed}}))
    if isinstance(run, TuneSettings) and (fault := run.sweep_fault()):
        raise SettingsError([fault])
    both = isinstance(variant, TuneVariantSection) and variant.towers == "both"
    return SweepTrial(
        title, variant.name if variant else "", {key: _taken(run, key) for key in settings.varied}, run, both
    )


def _taken(run: TuneSettings | TrainSettings, key: str) -> Value:
    """The value of a setting; None if it has no effect."""
    table, _, name = key.rpartition(".")
    section, value = value_at(run, table) if table else run, value_at(run, key)
    if section is None or name in section.unmet():
        return None
    if isinstance(value, Section):
        return _shown(value.model_dump(exclude_defaults=True)) or "on"
    return list(value) if isinstance(value, tuple) else value


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(
            [
                str(value.get("kind", "")),
                *(f"{key}={_shown(one)}" for key, one in value.items() if key != "kind"),
            ]
        ).strip()
    if isinstance(value, tuple):
        return "+".join(map(str, value)) or "none"
    if isinstance(value, float):
        return exact(value)
    return str(value)


BlockCount = Callable[[str], int]
"""Returns the number of blocks of a model by its name."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A training method, and its learning rate."""

    way: Way
    learning_rate: float

    def tables(self) -> dict[str, Any]:
        """Settings laid over those that all runs share."""
        way = self.way
        method: dict[str, Any] = {"kind": "full" if way.method == "freezing" else way.method}
        if way.rank is not None:
            method["rank"] = way.rank
        train: dict[str, Any] = {"method": method, "learning_rate": self.learning_rate}
        if way.frozen:
            train["freeze"] = ["embeddings", f"blocks[0:{way.frozen}]"]
        return {
            "job": {"model": way.model},
            "encoder": {} if way.blocks is None else {"blocks": way.blocks},
            "train": train,
        }


@dataclass(frozen=True, slots=True)
class ScalingTrial:
    """One planned run.

    Attributes:
        settings: All settings of `adiabat train`, except the directory.
    """

    name: str
    tried: Tried
    budget: float
    seed: int
    settings: TrainSettings


def ways_of(settings: ScalingSettings, blocks_of: BlockCount) -> list[Tried]:
    """Every model with every method."""
    variants = []
    for family in settings.models:
        depth = blocks_of(family.model)
        if beyond := [count for count in family.blocks if count > depth]:
            raise ConfigError(
                f"models.blocks of {family.model} must be at most {depth}, which "
                f"it has, got {beyond[0]}; leave it out"
            )
        for blocks in family.blocks or (None,):
            variants += list(_ways(settings, family, blocks, depth if blocks is None else blocks))
    counts = Counter(variant.way.title for variant in variants)
    repeated = [title for title, count in counts.items() if count > 1]
    if repeated:
        raise ConfigError(
            f"models must have names that tell their runs apart, got {repeated[0]} "
            "twice; give one of them another name"
        )
    if not variants:
        raise ConfigError(
            "methods must leave a run, got only shares of frozen blocks that "
            "round to none or all of every model's; "
            "use other shares, or set methods.full = true"
        )
    return variants


def _ways(
    settings: ScalingSettings, family: FamilySection, blocks: int | None, count: int
) -> Iterator[Tried]:
    methods, rates = settings.methods, settings.rates
    way = partial(Way, family.group, family.title, family.model, blocks)
    full = rates.full if rates.full is not None else PRETRAINING_SHARE * (family.pretraining_rate or 0.0)
    if methods.full:
        yield Tried(way("full", None, 0), full)
    for frozen in dict.fromkeys(_frozen(share, count) for share in methods.freezing):
        if frozen is not None:
            yield Tried(way("freezing", None, frozen), full)
    if methods.bias:
        yield Tried(way("bias", None, 0), rates.bias)
    for rank in methods.lora:
        yield Tried(way("lora", rank, 0), rates.lora)


def _frozen(share: float, count: int) -> int | None:
    """Number of blocks for a share, rounding halves up: at least one block is frozen, and at least one is
    not.
    """
    frozen = math.floor(share * count + 0.5)
    return frozen if 0 < frozen < count else None


def without_freezing(settings: ScalingSettings, blocks_of: BlockCount) -> list[str]:
    """Models that a share of frozen blocks cannot split."""
    sizes: list[tuple[str, int]] = []
    for family in settings.models:
        for count in family.blocks or (blocks_of(family.model),):
            sizes.append((family.title, count))
    notes = []
    for share in settings.methods.freezing:
        lost = [f"{name} of {count}" for name, count in sizes if _frozen(share, count) is None]
        if lost:
            notes.append(
                f"methods.freezing = {share:g} makes no run of {', '.join(lost)} blocks: "
                "the share rounds to none or all of them"
            )
    return notes


def trials_of_scaling(settings: ScalingSettings, ways: Sequence[Tried]) -> list[ScalingTrial]:
    """Every variant at every budget, with every seed; small budgets come first, so that an interrupted
    experiment has complete ones.
    """
    common = settings.common()
    # The last factor of the product varies fastest.
    runs = product(sorted(settings.scaling.budgets), settings.scaling.seeds, ways)
    return [_scaling_trial(common, way, budget, seed) for budget, seed, way in runs]


def _scaling_trial(common: Mapping[str, Any], tried: Tried, budget: float, seed: int) -> ScalingTrial:
    name = f"{tried.way.title}, {exact(budget)} FLOP, seed {seed}"
    # The loss of a run is a mean over its last steps, so every step is logged.
    overlay = overlaid(
        TrainSettings,
        tried.tables(),
        {"train": {"budget_flops": budget}, "run": {"seed": seed, "log_every": 1}},
    )
    return ScalingTrial(name, tried, budget, seed, checked_run(name, TrainSettings, common, overlay))
