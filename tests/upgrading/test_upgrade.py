"""Stores, jobs and results of every former format: `README.md` says how they were made."""

import json
import os
import shutil
import tarfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import adiabat
from adiabat.core import provenance
from adiabat.core.errors import AdiabatError, DataError, StoreError
from adiabat.core.files import read_json, sealed_json, write_json
from adiabat.report import pages
from adiabat.results.advice_result import Advice
from adiabat.results.record import RECORD_FILE, read_result
from adiabat.results.sweep_result import SweepResult
from adiabat.runs.run_config import Job, read_description
from adiabat.store.manifest import HEADER_BYTES, Manifest
from adiabat.store.vector_store import Store
from tests.commands import Run, assert_refused, listing, setting
from tests.commands import run as run
from tests.pages import no_page as no_page
from tests.report.sample_advice import make_advice
from tests.tiny import edit, write

ARCHIVE = Path(__file__).with_name("former.tar.xz")
STORE_1 = ("result-1", "result-2", "result-3")
FORMER = (*STORE_1, "store-2", "result-4", "settings-2")
LATEST = "before-tombstones"
SEARCH = ("search", "store", "hello", "--model", "job")
WITH_SUITE = (*FORMER[2:], LATEST)

pytestmark = pytest.mark.usefixtures("no_page")


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("former")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture
def version() -> str:
    return "result-3"


@pytest.fixture
def world(unpacked: Path, version: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(unpacked / version, tmp_path / "world"))


@pytest.fixture
def here(world: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(world)
    return world


def vectors_of(folder: Path) -> bytes:
    return (folder / "vectors.npy").read_bytes()


def results_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob(RECORD_FILE))


@pytest.mark.parametrize("version", FORMER)
def test_everything_of_a_former_version_is_used_after_an_upgrade(here: Path, version: str) -> None:
    former = {path: json.loads(path.read_text()) for path in results_in(here)}
    vectors = vectors_of(here / "store")
    dry = adiabat.upgrade(here, dry_run=True)
    done = adiabat.upgrade(here)
    assert (done.converted, dry.backups) == (dry.converted, ())
    assert done.converted
    assert adiabat.upgrade(here).converted == {}
    # Vectors and results are what they were.
    assert vectors_of(here / "store") == vectors
    Store.open("store").verify()
    for path, plain in former.items():
        record = read_result(path)
        kept = {"title": record.title, "seed": record.seed, "versions": record.versions}
        assert kept == {name: plain[name] for name in kept}
    assert read_description(Job(Path("job")))["tune"]["loss"]["kind"] == "triplet"
    # They are used.
    hits = adiabat.search("store", "which paper is 4", model="job", k=3)
    assert len(hits) == 3
    result = adiabat.evaluate("job", "store", "pairs.jsonl", out="again", resamples=100)
    former_values = former[here / "measured" / RECORD_FILE]["datasets"][0]["changes"]
    assert result.training is not None
    by_name = {change.measure: change.after for change in result.datasets[0].changes}
    for change in former_values:
        if change["measure"] in by_name:
            assert by_name[change["measure"]] == pytest.approx(change["after"], abs=1e-9)


@pytest.mark.parametrize("version", STORE_1)
def test_a_store_of_0_1_is_refused_with_the_command_and_its_job_is_a_model(here: Path, run: Run) -> None:
    said = run(*SEARCH)
    assert_refused(said, "store/manifest.json was written by adiabat 0.1 (format 1)", "adiabat upgrade store")
    assert run("upgrade", "store").code == 0
    assert run(*SEARCH).code == 0
    # What evaluate needs of the job is its record.
    said = run("evaluate", "job", "store", "pairs.jsonl", "--out", "again")
    assert_refused(said, "job/result.json was written by adiabat", "run adiabat upgrade job")


SETTINGS = (
    "data.validation_fraction=0.2",
    *(f"tune.{key}" for key in ("batches_per_epoch=2", "batch_size=4", "learning_rate=1e-3")),
)
PAPER = ("--recipe", "paper", *setting(*SETTINGS, "tune.max_epochs=2"))
TUNE = ("tune", "model", "store", "pairs.jsonl", *PAPER)


def weights_of(job: str) -> dict[str, np.ndarray]:
    return load_file(Path(job) / "model" / "query_0_Transformer" / "model.safetensors")


