"""Whole sweeps: what they leave, what they share, and how they go on."""

import shutil
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adiabat.adiabatic.tune import TuningRun
from adiabat.config.sweeps import TuneSweepSettings
from adiabat.core.errors import AdiabatError, ConfigError, DataError, InterruptionError, JobError
from adiabat.data.records import Document
from adiabat.experiments import sweep as sweep_module
from adiabat.experiments import sweep_trials as runner_module
from adiabat.experiments import trials as trials_module
from adiabat.experiments.sweep_trials import rows_at
from adiabat.models.encoder import Encoder
from adiabat.results.record import read_result
from adiabat.results.sweep_result import SweepResult, SweepRun
from adiabat.runs.run_config import Job, is_described, is_job, read_description
from adiabat.store.build import build_store
from tests.adiabatic.problem import WIDTH
from tests.commands import lines
from tests.experiments.sweep.world import DOCUMENTS, LANGUAGES, run, settings_of, write_world
from tests.runs.before import forget
from tests.tiny import tiny_dual

NAMES = ["learning_rate=0.0001, seed=0", "learning_rate=0.003, seed=0"]
FOLDERS = ["learning_rate-0.0001-seed-0", "learning_rate-0.003-seed-0"]

Done = tuple[Path, SweepResult, list[str]]


