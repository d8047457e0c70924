"""Commands of adiabat on tiny data, run inside the test's process."""

import json
import re
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import adiabat
from adiabat import cli
from adiabat.core.provenance import CHECKED
from adiabat.models.embedding_head import EncoderSettings
from tests.tiny import save_tiny

# The recipe `quick` has a search before its run, and embeds thousands of texts: tests of it are in
# `adiabatic`.
FAST = (
    *("--recipe", "paper", "--set", "tune.max_epochs=2", "--set", "tune.batches_per_epoch=2"),
    *("--set", "data.validation_fraction=0.4"),
)
DOCUMENTS = [
    {"_id": f"d{number}", "text": f"document {number} about {'abcdefgh'[number % 8] * 5}"}
    for number in range(20)
]
PAIRS = [
    {"query": f"question {number}", "pos": [f"d{number}"], "neg": [f"d{(number + 1) % 20}"]}
    for number in range(20)
]


def other_pairs(word: str, count: int = 20) -> list[dict[str, object]]:
    """Pairs of the same documents with other queries."""
    return [{**pair, "query": f"{word} {number}"} for number, pair in enumerate(PAIRS[:count])]


@dataclass(frozen=True)
class Said:
    """What a verb left behind."""

    code: int
    out: str
    err: str


Run = Callable[..., Said]


def lines(path: Path, rows: Sequence[object]) -> None:
    path.write_text(
        "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows), encoding="utf-8"
    )


def run_in_process(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: Sequence[str]
) -> Said:
    """Run a command; the first of its words may be a command line with further ones."""
    first, *more = arguments or ("",)
    monkeypatch.setattr(sys, "argv", ["adiabat", *shlex.split(first), *more])
    capsys.readouterr()
    before = signal.getsignal(signal.SIGINT)
    try:
        cli.main(began=time.monotonic())
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        # A verb that was interrupted leaves Ctrl-C to end the process.
        signal.signal(signal.SIGINT, before)
    captured = capsys.readouterr()
    return Said(code, captured.out, captured.err)


@pytest.fixture
def own_world(tmp_path: Path) -> Path:
    """For files of tests that import it as `world`: one for each test, which may change it."""
    write_world(tmp_path)
    return tmp_path


@pytest.fixture
def here(world: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """For files of tests that import it: their `world`, in which they run."""
    monkeypatch.chdir(world)
    return world


@pytest.fixture
def run(world: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """For files of tests that import it: verbs in their `world`."""
    monkeypatch.chdir(world)
    monkeypatch.delenv("ADIABAT_DEBUG", raising=False)
    return lambda *arguments: run_in_process(capsys, monkeypatch, arguments)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return lambda *arguments: run_in_process(capsys, monkeypatch, arguments)


def assert_refused(said: Said, *facts: str) -> None:
    """Exit code 2, and one line of our own words that holds all facts."""
    assert (said.code, said.out) == (2, ""), said.err
    assert re.fullmatch(r"adiabat: [^\n]+\n", said.err), said.err
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", said.err)
    assert [fact for fact in facts if fact not in said.err] == [], said.err
    assert "Input should be" not in said.err


def listing(folder: Path) -> list[tuple[str, int, int]]:
    """Every path below, with size and time of change of the files; what opening remembers of checksums is
    left out.
    """
    found = [(path, path.stat()) for path in sorted(folder.rglob("*")) if path.name != CHECKED]
    return [
        (str(path), *((state.st_size, state.st_mtime_ns) if path.is_file() else (0, 0)))
        for path, state in found
    ]


def write_world(here: Path) -> None:
    """A model, a corpus with its store, and examples."""
    shutil.copytree(_written_world().name, here, dirs_exist_ok=True)


METHODS: Mapping[str, Mapping[str, Any]] = {"full": {"kind": "full"}, "lora": {"kind": "lora", "rank": 2}}
"""Name of a job to what it tunes."""


def write_tuned(here: Path, *names: str) -> None:
    """A world with jobs of `tune`, whose query towers are clearly others than that of the model."""
    write_world(here)
    steps = {"max_epochs": 1, "batches_per_epoch": 2, "learning_rate": 1e-2}
    for name in names:
        tune = {"recipe": "paper", "keep": "last", "method": METHODS[name], **steps}
        settings = {"tune": tune, "data": {"validation_fraction": 0.4}}
        adiabat.tune(*inputs(here), here / name, settings=settings)


@cache
def _written_world() -> TemporaryDirectory[str]:
    """The world that all others are copies of: making it takes longer than copying it."""
    folder = TemporaryDirectory()
    here = Path(folder.name)
    save_tiny(here / "model", settings=EncoderSettings(max_tokens=64))
    lines(here / "corpus.jsonl", DOCUMENTS)
    lines(here / "pairs.jsonl", PAIRS)
    adiabat.embed(here / "model", here / "corpus.jsonl", here / "store")
    return folder


def inputs(here: Path) -> tuple[Path, Path, Path]:
    """Model, store and examples of a world."""
    return here / "model", here / "store", here / "pairs.jsonl"


def embed(
    corpus: str = "corpus.jsonl", *more: str, model: str = "model", out: str = "new"
) -> tuple[str, ...]:
    return ("embed", model, corpus, "--out", out, *more)


def tune(
    data: str = "pairs.jsonl", *more: str, model: str = "model", store: str = "store", out: str = "new"
) -> tuple[str, ...]:
    return ("tune", model, store, data, "--out", out, *FAST, *more)


def evaluate(
    data: str = "pairs.jsonl", *more: str, model: str = "model", store: str = "store", out: str = "new"
) -> tuple[str, ...]:
    return ("evaluate", model, store, data, "--out", out, *more)


def search(query: str = "hello", *more: str, model: str = "model", store: str = "store") -> tuple[str, ...]:
    return ("search", store, query, "--model", model, *more)


def imported(vectors: str, *more: str, out: str = "new") -> tuple[str, ...]:
    return embed("corpus.jsonl", "--import", vectors, *more, out=out)


def setting(*assignments: str) -> tuple[str, ...]:
    return tuple(word for assignment in assignments for word in ("--set", assignment))
