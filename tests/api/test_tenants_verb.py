"""Towers for tenants from rows to a page: what each takes, what is resumed, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adiabat
from adiabat.adiabatic.expected_time import Pace
from adiabat.adiabatic.tenant_choice import TowerChooser
from adiabat.api import tenants_verb as module
from adiabat.core.errors import ConfigError, DataError, DivergedError, JobError
from adiabat.results.record import read_result
from adiabat.results.tenants_result import TenantsResult
from tests.commands import Run, lines
from tests.commands import command as command
from tests.pages import no_page as no_page
from tests.pages import real_pages as real_pages
from tests.tiny import save_tiny

TENANTS = {"big one": 60, "mid/size": 60, "few": 9}
OPTIONS: dict[str, Any] = {
    "recipe": "paper",
    "learning_rate": 3e-3,
    "keep": "ranking",
    "batch_size": 5,
    "loss": "store_softmax",
    "batches_per_epoch": 10,
    "max_epochs": 2,
    "idle_epochs": 2,
    "hold_out": "documents",
    "fewest": 20,
}


@pytest.fixture(autouse=True)
def known_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "adiabat.adiabatic.tune.measured_pace", lambda *_, **__: Pace(0.01, 0.01, 0.01, "CPU")
    )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, a store, rows of three tenants, and a retention set of 40 queries."""
    folder = tmp_path_factory.mktemp("tenants")
    save_tiny(folder / "model", layers=2)
    count = sum(TENANTS.values())
    corpus = [{"_id": f"d{number}", "text": f"paper {number * number}"} for number in range(count + 40)]
    lines(folder / "corpus.jsonl", corpus)
    rows, number = [], 0
    for name, queries in TENANTS.items():
        for _ in range(queries):
            far = [f"d{(number + step) % count}" for step in (3, 7)]
            row = {"query": f"about {number * number}", "pos": [f"d{number}"], "neg": far, "firm": name}
            rows.append(row)
            number += 1
    lines(folder / "rows.jsonl", [rows[at] for at in np.random.default_rng(0).permutation(count)])
    # Asked alike, so that what gains for the tenants loses nothing here.
    kept = [{"query": f"about {at * at}", "pos": [f"d{at}"]} for at in range(count, count + 40)]
    lines(folder / "kept.jsonl", kept)
    adiabat.embed(str(folder / "model"), folder / "corpus.jsonl", folder / "store", dtype="float32")
    return folder


def towers(world: Path, out: Path, **more: Any) -> TenantsResult:
    given = {"by": "firm", "retain": [(world / "store", world / "kept.jsonl")], **OPTIONS, **more}
    data = given.pop("data", world / "rows.jsonl")
    return adiabat.tune_tenants(str(world / "model"), world / "store", data, out, **given)


def plain(result: TenantsResult, out: Path) -> str:
    """What the tenants took and gained, wherever it lies."""
    rows = [replace(tenant) for tenant in result.tenants]
    return repr(rows).replace(str(out), "OUT")


