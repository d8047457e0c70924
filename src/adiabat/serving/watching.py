"""Drift of a running endpoint: what it retrieves for probe texts, beside what it retrieved at first."""

import io
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from adiabat.adiabatic.drift import MEASURES, OVERLAP_LOSS, Reading, drift_of
from adiabat.adiabatic.probes import ProbeSet
from adiabat.adiabatic.regularization import reading_of
from adiabat.config.checking import WatchSection
from adiabat.core.disk import appending_to, make_folder
from adiabat.core.errors import DataError, StoreError
from adiabat.core.files import read_plain, reading, write_bytes, writing_to
from adiabat.core.provenance import now
from adiabat.models.embedding_head import STATED
from adiabat.serving.endpoint import Endpoint, EndpointError
from adiabat.store.vector_store import Store

REFERENCE, READINGS = "reference.npz", "readings.jsonl"
"""The first reading, and a line for each one."""

Row = dict[str, Any]


@dataclass(frozen=True)
class EndpointWatch:
    """An endpoint that is read with the same probes again and again.

    Attributes:
        folder: Where the first reading and the lines are kept.
    """

    endpoint: Endpoint
    store: Store
    probes: ProbeSet
    section: WatchSection
    folder: Path

    def take(self) -> Row:
        """Take one reading, and append its line.

        Raises:
            EndpointError: If the endpoint does not answer with vectors of the width of the store.
            StoreError: If the store or the probes are not those of the first reading.
        """
        began = time.perf_counter()
        first = self._first()
        latest = self._reading(first)
        if first is None:
            self._keep(latest)
        means = drift_of(first or latest, latest).means
        row = {
            "time": now(),
            "endpoint": self.endpoint.url,
            "served": self.endpoint.served,
            "probes": len(self.probes),
            **{name: means[name] for name in MEASURES},
            "limit": self.section.limit,
            "alarm": means[OVERLAP_LOSS] > self.section.limit,
            "seconds": time.perf_counter() - began,
        }
        self._append(row)
        return row

    def failed(self, fault: EndpointError) -> Row:
        """The line of a reading that the endpoint did not answer, which is an alarm too."""
        row: Row = {"time": now(), "endpoint": self.endpoint.url, "served": self.endpoint.served}
        row |= {"error": str(fault), "alarm": True}
        self._append(row)
        return row

    def _reading(self, first: Reading | None) -> Reading:
        vectors = self.endpoint.embed(self.probes.texts)
        if vectors.shape[1] != self.store.width:
            raise EndpointError(
                f"{self.endpoint.url} must give the {self.store.width} dimensions of {self.store.path}, got "
                f"{vectors.shape[1]}; name the model that the store is of"
            )
        if not np.isfinite(vectors).all() or not vectors.any(axis=1).all():
            raise EndpointError(f"{self.endpoint.url} must give finite vectors with a direction, got others")
        similarity = STATED[self.section.similarity]
        return reading_of(vectors, self.store, depth=self.section.depth, similarity=similarity, start=first)

    @property
    def _identity(self) -> str:
        """What a reading can be compared on."""
        section = self.section
        return json.dumps([self.store.manifest.sha256, self.probes.sha256, section.depth, section.similarity])

    def _first(self) -> Reading | None:
        path = self.folder / REFERENCE
        if not path.exists():
            return None
        remedy = "remove it: the next reading is then the first"
        with (
            reading(path, remedy=remedy, error=DataError),
            np.load(io.BytesIO(read_plain(path)), allow_pickle=False) as kept,
        ):
            identity = str(kept["identity"])
            first = Reading(kept["vectors"], kept["rows"], kept["scores"])
        if identity != self._identity:
            raise StoreError(
                f"{path} must be of this store, these probes and this depth, got others, which retrieve "
                "other documents; choose another folder"
            )
        return first

    def _keep(self, first: Reading) -> None:
        content = io.BytesIO()
        np.savez(
            content, identity=self._identity, vectors=first.vectors, rows=first.rows, scores=first.scores
        )
        with writing_to(self.folder):
            make_folder(self.folder, parents=True)
        write_bytes(content.getvalue(), self.folder / REFERENCE)

    def _append(self, row: Row) -> None:
        path = self.folder / READINGS
        with writing_to(path):
            make_folder(self.folder, parents=True)
            with appending_to(path) as file:
                file.write((json.dumps(row) + "\n").encode())


def watch_endpoint(
    watched: EndpointWatch, on_reading: Callable[[Row], None], *, sleep: Callable[[float], None] = time.sleep
) -> Row:
    """Take readings on the schedule of the settings until one is an alarm, or one alone; the last one."""
    every = watched.section.every
    if every is None:
        row = watched.take()
        on_reading(row)
        return row
    while True:
        due = time.monotonic() + every
        try:
            row = watched.take()
        except EndpointError as fault:
            row = watched.failed(fault)
        on_reading(row)
        if row["alarm"]:
            return row
        sleep(max(0.0, due - time.monotonic()))