@pytest.fixture(autouse=True)
def _no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of sweeps have tests of their own; one is made by `done`."""
    monkeypatch.setattr(sweep_module, "write_report", lambda result, folder: None)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """A sweep of two rates."""
    folder = tmp_path_factory.mktemp("done")
    write_world(folder)
    notes: list[str] = []
    return folder, run(settings_of(folder), notes=notes), notes


@pytest.fixture
def again(done: Done, tmp_path: Path) -> Path:
    """A copy of what that sweep left, to go on with."""
    return Path(shutil.copytree(done[0] / "out", tmp_path / "again"))


def resume(done: Done, again: Path, **tables: Any) -> SweepResult:
    """Go on with the copy, under these further tables."""
    tables["sweep"] = {"out": str(again), **tables.get("sweep", {})}
    return run(settings_of(done[0], **tables), resume=True)


def test_a_sweep_leaves_its_page_tables_and_figures(done: Done) -> None:
    left = {path.name for path in (done[0] / "out").iterdir()}
    assert {"report.html", "result.json", "figures", "runs.parquet", "config.toml"} <= left
    assert {"table.csv", "table.md", "table.tex"} <= left
    assert read_result(done[0] / "out" / "result.json", SweepResult) == done[1]


def test_every_run_is_a_job_of_its_own_and_leaves_a_row(done: Done) -> None:
    folder, result, _ = done
    assert [one.name for one in result.runs] == NAMES
    assert rows_at(folder / "out" / "runs.parquet").every == result.runs
    for name, rate in zip(FOLDERS, (1e-4, 3e-3), strict=True):
        job = Job(folder / "out" / "runs" / name)
        assert is_job(job.folder)
        assert tomllib.loads(job.config.read_text())["tune"]["learning_rate"] == rate
        assert not job.checkpoints.exists()
        assert not job.model.exists()


def test_a_row_has_what_the_run_did_and_what_every_task_says_of_it(done: Done) -> None:
    folder, result, _ = done
    for one, name in zip(result.runs, FOLDERS, strict=True):
        training = read_result(folder / "out" / "runs" / name / "result.json").training
        assert training is not None
        assert (one.status, one.steps, one.epochs, one.reason) == ("done", 8, 2, training.stop_reason)
        assert (one.validation_errors, one.layers) == (training.validation_errors, training.layers)
        assert [task.task for task in one.tasks] == ["test", "grid"]
        assert one.tasks[0].main.measure == "nDCG@10"
        assert one.tasks[0].main.before == result.runs[0].tasks[0].main.before
        assert (one.tasks[1].languages, len(one.tasks[1].grids[0].after)) == (["de", "en"], 2)
        assert one.drift is not None
        assert one.drift.probes == 25
    slow, fast = (one.drift for one in result.runs)
    assert slow is not None
    assert fast is not None
    assert slow.means["turn"] < fast.means["turn"]


def test_what_runs_share_is_made_once(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[str] = []
    real = Encoder.encode

    def encode(self: Encoder, texts: Any, *, side: str, **named: Any) -> Any:
        encoded.extend(text for text in texts if side == "document")
        return real(self, texts, side=side, **named)

    monkeypatch.setattr(Encoder, "encode", encode)
    run(settings_of(world))
    # The documents of the corpus and of the grid, for the untuned document tower; never again for a tuned
    # query tower. Of hypotheses there are eleven in each language, and equal texts are embedded once.
    assert len(encoded) == DOCUMENTS + len(LANGUAGES) * 11


def test_a_sweep_of_one_run_is_that_job_and_its_evaluation(world: Path, done: Done) -> None:
    result = run(settings_of(world, grid={"tune": {"learning_rate": [3e-3]}}))
    assert untimed(result.runs[0]) == untimed(done[1].runs[1])


def untimed(run: SweepRun) -> SweepRun:
    """Without what the clock says."""
    return replace(run, seconds=0.0, step_seconds=None)


def test_a_sweep_that_was_cut_short_goes_on_where_it_was(
    world: Path, done: Done, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = TuningRun.carry_out, []

    def interrupted(begun: TuningRun, **named: Any) -> Any:
        calls.append(begun.loop.learning_rate)
        if len(calls) == 2:
            raise InterruptionError("stopped")
        return real(begun, **named)

    monkeypatch.setattr(TuningRun, "carry_out", interrupted)
    with pytest.raises(InterruptionError):
        run(settings_of(world))
    assert [one.name for one in rows_at(world / "out" / "runs.parquet").every] == NAMES[:1]
    with pytest.raises(JobError, match="holds a sweep already; continue it with resume=True"):
        run(settings_of(world))
    found = run(settings_of(world), resume=True)
    assert calls == [1e-4, 3e-3, 3e-3]
    assert [untimed(one) for one in found.runs] == [untimed(one) for one in done[1].runs]


def test_a_run_that_was_tuned_and_not_measured_is_not_tuned_again(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(world, grid={"tune": {"learning_rate": [3e-3]}})
    with monkeypatch.context() as patch:
        patch.setattr(runner_module.SweepRunner, "measured", _stop)
        with pytest.raises(InterruptionError):
            run(settings)
    monkeypatch.setattr(TuningRun, "carry_out", _stop)
    assert run(settings, resume=True).runs[0].status == "done"


def _stop(*_: Any, **__: Any) -> Any:
    raise InterruptionError("stopped")


def test_values_and_seeds_may_be_added_later(done: Done, again: Path) -> None:
    grid = {"tune": {"learning_rate": [1e-4, 1e-3, 3e-3]}}
    second = resume(done, again, grid=grid, sweep={"seeds": [0, 1]})
    assert len(second.runs) == 6
    assert [one for one in second.runs if one.name in NAMES] == done[1].runs


RATES_ALONE = {"name": "rate alone", "grid": {"tune": {"learning_rate": [1e-4, 3e-3]}}}


def held(world: Path, **more: Any) -> dict[str, Any]:
    """A rehearsal, and a limit that the result is taken back to."""
    guard = {"action": "soften", "depth": 10, "probes": str(world / "probes.txt")}
    own = {"rehearsal": rehearsal(world), "guard": guard, "tune": {"learning_rate": 3e-3}}
    return {"name": "held", **own, "grid": {"guard": {"limit": [0.01, 0.02]}}, **more}


def rehearsal(world: Path, words: str = "another text") -> dict[str, str]:
    """Rehearsed texts that are no probes."""
    lines(world / "others.jsonl", [{"text": f"{words} of {number} words"} for number in range(25)])
    return {"texts": str(world / "others.jsonl")}


def test_variants_with_grids_of_their_own_may_be_added_later(world: Path) -> None:
    first = run(settings_of(world, grid={"tune": {}}, variants=[RATES_ALONE]))
    assert [one.varied for one in first.runs] == [{"tune.learning_rate": 1e-4}, {"tune.learning_rate": 3e-3}]
    second = run(settings_of(world, grid={"tune": {}}, variants=[RATES_ALONE, held(world)]), resume=True)
    assert [one.varied for one in second.runs] == [
        {"tune.learning_rate": 1e-4, "guard.limit": None},
        {"tune.learning_rate": 3e-3, "guard.limit": None},
        {"tune.learning_rate": 3e-3, "guard.limit": 0.01},
        {"tune.learning_rate": 3e-3, "guard.limit": 0.02},
    ]
    assert rows_at(world / "out" / "runs.parquet").every == second.runs
    former = [replace(one, varied={}) for one in first.runs]
    assert [replace(one, varied={}) for one in second.runs[:2]] == former
    assert all("; softened: " in one.reason for one in second.runs[2:])
    # More values of its grid are other runs.
    wider = held(world, grid={"guard": {"limit": [0.01, 0.02, 0.03]}})
    third = run(settings_of(world, grid={"tune": {}}, variants=[RATES_ALONE, wider]), resume=True)
    assert third.runs[:4] == second.runs


def test_a_variant_that_rehearsed_is_not_resumed_as_one_that_does_not(world: Path) -> None:
    common = {"rehearsal": rehearsal(world), "grid": {"tune": {"learning_rate": [1e-3]}}}

    def settings(first: Any, **second: Any) -> TuneSweepSettings:
        variants = [{"name": "a", "rehearsal": first}, {"name": "b", **second}]
        return settings_of(world, **common, variants=variants)

    run(settings({}, rehearsal=False))
    run(settings(True, rehearsal=None), resume=True)
    with pytest.raises(JobError, match=r"variants\.b\.rehearsal was False, is 'not set'"):
        run(settings(True), resume=True)


def test_a_sweep_goes_on_with_the_same_rehearsed_texts_and_probes_of_a_guard_alone(world: Path) -> None:
    variant = held(world, grid={"guard": {"limit": [0.01]}})
    settings = settings_of(world, grid={"tune": {}}, variants=[variant])
    run(settings)
    rehearsal(world, "yet another text")
    with pytest.raises(JobError, match=r"a difference: start\.rehearsed\."):
        run(settings, resume=True)


@pytest.mark.parametrize(
    ("tables", "facts"),
    [
        ({"rehearsal": {"texts": "probes.txt"}}, ["rehearsal.texts must differ from the probes"]),
        ({"rehearsal": {"texts": "none.txt"}}, ["none.txt must exist"]),
        ({"guard": {"probes": "none.txt"}}, ["none.txt must exist"]),
        ({"tune": {"method": {"kind": "lora", "rank": 1000}}}, ["rank must be <= "]),
        ({"measure": {"report": ["nope@x"]}}, ["measure.report", "'nope@x'"]),
        ({"sweep": {"targets": ["tset"]}}, ["sweep.targets", "got tset", "test, grid"]),
        (
            {"grid": {"tune": {"freeze": [["embeddings"], ["embedings"], ["blocks[7]"]]}}},
            ['"embedings"', '"blocks[7]"'],
        ),
    ],
)
def test_wrong_settings_are_told_before_anything_is_written(
    world: Path, tables: dict[str, Any], facts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the variants' own tables, too."""
    monkeypatch.chdir(world)
    if not tables.keys() & {"measure", "sweep", "grid"}:
        tables = {"variants": [{"name": "plain"}, {"name": "wrong", **tables}]}
    with pytest.raises(AdiabatError) as caught:
        run(settings_of(world, **tables))
    assert [fact for fact in facts if fact not in str(caught.value)] == [], caught.value
    assert not (world / "out").exists()