@pytest.fixture(scope="module")
def done(world: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[TenantsResult, Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("adiabat.adiabatic.tune.measured_pace", lambda *_, **__: Pace(0.01, 0.01, 0.01, "CPU"))
        out = tmp_path_factory.mktemp("done") / "towers"
        return towers(world, out), out


def test_each_tenant_has_a_model_and_those_that_are_tuned_a_verdict(
    world: Path, done: tuple[TenantsResult, Path]
) -> None:
    result, out = done
    assert [tenant.name for tenant in result.tenants] == sorted(TENANTS)
    parts = {tenant.name: (tenant.train, tenant.validation, tenant.test) for tenant in result.tenants}
    assert {name: sum(counts) for name, counts in parts.items()} == TENANTS
    for tenant in result.tenants:
        assert adiabat.load(tenant.model).width == 32
        assert tenant.why
        assert (tenant.target is not None) == (tenant.chosen != "start" and tenant.test > 0)
        assert all(len(tower.figures) == 2 for tower in tenant.towers)
    few = next(tenant for tenant in result.tenants if tenant.name == "few")
    assert "to tune and validate with, of 20" in few.why
    jobs = sorted(path.parent.name for path in (out / "tenants").glob("*/own"))
    assert len(jobs) == 2
    assert read_result(out / "result.json") == result
    assert read_result(out / "result.json").inputs["target"]["model"] == str(world / "model")


def test_every_verdict_is_that_of_an_evaluation_on_the_tenants_test_queries(
    world: Path, done: tuple[TenantsResult, Path]
) -> None:
    result, out = done
    tuned = [tenant for tenant in result.tenants if tenant.target is not None]
    assert tuned
    for tenant in tuned:
        (test,) = (out / "queries").glob(f"tenants/{tenant.name[:3]}*/test.jsonl")
        again = adiabat.evaluate(
            tenant.model,
            world / "store",
            test,
            baseline=str(world / "model"),
            retain=[(world / "store", world / "kept.jsonl")],
            negatives="store",
        )
        target, kept = again.datasets
        assert tenant.target == target.main_change()
        assert tenant.retained == {kept.name: kept.main_change()}
        # None of its queries, and half of the retention set, were left out.
        assert (target.left_out, target.queries) == (0, tenant.test)
        assert kept.left_out == 20


def test_the_call_that_serves_all_towers_names_each(done: tuple[TenantsResult, Path]) -> None:
    result, _ = done
    folders = ("big-one", "few", "mid-size")
    for folder, tenant in zip(folders, result.tenants, strict=True):
        assert f'"{folder}={tenant.model}"' in result.serve
    assert result.serve.startswith(f'adiabat.serve("{result.inputs["target"]["store"]}", towers=[')


class StoppedError(Exception):
    """In place of a kill."""


def test_a_call_that_is_interrupted_everywhere_gives_the_towers_of_an_uninterrupted_one(
    world: Path, done: tuple[TenantsResult, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the shared job, an own one, the choice and an evaluation, each time resumed."""
    out = tmp_path / "towers"
    real = module.tune_in

    def stop(*_: object, **__: object) -> None:
        raise StoppedError

    def stop_at_own(context: Any, folder: Path, *given: Any, **options: Any) -> Any:
        if folder.parent.name.startswith("mid"):
            raise StoppedError
        return real(context, folder, *given, **options)

    moments: list[tuple[Any, str, Any]] = [
        (module, "tune_in", stop),
        (module, "tune_in", stop_at_own),
        (TowerChooser, "choose", stop),
        (module, "evaluate", stop),
    ]
    for number, moment in enumerate(moments):
        with monkeypatch.context() as patch:
            patch.setattr(*moment)
            with pytest.raises(StoppedError):
                towers(world, out, resume=number > 0)
    with pytest.raises(JobError, match="holds a set of towers for tenants already; continue it with resume"):
        towers(world, out)
    result = towers(world, out, resume=True)
    uninterrupted, place = done
    assert plain(result, out) == plain(uninterrupted, place)


def test_the_same_call_returns_its_towers_and_another_one_is_refused(
    world: Path, done: tuple[TenantsResult, Path], tmp_path: Path
) -> None:
    result, out = done
    assert towers(world, out, exist_ok=True) == result
    with pytest.raises(JobError, match="holds the result of another call"):
        towers(world, out, exist_ok=True, max_epochs=3)
    with pytest.raises(JobError, match="tune.max_epochs"):
        towers(world, out, resume=True, max_epochs=3)
    rows = (world / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    (tmp_path / "fewer.jsonl").write_text("\n".join(rows[1:]) + "\n", encoding="utf-8")
    with pytest.raises(JobError, match="the queries differ from those the towers began with"):
        towers(world, out, resume=True, data=tmp_path / "fewer.jsonl")


def test_a_tenant_whose_own_job_diverges_says_so_and_takes_the_shared_tower(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = module.tune_in

    def tune_in(context: Any, folder: Path, *given: Any, **options: Any) -> Any:
        if folder.parent.name.startswith("big"):
            raise DivergedError("the loss is NaN at step 3", "lower the rate")
        return real(context, folder, *given, **options)

    monkeypatch.setattr(module, "tune_in", tune_in)
    result = towers(world, tmp_path / "towers", retain=[], test_fraction=0.0)
    big = result.tenants[0]
    assert "the loss is NaN at step 3" in big.why
    assert big.chosen in ("shared", "start")
    assert [tower.name for tower in big.towers] in (["shared"], [])
    assert all(tenant.target is None and tenant.test == 0 for tenant in result.tenants)


def test_a_folder_with_a_file_for_each_tenant_gives_the_towers_of_a_column(
    world: Path, done: tuple[TenantsResult, Path], tmp_path: Path
) -> None:
    rows = [json.loads(line) for line in (world / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    files = tmp_path / "files"
    files.mkdir()
    for name in TENANTS:
        own = [{key: row[key] for key in ("query", "pos", "neg")} for row in rows if row["firm"] == name]
        lines(files / f"{name.replace('/', '-')}.jsonl", own)
    result = towers(world, tmp_path / "towers", by="file", data=files)
    by_column, _ = done
    assert [tenant.name for tenant in result.tenants] == ["big one", "few", "mid-size"]
    for tenant, other in zip(result.tenants, by_column.tenants, strict=True):
        assert (tenant.chosen, tenant.towers, tenant.target) == (other.chosen, other.towers, other.target)
    (files / "big one.jsonl").write_text("{}\n", encoding="utf-8")
    with pytest.raises(DataError, match="big one.jsonl"):
        towers(world, tmp_path / "others", by="file", data=files)
    assert not (tmp_path / "others").exists()


def test_bad_inputs_are_refused_before_anything_is_written(world: Path, tmp_path: Path) -> None:
    out = tmp_path / "towers"
    with pytest.raises(DataError, match='"team"'):
        towers(world, out, by="team")
    with pytest.raises(ConfigError, match="data.validation must be left out"):
        towers(world, out, validation=str(world / "kept.jsonl"))
    with pytest.raises(ConfigError, match="must go with a folder"):
        towers(world, out, by="file")
    with pytest.raises(ConfigError, match="test_fraction"):
        towers(world, out, test_fraction=1.5)
    assert not out.exists()


def test_the_command_tunes_by_a_column_and_prints_a_table(
    world: Path, tmp_path: Path, command: Run, real_pages: None
) -> None:
    out = tmp_path / "towers"
    words = [str(world / "model"), str(world / "store"), str(world / "rows.jsonl"), "--by", "firm"]
    short = {"max_epochs": 1, "batches_per_epoch": 2, "batch_size": 5, "learning_rate": 3e-3}
    options = [word for key, value in short.items() for word in ("--set", f"tune.{key}={value}")]
    options += ["--set", "tenants.fewest=20"]
    said = command("tune", *words, *options, "--out", str(out))
    assert said.code == 0
    assert said.out.strip() == str(out / "report.html")
    assert "few: " in said.err
    assert all(name in said.err for name in TENANTS)
    assert "mid/size" in (out / "report.html").read_text(encoding="utf-8")
    again = command("tune", *words, *options, "--out", str(out), "--exist-ok", "--json")
    assert [tenant["name"] for tenant in json.loads(again.out)["tenants"]] == sorted(TENANTS)
    served = json.loads(again.out)["serve"].split(" --tower ")
    assert served[0] == f"adiabat serve {world / 'store'}"
    assert [word.partition("=")[0] for word in served[1:]] == ["big-one", "few", "mid-size"]
    refused = command("tune", *words, *options, "--out", str(out), "--dry-run")
    assert refused.code == 2
    assert "--by" in refused.err