@pytest.mark.parametrize("version", [*FORMER, LATEST])
def test_a_former_job_is_resumed_or_its_differences_are_named(here: Path, version: str, run: Run) -> None:
    adiabat.upgrade(here)
    said = run(*TUNE, "--out", "job", "--resume")
    if version in STORE_1:
        # In 0.1 the distance was a setting with a default of its own.
        assert said.code == 2
        assert "got a difference: tune.loss.distance was 'cosine', is 'not set'" in said.err
        return
    assert said.code == 0, said.err
    assert read_result(Path("job/result.json")).training.epochs == 2
    run(*TUNE, "--out", "whole")
    for name, weights in weights_of("whole").items():
        # A step changes a weight by up to 1e-3; another machine computes it a little differently.
        np.testing.assert_allclose(weights_of("job")[name], weights, atol=1e-5)


@pytest.mark.parametrize("version", [LATEST])
def test_files_without_another_format_need_no_upgrade_but_a_sweep_and_settings_do(
    here: Path, run: Run
) -> None:
    with pytest.raises(DataError, match=r"adiabat.upgrade\(\"study"):
        read_result(Path("study/result.json"))
    converted = adiabat.upgrade(here).converted
    results = {path.parent.name for path in converted if path.name != "config.toml"}
    # Without a baseline there is no verdict, and nothing to convert.
    assert results == {"study"}
    change = read_result(here / "measured" / RECORD_FILE).datasets[0].main_change()
    assert (change.verdict, change.reasons) == (None, [])
    before = listing(here)
    assert run("upgrade", ".").out.startswith("nothing to upgrade")
    assert listing(here) == before
    swept = read_result(Path("study/result.json"), SweepResult)
    assert pages.verdict(swept)[0].startswith("2\xa0runs completed.")
    assert (swept.task_names, swept.pairings) == (["asked"], [])
    for verb in (
        SEARCH,
        ("evaluate", "job", "store", "pairs.jsonl", "--out", "measured", *setting("measure.resamples=100")),
        ("evaluate", "model", "job", "--suite", "suite.toml", "--out", "suite"),
    ):
        assert run(*verb).code == 0
    kinds = {read_result(path).kind for path in results_in(here)}
    assert kinds == {"training", "evaluation", "suite", "sweep", "rate-search", "space", "distillation"}


@pytest.mark.parametrize("version", [LATEST])
def test_what_was_interrupted_goes_on_in_this_version(here: Path, run: Run) -> None:
    resumed = (*TUNE, "--out", "begun", "--resume")
    assert_refused(run(*resumed), "begun/config.toml was written by", "run adiabat upgrade begun")
    adiabat.upgrade(here / "begun")
    tuned = run(*resumed)
    assert tuned.code == 0, tuned.err
    assert read_result(Path("begun/result.json")).training.epochs == 2
    assert "resumed after 24 documents" in run("embed", "model", "corpus.jsonl", "--out", "half").err
    assert vectors_of(here / "half") == vectors_of(here / "store")
    mined = run("mine", "pairs.jsonl", "corpus.jsonl", "--out", "mined.jsonl")
    assert mined.code == 0, mined.err
    assert len(Path("mined.jsonl").read_text().splitlines()) == 20


@pytest.mark.parametrize("version", WITH_SUITE)
def test_scores_of_former_versions_are_compared_as_they_are(here: Path) -> None:
    compared = adiabat.compare("suite/scores/model", "suite/scores/job", resamples=100)
    assert [model.name for model in compared.models] == ["model", "job"]


