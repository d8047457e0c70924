"""Cheap checks of the public functions come before data are read and models are loaded."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import adiabat
from adiabat.core.errors import ConfigError, JobError, ModelError, StoreError
from adiabat.dual_encoder import train as train_module
from adiabat.models import model_names
from tests.commands import here as here
from tests.commands import listing, own_world
from tests.refusals import without_torch
from tests.refusals.world import write_mistakes

world = own_world

ABSENT = "no/such/model"


@pytest.mark.parametrize(
    "call",
    [
        lambda: adiabat.embed(ABSENT, "broken.jsonl", "new"),
        lambda: adiabat.import_vectors("nowhere.npy", "new", model=ABSENT),
        lambda: adiabat.tune(ABSENT, "store", "broken.jsonl", "new"),
        lambda: adiabat.safe_rate(ABSENT, "store", "broken.jsonl", "new"),
        lambda: adiabat.train(ABSENT, "broken.jsonl", "new"),
        lambda: adiabat.train("model", "broken.jsonl", "new", guide=ABSENT),
        lambda: adiabat.train(
            "model", "broken.jsonl", "new", towers={"kind": "asymmetric", "document_model": ABSENT}
        ),
        lambda: adiabat.estimate(ABSENT, "broken.jsonl"),
        lambda: adiabat.evaluate("model", "store", "broken.jsonl", baseline=ABSENT),
        lambda: adiabat.space(ABSENT, "store", "broken.jsonl"),
        lambda: adiabat.advise(ABSENT, "store", "broken.jsonl"),
        lambda: adiabat.mine(
            "broken.jsonl", "corpus.jsonl", "new.jsonl", model=ABSENT, store="store", source="dense"
        ),
        lambda: adiabat.mine("broken.jsonl", "corpus.jsonl", "new.jsonl", judge=ABSENT),
        lambda: adiabat.label("broken.jsonl", "store", "new.jsonl", reranker=ABSENT),
        lambda: adiabat.distill_fit("model", ABSENT, "new", queries="broken.jsonl"),
        lambda: adiabat.distill_multilingual([ABSENT], "model", "new", parallel=[{"en": "a", "de": b"b"}]),
        lambda: adiabat.distill_ablate(ABSENT, "new", suite="gone"),
        lambda: adiabat.scaling(
            {"models": [{"model": ABSENT, "pretraining_rate": 1.0}]},
            out="new",
            budgets=[1e9],
            data="broken.jsonl",
        ),
    ],
)
def test_names_of_models_are_checked_before_data_is_read(here: Path, call: Any) -> None:
    (here / "broken.jsonl").write_text('{"query": "q", "pos": ["d0"]}\n{"query": 7}\n')
    adiabat.embed("model", "corpus.jsonl", "store")
    with pytest.raises(
        ModelError,
        match="hub name, got no/such/model: there is no such directory, and it is no name of the hub; check",
    ):
        call()
    assert not list(here.glob("new*"))


def test_cheap_settings_are_checked_before_data_and_models(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "broken.jsonl").write_text('{"query": 7, "positive": "d0"}\n')
    store = adiabat.embed("model", "corpus.jsonl", "store")
    calls: list[Callable[..., object]] = [
        lambda **options: adiabat.evaluate("model", store, "broken.jsonl", **options),
        lambda **options: adiabat.space("model", store, "broken.jsonl", **options),
        lambda **options: adiabat.advise("model", store, "broken.jsonl", **options),
        lambda **options: adiabat.mine("broken.jsonl", "corpus.jsonl", "new.jsonl", **options),
    ]
    for call in calls:
        with pytest.raises(ConfigError, match="run.device must be auto, cpu"):
            call(device="tpu")
    for call in calls[:3]:
        with pytest.raises(JobError, match="out must be a directory of its own, store is a store"):
            call(out="store")
    monkeypatch.setattr(
        train_module, "require_tensorboard", lambda: (_ for _ in ()).throw(ConfigError("no tensorboard"))
    )
    with pytest.raises(ConfigError, match="no tensorboard"):
        adiabat.train("model", "broken.jsonl", "new", tensorboard=True)
    monkeypatch.setattr(model_names, "load", lambda *_, **__: pytest.fail("a model was loaded"))
    with pytest.raises(StoreError, match="k must be at least 1, got 0"):
        adiabat.search(store, "a", model="model", k=0)


@pytest.mark.parametrize("verb", [adiabat.tune, adiabat.safe_rate])
def test_a_model_may_be_a_path_object_and_is_checked_as_its_text_is(
    here: Path, monkeypatch: pytest.MonkeyPatch, verb: Callable[..., object]
) -> None:
    monkeypatch.setattr(model_names, "load", lambda *_, **__: pytest.fail("a model was loaded"))
    for model in ("model", Path("model")):
        with pytest.raises(StoreError, match="absent must be a store, there is no such directory"):
            verb(model, "absent", "pairs.jsonl", "new")


RESUMING = (
    "tune",
    "train",
    "sweep",
    "scaling",
    "safe-rate",
    "distill fit",
    "distill multilingual",
    "distill ablate",
)


def test_cheap_mistakes_of_every_verb_are_refused_without_torch_and_leave_nothing(tmp_path: Path) -> None:
    write_mistakes(tmp_path)
    before = listing(tmp_path)
    said = subprocess.run(
        [sys.executable, without_torch.__file__],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    refused = [json.loads(line) for line in said.stdout.splitlines()]
    assert len(refused) > 300
    assert [
        (command, told) for command, code, told, *_ in refused if code != 2 or told.count("\n") != 1
    ] == []
    # Other verbs cannot resume.
    assert [
        command for command, _, told, _ in refused if "--resume" in told and not command.startswith(RESUMING)
    ] == []
    # What was asked for and could not be imported; a check without it is a second, or ten.
    assert [(command, asked) for command, _, _, asked in refused if asked] == []
    assert listing(tmp_path) == before
