"""Readings of a running endpoint: still while it is the same, an alarm once it is another."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adiabat
from adiabat.adiabatic.drift import MEASURES
from adiabat.adiabatic.probes import read_probes
from adiabat.config.checking import WatchSection
from adiabat.core.errors import AdiabatError, DataError, StoreError
from adiabat.serving.endpoint import Endpoint, EndpointError
from adiabat.serving.watching import EndpointWatch, watch_endpoint
from adiabat.store.vector_store import Store
from tests.commands import Run, own_world
from tests.commands import here as here
from tests.commands import run as run
from tests.refused import one_line
from tests.serving.test_endpoint_check import by, endpoint
from tests.tiny import tiny_encoder

world = own_world


@pytest.fixture
def probes(here: Path) -> str:
    (here / "probes.txt").write_text("".join(f"probe number {number}\n" for number in range(24)))
    return str(here / "probes.txt")


def test_a_reading_is_0_until_the_endpoint_is_another(here: Path, probes: str) -> None:
    towers = [adiabat.load(here / "model").query, tiny_encoder(seed=9)]
    serving = [0]
    with endpoint(lambda texts: by(towers[serving[0]])(texts)) as url:
        readings = []
        for serving[0] in (0, 0, 1):
            readings.append(adiabat.watch(url, here / "store", here / "watched", probes=probes))
        assert [reading["alarm"] for reading in readings] == [False, False, True]
        assert all(reading[name] == 0 for reading in readings[:2] for name in MEASURES)
        assert readings[2]["overlap loss"] > 0.1
        lines = (here / "watched" / "readings.jsonl").read_text().splitlines()
        assert [json.loads(line) for line in lines] == readings
        # Against the first reading, not the last one.
        serving[0] = 0
        again = adiabat.watch(url, here / "store", here / "watched", probes=probes, limit=0)
        assert (again["overlap loss"], again["alarm"]) == (0, False)


def test_a_reading_of_another_store_or_other_probes_is_refused(here: Path, probes: str) -> None:
    with endpoint(by(adiabat.load(here / "model").query)) as url:
        adiabat.watch(url, here / "store", here / "watched", probes=probes)
        with one_line(StoreError, "reference.npz", "choose another folder"):
            adiabat.watch(url, here / "store", here / "watched", probes="sample")
        content = (here / "watched" / "reference.npz").read_bytes()
        (here / "watched" / "reference.npz").write_bytes(content[: len(content) // 2])
        with one_line(DataError, "reference.npz", "remove it"):
            adiabat.watch(url, here / "store", here / "watched", probes=probes)


FAULTS: dict[str, Any] = {
    "another width": lambda texts: np.ones((len(texts), 16), dtype=np.float32),
    "no direction": lambda texts: np.zeros((len(texts), 32), dtype=np.float32),
    "NaN": lambda texts: np.full((len(texts), 32), np.nan, dtype=np.float32),
}


@pytest.mark.parametrize("name", FAULTS)
def test_vectors_that_cannot_be_searched_with_are_no_first_reading(
    here: Path, probes: str, name: str
) -> None:
    with endpoint(FAULTS[name]) as url, one_line(EndpointError, url, "must give"):
        adiabat.watch(url, here / "store", here / "watched", probes=probes)
    assert not (here / "watched").exists()


def test_readings_go_on_until_one_is_an_alarm(here: Path, probes: str) -> None:
    tower = adiabat.load(here / "model").query
    section = WatchSection(served="served", probes=probes, every=10.0)
    asked = []

    def embed(texts: list[str]) -> Any:
        asked.append(len(texts))
        return by(tower)(texts) if len(asked) < 3 else (503, {"error": "out of order"})

    with endpoint(embed) as url:
        store, reached = Store.open(here / "store"), Endpoint.of(url, section)
        watched = EndpointWatch(reached, store, read_probes(probes), section, here / "watched")
        rows, slept = list[dict[str, Any]](), list[float]()
        last = watch_endpoint(watched, rows.append, sleep=slept.append)
    assert [row["alarm"] for row in rows] == [False, False, True]
    assert last is rows[-1]
    assert "got 503" in last["error"]
    assert len(slept) == 2
    assert all(0 < seconds <= 10 for seconds in slept)


def test_the_verb_prints_a_line_and_ends_with_3_for_an_alarm(here: Path, probes: str, run: Run) -> None:
    for tower, code in ((adiabat.load(here / "model").query, 0), (tiny_encoder(seed=9), 3)):
        with endpoint(by(tower)) as url:
            said = run("watch", url, "--store", "store", "--out", "watched", "--probes", probes)
        assert said.code == code
        assert json.loads(said.out)["alarm"] is (code == 3)


REFUSED: dict[str, dict[str, Any]] = {
    "watch.limit": {"limit": 2},
    "watch.every": {"every": "soon"},
    "none.txt": {"probes": "none.txt"},
    "watch.depth": {"depth": 1},
}


@pytest.mark.parametrize("fact", REFUSED)
def test_refused(here: Path, fact: str) -> None:
    options = REFUSED[fact]
    with one_line(AdiabatError, fact):
        adiabat.watch("http://127.0.0.1:9", here / "store", here / "watched", served="a", **options)
    assert not (here / "watched").exists()