def test_probes_are_looked_for_in_a_store_of_the_model_and_always_in_the_same(
    world: Path, again: Path
) -> None:
    stranger, documents = tiny_dual(width=WIDTH, seed=7).document, [Document("d0", "a paper")]
    build_store(stranger, lambda: iter(documents), world / "stranger", source="corpus", encoder_name="other")
    for place, told in (("none", "none must be a store"), ("stranger", "was built by another encoder")):
        with pytest.raises(AdiabatError, match=told):
            run(settings_of(world, probes={"store": str(world / place)}))
        assert not (world / "out").exists()
    settings = settings_of(world, probes={"store": str(world / "store")}, sweep={"out": str(again)})
    with pytest.raises(JobError, match=r"probes.store was 'not set', is '[0-9a-f]{64}'"):
        run(settings, resume=True)


def test_a_sweep_that_has_made_nothing_may_go_on_as_another(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(runner_module.SweepRunner, "prepare", _stop)
        with pytest.raises(InterruptionError):
            run(settings_of(world))
    found = run(settings_of(world, measure={"report": ["P@1"]}, tune={"loss": {"margin": 0.2}}), resume=True)
    assert [one.tasks[0].main.measure for one in found.runs] == ["P@1", "P@1"]
    assert read_description(Job(world / "out"))["common"]["tune"]["loss"]["margin"] == 0.2


def test_a_row_of_other_settings_is_not_taken_for_a_run_of_its_name(done: Done, again: Path) -> None:
    rows = rows_at(again / "runs.parquet")
    rows.add(replace(rows[NAMES[0]], varied={"tune.learning_rate": 2e-4}))
    with pytest.raises(JobError, match=rf"{NAMES[0]} must be of tune.learning_rate = 0.0001, got 0.0002"):
        resume(done, again)


def test_what_a_process_left_half_removed_that_was_killed_is_removed_by_the_next_one(
    done: Done, again: Path
) -> None:
    job = Job(again / "runs" / FOLDERS[0])
    for folder in (job.checkpoints, job.model):
        folder.mkdir()
        (folder / "half").write_text("left")
    resume(done, again)
    assert not job.checkpoints.exists()
    assert not job.model.exists()


@pytest.mark.parametrize("text", ["", "{", "[1]", "{}", '{"overlap loss": "much"}', '{"overlap loss": 0.1}'])
def test_noise_that_is_not_whole_is_measured_again(done: Done, again: Path, text: str) -> None:
    (again / "readings" / "noise.json").write_text(text)
    assert resume(done, again).noise == done[1].noise


@pytest.mark.parametrize(
    "text", ["sweep = 5", "[sweep]\n[start]\nexamples = 5", "[sweep]\n[variants]\na = 5\n[tasks]\ntest = 1"]
)
def test_a_description_of_another_shape_is_told(done: Done, again: Path, text: str) -> None:
    (again / "config.toml").write_text(text)
    with pytest.raises(JobError, match="config.toml must describe a sweep, got other tables"):
        resume(done, again)


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({"tune": {"loss": {"margin": 0.2}}}, "common.tune.loss.margin was 0.3, is 0.2"),
        ({"probes": {"depth": 5}}, "probes.depth was 10, is 5"),
        ({"measure": {"resamples": 200}}, "measure.resamples was 100, is 200"),
    ],
)
def test_another_sweep_is_not_gone_on_with(done: Done, tables: dict[str, Any], told: str) -> None:
    with pytest.raises(JobError, match=told):
        run(settings_of(done[0], **tables), resume=True)