def test_a_killed_upgrade_leaves_a_readable_state_and_is_completed(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Manifest.write

    def killed(self: Manifest, folder: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Manifest, "write", killed)
    before = (here / "store" / "manifest.json").read_bytes()
    with pytest.raises(KeyboardInterrupt):
        adiabat.upgrade("store")
    assert (here / "store" / "manifest.json").read_bytes() == before
    monkeypatch.setattr(Manifest, "write", write)
    done = adiabat.upgrade("store")
    assert [path.name for path in done.backups] == ["manifest.json.before-upgrade"]
    assert done.backups[0].read_bytes() == before
    Store.open("store").verify()


def test_vectors_are_read_once_and_not_again_when_the_store_is_opened(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    digest_of = provenance.digest_of

    def noted(path: Path, **options: Any) -> Any:
        names.append(path.name)
        return digest_of(path, **options)

    monkeypatch.setattr(provenance, "digest_of", noted)
    for file in (here / "store").iterdir():
        os.utime(file, ns=(time.time_ns() - 10**9,) * 2)
    time.sleep(0.03)
    adiabat.upgrade("store")
    Store.open("store")
    assert names.count("vectors.npy") == 1


@pytest.mark.parametrize("name", ["vectors.npy", "ids.arrow", "texts.arrow", "id_index.npy"])
def test_a_damaged_store_is_not_converted(here: Path, name: str) -> None:
    path = here / "store" / name
    content = bytearray(path.read_bytes())
    content[HEADER_BYTES + 24] ^= 4
    # The Arrow files have a header of their own; ids and texts stand further on.
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
    before = (here / "store" / "manifest.json").read_bytes()
    with pytest.raises(AdiabatError, match="must be undamaged"):
        adiabat.upgrade("store")
    assert (here / "store" / "manifest.json").read_bytes() == before


def test_newer_files_ask_for_an_update(here: Path) -> None:
    adiabat.upgrade(here)
    for path, key in (
        (here / "store" / "manifest.json", "version"),
        (here / "job" / "result.json", "format"),
    ):
        write_json({**read_json(path, remedy=""), key: 9}, path)
    config = here / "job" / "config.toml"
    config.write_text(config.read_text().replace("# format 3", "# format 7"))
    with pytest.raises(DataError, match=r"3 files that cannot be converted: .*\(format 9\)") as caught:
        adiabat.upgrade(here)
    assert str(caught.value).count("update adiabat") == 3
    with pytest.raises(StoreError, match=r"\(format 9\), this is adiabat .*; update adiabat"):
        Store.open("store")


def test_a_dry_run_writes_nothing_and_says_what_is_read_and_written(here: Path, run: Run) -> None:
    before = listing(here)
    said = run("upgrade", ".", "--dry-run")
    assert listing(here) == before
    assert "store: store of format 1: reads" in said.out
    assert "vectors stay as they are" in said.out
    assert "job/config.toml: settings of format 1 to format 3" in said.out
    assert "to convert" in said.out.splitlines()[-1]


def test_former_files_are_kept_unless_they_are_not_wanted(here: Path, run: Run) -> None:
    assert run("upgrade", "job").code == 0
    assert sorted(path.name for path in (here / "job").glob("*.before-upgrade")) == [
        "config.toml.before-upgrade",
        "result.json.before-upgrade",
    ]
    assert run("upgrade", "measured", "--no-backup").code == 0
    assert list((here / "measured").glob("*.before-upgrade")) == []
    assert read_result(here / "measured" / RECORD_FILE).kind == "evaluation"


def test_what_cannot_be_converted_is_named_after_all_else_is_done(here: Path) -> None:
    record = json.loads((here / "measured" / RECORD_FILE).read_text())
    del record["title"]
    (here / "measured" / RECORD_FILE).write_text(json.dumps(record))
    with pytest.raises(DataError, match=r"measured/result\.json cannot be converted \(title must be given"):
        adiabat.upgrade(here)
    assert Store.open("store").count == 24


def test_a_verdict_of_0_1_keeps_its_meaning_and_words_of_users_stay(here: Path) -> None:
    path = here / "measured" / RECORD_FILE
    record = json.loads(path.read_text())
    record["title"] = "no evidence"
    record["datasets"][0]["changes"][0]["verdict"] = "no evidence"
    path.write_text(json.dumps(record))
    adiabat.upgrade(path)
    result = read_result(path)
    assert (result.title, result.datasets[0].changes[0].verdict) == ("no evidence", "undecided")


def test_a_store_without_texts_is_converted_and_takes_more_documents(here: Path) -> None:
    edit(here / "store", "manifest.json", has_texts=False)
    (here / "store" / "texts.arrow").unlink()
    adiabat.upgrade("store")
    (here / "more.jsonl").write_text('{"_id": "new", "text": "a new document"}\n')
    store = adiabat.embed("model", "more.jsonl", "store", append=True)
    assert store.count == 25
    assert np.isfinite(store.gather([24])).all()


def test_what_is_nothing_of_adiabat_is_refused_or_stays(here: Path) -> None:
    with pytest.raises(DataError, match="must be a store, a job, a result"):
        adiabat.upgrade("nothing")
    assert adiabat.upgrade("pairs.jsonl").converted == {}


def test_files_of_other_programs_with_our_names_stay(tmp_path: Path) -> None:
    write(tmp_path, "result.json", {"score": 1})
    write(tmp_path, "manifest.json", {"name": "page"})
    write(tmp_path, "config.toml", "[tool]\nx = 1\n")
    before = listing(tmp_path)
    assert adiabat.upgrade(tmp_path).converted == {}
    assert listing(tmp_path) == before


def test_the_expected_time_of_an_advice_is_no_record_of_a_run(tmp_path: Path) -> None:
    record = make_advice()
    (tmp_path / "result.json").write_text(sealed_json({**record.to_json(), "format": 5}), encoding="utf-8")
    adiabat.upgrade([tmp_path])
    assert read_result(tmp_path / "result.json", Advice).tuning == record.tuning
