"""The towers that are served, which are replaced while requests run."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adiabat.config.shared import RankingEncoderSection
from adiabat.core.errors import AdiabatError
from adiabat.exporting.job_tables import training_of
from adiabat.models.deltas import is_delta
from adiabat.models.model_names import load, load_over_base
from adiabat.models.model_paths import directory_of
from adiabat.models.towers import DualEncoder
from adiabat.store.vector_store import Store


class UnknownTowerError(AdiabatError):
    """No tower of this name is served."""


@dataclass(frozen=True, slots=True)
class ServedTower:
    """A tower under the name that requests give.

    Attributes:
        source: The model that it was loaded from.
        shown: Gain in percent that the validation queries of its job showed; None if none is known.
        since: Seconds since the epoch.
    """

    name: str
    source: str
    model: DualEncoder
    shown: float | None
    since: float

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "name": self.name,
            "source": self.source,
            "dimensions": self.model.width,
            "prompt": self.model.query.settings.query_prompt,
            "max_tokens": self.model.query.settings.limit("query"),
            "validation_gain_percent": self.shown,
            "since": self.since,
        }


@dataclass
class Towers:
    """All towers by name.

    Every change makes a new table and puts it in the place of the former one, so that a request keeps the
    tower that it began with.
    """

    store: Store
    encoder: RankingEncoderSection
    device: str
    _table: Mapping[str, ServedTower] = field(default_factory=dict)
    _bases: dict[str, DualEncoder] = field(default_factory=dict)
    _change: threading.Lock = field(default_factory=threading.Lock)

    def __getitem__(self, name: str) -> ServedTower:
        """The tower of a name; the only one for an empty name."""
        table = self._table
        if not name and len(table) == 1:
            return next(iter(table.values()))
        if name not in table:
            listed = ", ".join(table) or "none"
            raise UnknownTowerError(f"tower must be one of {listed}, got {name or 'none'}; name one of them")
        return table[name]

    def listed(self) -> list[ServedTower]:
        """All towers, in the order in which they came."""
        return list(self._table.values())

    def put(self, name: str, source: str) -> bool:
        """Load a tower, and serve it in the place of one of the same name; whether there was one.

        Raises:
            AdiabatError: If it cannot be loaded, or its document tower is not that of the store.
        """
        # One change at a time; requests read the table without waiting.
        with self._change:
            model = self._loaded(source)
            self.store.require_encoder(model.fingerprint("document"), who=source)
            replaced = name in self._table
            tower = ServedTower(name, source, model, _shown(source), time.time())
            self._table = {**self._table, name: tower}
            return replaced

    def remove(self, name: str) -> None:
        """Serve a tower no longer."""
        with self._change:
            # Refuses an unknown name; an empty one names no tower here.
            if name not in self._table:
                self[name or "none"]
            self._table = {key: tower for key, tower in self._table.items() if key != name}

    def _loaded(self, source: str) -> DualEncoder:
        folder = Path(directory_of(source))
        if is_delta(folder):
            return load_over_base(folder, self.encoder, self._base, over_base=True)
        return load(source, settings=self.encoder, device=self.device)

    def _base(self, name: str) -> DualEncoder:
        """The base model of deltas, loaded once for all of them."""
        if name not in self._bases:
            self._bases[name] = load(name, device=self.device)
        return self._bases[name]


def _shown(source: str) -> float | None:
    """What the validation queries of the job of a model showed."""
    training = training_of(source)
    return None if training is None else training.shown
