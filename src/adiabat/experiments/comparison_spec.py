"""What is compared: candidates as the runs they become, and everything that can be seen to be wrong before data or models are read."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from adiabat.config.comparison_settings import CompareSettings
from adiabat.config.dual_training import TrainSettings
from adiabat.core.errors import ConfigError, several
from adiabat.dual_encoder.train import check
from adiabat.models.device import device_of
from adiabat.stats.ranking_measures import require_relevant_only


@dataclass(frozen=True, slots=True)
class Candidate:
    """One of those that are compared.

    Attributes:
        name: Also of its folder.
        settings: Of its runs, but for seed and directory.
    """

    name: str
    settings: TrainSettings

    @property
    def data(self) -> str:
        """What it is trained on, for people."""
        return self.settings.job.data or " + ".join(source.path for source in self.settings.data.sources)


def candidates_of(settings: CompareSettings) -> list[Candidate]:
    """The candidates of a comparison, once all of it has been found to make sense."""
    found = [Candidate(one.name, settings.training(one)) for one in settings.candidates]
    if faults := list(_faults(settings, found)):
        raise ConfigError(several(faults))
    return found


def _faults(settings: CompareSettings, candidates: list[Candidate]) -> Iterator[str]:
    if settings.compare.out is None:
        yield "compare.out must be given, got none; write it into the file, or add --out"
    if len(candidates) < 2:
        yield f"[[candidates]] must list at least two, got {len(candidates)}; add a table for each"
    if not settings.tasks:
        yield "[[tasks]] must list at least one, got none; add a table for each data set to measure on"
    if (processes := os.environ.get("WORLD_SIZE", "1")) != "1":
        yield f"adiabat compare must run in one process, got {processes}; start it without a launcher"
    try:
        require_relevant_only(settings.measure.measures)
    except ConfigError as fault:
        yield str(fault)
    try:
        device_of(settings.run.device)
    except ConfigError as fault:
        yield str(fault)
        return
    for candidate in candidates:
        try:
            check(candidate.settings)
        except ConfigError as fault:
            yield f'candidate "{candidate.name}": {fault}'
