"""From the settings of a scaling experiment to its runs: every model, method, budget and seed (Ziarko et al. 2024)."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from adiabat.config.budgets import PRETRAINING_SHARE, FamilySection, ScalingSettings
from adiabat.config.dual_training import TrainSettings
from adiabat.config.section import overlaid
from adiabat.core.errors import ConfigError
from adiabat.experiments.grid import checked_run, exact
from adiabat.scaling_laws.laws import Way

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
        return {"job": {"model": way.model}, "encoder": {} if way.blocks is None else {"blocks": way.blocks}, "train": train}


@dataclass(frozen=True, slots=True)
class Planned:
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
            raise ConfigError(f"models.blocks of {family.model} must be at most {depth}, which it has, got {beyond[0]}; leave it out")
        for blocks in family.blocks or (None,):
            variants += list(_ways(settings, family, blocks, depth if blocks is None else blocks))
    if repeated := [title for title, count in Counter(variant.way.title for variant in variants).items() if count > 1]:
        raise ConfigError(f"models must have names that tell their runs apart, got {repeated[0]} twice; give one of them another name")
    if not variants:
        raise ConfigError(
            "methods must leave a run, got only shares of frozen blocks that round to none or all of every model's; "
            "use other shares, or set methods.full = true"
        )
    return variants


def _ways(settings: ScalingSettings, family: FamilySection, blocks: int | None, count: int) -> Iterator[Tried]:
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
    """Number of blocks for a share, rounding halves up: at least one block is frozen, and at least one is not."""
    frozen = math.floor(share * count + 0.5)
    return frozen if 0 < frozen < count else None


def without_freezing(settings: ScalingSettings, blocks_of: BlockCount) -> list[str]:
    """Models that a share of frozen blocks cannot split."""
    sizes = [(family.title, count) for family in settings.models for count in family.blocks or (blocks_of(family.model),)]
    lost = {share: [f"{name} of {count}" for name, count in sizes if _frozen(share, count) is None] for share in settings.methods.freezing}
    return [
        f"methods.freezing = {share:g} makes no run of {', '.join(names)} blocks: the share rounds to none or all of them"
        for share, names in lost.items()
        if names
    ]


def plan_runs(settings: ScalingSettings, ways: Sequence[Tried]) -> list[Planned]:
    """Every variant at every budget, with every seed; small budgets come first, so that an interrupted experiment has complete ones."""
    common = settings.common()
    return [
        _planned(common, way, budget, seed)
        for budget in sorted(settings.scaling.budgets)
        for seed in settings.scaling.seeds
        for way in ways
    ]


def _planned(common: Mapping[str, Any], tried: Tried, budget: float, seed: int) -> Planned:
    name = f"{tried.way.title}, {exact(budget)} FLOP, seed {seed}"
    overlay = overlaid(TrainSettings, tried.tables(), {"train": {"budget_flops": budget}, "run": {"seed": seed, "log_every": 1}})
    return Planned(name, tried, budget, seed, checked_run(name, TrainSettings, common, overlay))
