"""The verb ``adiabat space`` and its function: files, and a baseline with documents of its own."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import adiabat
from adiabat.config.tasks import SpaceSettings
from adiabat.core.files import read_json
from adiabat.models.embedding_head import EncoderSettings
from adiabat.results.record import read_result
from adiabat.results.space_result import SpaceResult
from tests.commands import Said, inputs, listing, run_in_process, setting, write_world
from tests.tiny import save_tiny

FEW = setting("space.resamples=100", "space.pairs=200", "space.folds=2")
SETTINGS = SpaceSettings.model_validate({"space": {"resamples": 100, "pairs": 200, "folds": 2}})


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `write_world` writes, and a model whose document tower is another, with its store."""
    here = tmp_path_factory.mktemp("world")
    write_world(here)
    save_tiny(here / "other", seed=3, width=16, settings=EncoderSettings(max_tokens=64))
    adiabat.embed(here / "other", here / "corpus.jsonl", here / "other_store")
    return here


@pytest.fixture
def space(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Said]:
    """The verb on the model, its store and the examples, into ``out`` of the test's directory."""
    monkeypatch.chdir(world)

    def run(*more: str, model: str = "model", store: str = "store", queries: str = "pairs.jsonl") -> Said:
        return run_in_process(
            capsys, monkeypatch, ["space", model, store, queries, "--out", str(tmp_path / "out"), *FEW, *more]
        )

    return run


def test_the_verb_leaves_a_page_a_record_and_tables(space: Callable[..., Said], tmp_path: Path) -> None:
    said = space()
    assert said.code == 0, said.err
    assert said.out.strip() == str(tmp_path / "out" / "report.html")
    assert "tower separation, AUC" in said.err
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        ".call.json",
        "report.html",
        "result.json",
        "table.csv",
        "table.md",
    ]
    found = read_result(tmp_path / "out" / "result.json", SpaceResult)
    assert (found.model, found.baseline, found.looked_at, found.documents, found.map) == (
        "model",
        None,
        20,
        20,
        None,
    )
    assert found.command.startswith("adiabat space model store pairs.jsonl --out")
    assert set(found.inputs) == {"data", "store", "store_sha256"}


def test_json_is_the_record(space: Callable[..., Said], tmp_path: Path) -> None:
    said = space("--json", "--map", "--seed", "3", *setting("space.map.queries=20", "space.map.perplexity=4"))
    assert said.code == 0, said.err
    printed, record = json.loads(said.out), read_json(tmp_path / "out" / "result.json", remedy="")
    assert printed == {**record, "headline": printed["headline"], "reasons": printed["reasons"]}
    found = read_result(tmp_path / "out" / "result.json", SpaceResult)
    assert found.map is not None
    assert (found.seed, found.map.perplexity, len(found.map.after.queries)) == (3, 4.0, 20)


def test_a_baseline_stands_beside_with_its_own_documents(world: Path) -> None:
    found = adiabat.space(
        *inputs(world), baseline=world / "other", baseline_store=world / "other_store", settings=SETTINGS
    )
    alone = adiabat.space(world / "other", world / "other_store", world / "pairs.jsonl", settings=SETTINGS)
    assert [one.before for one in found.numbers] == [one.after for one in alone.numbers]
    assert found.inputs["baseline_store"] == str(world / "other_store")
    assert all(
        one.before_interval == other.after_interval
        for one, other in zip(found.numbers, alone.numbers, strict=True)
    )


def test_an_earlier_analysis_is_replaced_and_anything_else_is_not(
    space: Callable[..., Said], tmp_path: Path
) -> None:
    assert space().code == 0
    again = space("--seed", "1")
    assert again.code == 0
    assert "replaced the earlier analysis in" in again.err
    (tmp_path / "out" / "result.json").write_text('{"format": 2}', encoding="utf-8")
    before = listing(tmp_path)
    refused = space()
    assert refused.code == 2
    assert "--out must be new or hold an undamaged evaluation of the same kind" in refused.err
    assert listing(tmp_path) == before


def test_a_map_without_its_package_is_refused_before_anything_is_read(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openTSNE", None)
    settings = SpaceSettings.model_validate({"space": {"map": True}})
    with pytest.raises(ImportError, match=r"pip install 'adiabat\[maps\]'"):
        adiabat.space(world / "model", world / "nowhere", world / "pairs.jsonl", settings=settings)
