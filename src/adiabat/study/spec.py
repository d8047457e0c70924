"""From the settings of a study to its runs: every combination of the grid over every variant, or some of them, with every seed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from operator import attrgetter
from typing import Any

import numpy as np

from adiabat.config import StudySettings, TuneSettings, checked
from adiabat.config.compare import laid_over
from adiabat.config.faults import unmet_need
from adiabat.config.study import VariantSection, nested
from adiabat.errors import ConfigError
from adiabat.measure.study_results import Value
from adiabat.tune.together import steps_alone

TOGETHER = ("learning_rate", "weight_decay", "margin")
"""Settings of ``[tune]`` in which runs of one step may differ: neither what they read nor what they embed depends on them."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One run to be made.

    Attributes:
        name: Of its folder and row; says what is varied.
        variant: Name of its overlay; "" where there is none.
        varied: Dotted setting to value, of those that any grid varies.
        settings: Everything that `adiabat tune` would be told.
    """

    name: str
    variant: str
    varied: dict[str, Value]
    settings: TuneSettings

    @property
    def seed(self) -> int:
        """Of the run."""
        return self.settings.run.seed

    @property
    def companions(self) -> str:
        """Equal for runs that can be stepped together."""
        if steps_alone(self.settings):
            return self.name
        return self.settings.model_copy(update={"tune": self.settings.tune.model_copy(update=dict.fromkeys(TOGETHER))}).model_dump_json()


def plan_runs(settings: StudySettings) -> list[Planned]:
    """All runs of a study, seed by seed, so that the first seed tells early how the whole grid comes off.

    Args:
        settings: Of the study.

    Returns:
        The runs, their names unique.

    Raises:
        ConfigError: If a combination makes no run.
    """
    cells = list(_cells(settings))
    wanted = settings.study.sample
    if wanted is not None and wanted < len(cells):
        drawn = np.random.default_rng([settings.run.seed, 6]).choice(len(cells), size=wanted, replace=False)
        cells = [cells[place] for place in sorted(drawn.tolist())]
    return [_planned(settings, variant, varied, seed) for seed in settings.study.seeds for variant, varied in cells]


def _cells(settings: StudySettings) -> Iterator[tuple[VariantSection | None, dict[str, Any]]]:
    for variant in settings.variants or (None,):
        values = settings.values(variant)
        for combination in product(*values.values()):
            yield variant, dict(zip(values, combination, strict=True))


def _planned(settings: StudySettings, variant: VariantSection | None, varied: Mapping[str, Any], seed: int) -> Planned:
    own = {} if variant is None else variant.own
    name = variant.name if variant else ""
    table = laid_over(laid_over(settings.common(), own), nested(varied))
    parts = [name] if name else []
    parts += [f"{key.rpartition('.')[2]}={_shown(value)}" for key, value in varied.items()]
    title = ", ".join([*parts, f"seed={seed}"])
    try:
        run = checked(TuneSettings, laid_over(table, {"run": {"seed": seed}}))
    except ConfigError as fault:
        raise ConfigError(f"{title}: {fault}") from fault
    return Planned(title, name, {key: _taken(run, key) for key in settings.varied}, run)


def _taken(run: TuneSettings, key: str) -> Value:
    """Of a setting; None where it has no effect."""
    table, _, name = key.rpartition(".")
    section = attrgetter(table)(run)
    if unmet_need(name, section.needs, vars(section)) is not None:
        return None
    value = getattr(section, name)
    return list(value) if isinstance(value, tuple) else value


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return "+".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def groups_of(runs: list[Planned], *, lanes: int) -> list[list[Planned]]:
    """Which runs are stepped together.

    Args:
        runs: Those to be made.
        lanes: Most runs of a group, >= 1.

    Returns:
        Groups in the order of their first run.
    """
    alike: dict[str, list[Planned]] = {}
    for run in runs:
        alike.setdefault(run.companions, []).append(run)
    return [some[start : start + lanes] for some in alike.values() for start in range(0, len(some), lanes)]