def test_a_sweep_of_before_settings_existed_goes_on_with_their_defaults_alone(
    done: Done, again: Path
) -> None:
    job = Job(again)
    whole = read_description(job)
    forget(job, "common.tune.negatives.difficulty", "measure.depth")
    assert resume(done, again).runs == done[1].runs
    assert read_description(job) == whole
    forget(job, "common.tune.loss.margin", "common.tune.negatives.difficulty")
    with pytest.raises(JobError, match="a difference: common.tune.loss.margin was 'not set', is 0.3"):
        resume(done, again)


def test_a_run_that_diverges_is_kept_with_its_reason_and_the_others_go_on(world: Path) -> None:
    notes: list[str] = []
    settings = settings_of(world, grid={"tune": {"learning_rate": [1e30, 3e-3]}})
    found = run(settings, notes=notes)
    assert [one.status for one in found.runs] == ["failed", "done"]
    assert "must be a finite number" in found.runs[0].reason
    # The folder of its checkpoints is gone.
    assert str(world) not in found.runs[0].reason
    assert found.runs[0].tasks == []
    assert any("failed: the " in note for note in notes)
    assert [one.status for one in run(settings, resume=True).runs] == ["failed", "done"]


def test_without_probes_there_is_no_drift_and_models_stay_where_they_are_to_be_kept(world: Path) -> None:
    grid = {"tune": {"learning_rate": [3e-3]}}
    found = run(settings_of(world, probes=False, sweep={"keep_models": True}, grid=grid))
    assert found.runs[0].drift is None
    assert Job(world / "out" / "runs" / FOLDERS[1]).model.is_dir()


def test_readings_of_the_probes_are_kept(done: Done) -> None:
    for name in ("untuned", *FOLDERS):
        kept = np.load(done[0] / "out" / "readings" / f"{name}.npz")
        assert kept["rows"].shape == kept["scores"].shape == (25, 10)


def test_the_first_task_is_the_target_where_none_is_named(done: Done) -> None:
    assert done[1].targets == ["test"]


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({"tasks": []}, "tasks must be given, got none"),
        ({"job": {"store": None}}, "job.store must be given, got none"),
        ({"sweep": {"out": None}}, "sweep.out must be given, got none"),
    ],
)
def test_what_can_be_seen_without_data_is_told_first(
    world: Path, tables: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials_module, "load_tasks", _stop)
    with pytest.raises(ConfigError, match=told):
        run(settings_of(world, **tables))
    assert not (world / "out").exists()


def test_faulty_data_are_told_before_the_model_is_loaded_and_leave_nothing(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (world / "triplets.jsonl").write_text('{"query": "a", "pos": ["nowhere"]}\n', encoding="utf-8")
    monkeypatch.setattr("tests.experiments.sweep.world.load", _stop)
    with pytest.raises(DataError, match="nowhere"):
        run(settings_of(world))
    assert not (world / "out").exists()


def test_a_directory_of_something_else_is_not_taken(world: Path) -> None:
    (world / "out").mkdir()
    (world / "out" / "mine.txt").write_text("mine")
    with pytest.raises(JobError, match="must be a new or empty directory"):
        run(settings_of(world))
    assert not is_described(world / "out", "sweep")


def test_settings_that_change_no_number_may_differ(done: Done) -> None:
    settings = settings_of(done[0], run={"log_every": 1}, sweep={"name": "another"})
    assert run(settings, resume=True).title.startswith("another: ")
