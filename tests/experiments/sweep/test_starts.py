"""The starts of a sweep over training runs and the inputs of its runs: what becomes of those that are lost,
or change on the disk.
"""

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adiabat.config.shared import EncoderSection
from adiabat.config.sweeps import TrainSweepSettings
from adiabat.core.errors import ConfigError, DataError, JobError
from adiabat.dual_encoder import train as training
from adiabat.evaluation.score_files import run_folder_name
from adiabat.experiments import train_sweep
from adiabat.experiments.sweep import sweep
from adiabat.experiments.sweep_trials import read_starts, rows_at, write_starts
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.towers import DualEncoder
from adiabat.report import pages
from adiabat.results.sweep_result import SweepResult
from tests.experiments.sweep.training_world import brief, run, settings_in, tiny, write_world
from tests.tiny import tiny_dual


@pytest.fixture
def here(tmp_path: Path) -> Path:
    write_world(tmp_path)
    return tmp_path


def start_file(folder: Path, name: str) -> Path:
    return folder / "out" / "scores" / run_folder_name(name) / "asked.parquet"


def untrained_in(result: SweepResult) -> list[Any]:
    """The untrained model with its scores."""
    return [
        *(model for model in result.models if model.name == "untrained"),
        result.main_score("asked", "untrained"),
    ]


def test_losses_of_other_similarities_have_starts_of_their_own_whichever_run_comes_first(here: Path) -> None:
    losses = [{"kind": "in_batch_softmax", "similarity": name} for name in ("cosine", "dot")]
    data = {"data": str(here / "near.jsonl")}
    variants = [{"name": loss["similarity"], "job": data, "train": {"loss": loss}} for loss in losses]
    assert run(brief(here, variants=variants)).starts == ["cosine, untrained", "dot, untrained"]


def test_a_record_and_scores_of_another_start_are_made_again(here: Path) -> None:
    first = untrained_in(run(brief(here)))
    records, scores = read_starts(here / "out"), start_file(here, "untrained")
    write_starts({"untrained": replace(records["untrained"], parameters=1, key="other")}, here / "out")
    assert untrained_in(run(brief(here), resume=True)) == first
    assert read_starts(here / "out") == records
    scores.write_bytes(start_file(here, "near, seed=0").read_bytes())
    assert untrained_in(run(brief(here), resume=True)) == first
    scores.unlink()
    assert untrained_in(run(brief(here), resume=True)) == first


def test_the_other_settings_are_compared_where_scores_of_one_run_are_lost_and_it_is_said_everywhere(
    here: Path,
) -> None:
    """Missing or damaged; the setting keeps its row in the other tables."""
    data = {"data": str(here / "near.jsonl")}
    variants = [
        {"name": f"decay {decay}", "job": data, "train": {"weight_decay": decay}} for decay in (0.1, 0.2, 0.3)
    ]
    whole = run(brief(here, variants=variants))
    lost = start_file(here, "decay 0.2, seed=0")
    assert lost.exists()
    for content in (None, b"damaged"):
        lost.unlink()
        if content is not None:
            lost.write_bytes(content)
        result = run(brief(here, variants=variants), resume=True)
        assert settings_in(result) == ["decay 0.1", "decay 0.3"]
        assert result.variation == whole.variation
        assert "failed" not in " ".join(result.notes)
        for said in (
            " ".join(result.notes),
            pages.summary(result),
            (here / "out" / "report.html").read_text(encoding="utf-8"),
        ):
            assert (
                f"comparison of settings lacks decay 0.2, seed=0, whose scores {lost} are missing or damaged"
                in said
            )
        lost.write_bytes(b"")


# --- Inputs that change on the disk ---


def change_rows(folder: Path) -> None:
    rows = (folder / "near.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "near.jsonl").write_text("".join(rows[:-1]), encoding="utf-8")


def test_inputs_that_change_between_two_runs_of_a_case_are_noticed(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed_after(load: Any, own: Any, **more: Any) -> Any:
        result = training.train(load, own, **more)
        change_rows(here)
        return result

    monkeypatch.setattr(train_sweep, "train", changed_after)
    with pytest.raises(ConfigError, match=r"digests.examples must match the inputs, but the pairs differ"):
        run(brief(here, variants=variants_at(here / "near.jsonl"), sweep={"seeds": [0, 1]}))
    assert [row.seed for row in rows_at(here / "out" / "runs.parquet").every] == [0]


def test_every_model_that_runs_are_built_from_is_compared_when_a_sweep_is_resumed(here: Path) -> None:
    """Two variants of one model with other encoders, one of them with a document tower and a projection of
    its own.
    """
    seeds = {"tiny": 0, "other": 1}
    start = here / "projection.npy"
    np.save(start, np.eye(16, dtype=np.float32))
    towers = {"kind": "shared_projection", "document_model": "other", "projection_start": str(start)}
    near = {"job": {"data": str(here / "near.jsonl")}}
    variants = [
        {"name": "short", "encoder": {"max_tokens": 20}, **near},
        {"name": "long", "towers": towers, **near},
    ]

    def load(name: str, section: EncoderSection) -> DualEncoder:
        if name not in seeds:
            return tiny(name, section)
        settings = EncoderSettings(max_tokens=section.max_tokens or 48)
        return tiny_dual(width=16, seed=seeds[name], settings=settings)

    def resumed() -> SweepResult:
        return sweep(load, brief(here, variants=variants, sweep={"seeds": [0]}), resume=True)

    resumed()
    models = tomllib.loads((here / "out" / "config.toml").read_text(encoding="utf-8"))["start"]["models"]
    assert len(set(models.values())) == 2
    for name in seeds:
        seeds[name] += 5
        with pytest.raises(JobError, match=r"start.models.\w+ was"):
            resumed()
        seeds[name] -= 5
    np.save(start, 2 * np.eye(16, dtype=np.float32))
    with pytest.raises(JobError, match=r"start.models.\w+ was"):
        resumed()


def test_files_may_lie_elsewhere_and_others_are_refused_by_their_content(here: Path) -> None:
    def mixed(folder: Path) -> TrainSweepSettings:
        far = {"path": str(folder / "far.jsonl"), "columns": {"query": "question", "positive": "answer"}}
        variant = {
            "name": "both",
            "data": {"sources": [{"path": str(folder / "near.jsonl")}, far]},
            "mixture": {"rule": "equal"},
        }
        return brief(here, variants=[variant])

    first = run(mixed(here))
    moved = here / "moved"
    moved.mkdir()
    for name in ("near.jsonl", "far.jsonl"):
        (moved / name).write_bytes((here / name).read_bytes())
        (here / name).unlink()
    assert run(mixed(moved), resume=True).runs == first.runs
    change_rows(moved)
    with pytest.raises(JobError, match=r"start.examples.\w+ was"):
        run(mixed(moved), resume=True)


def variants_at(path: Path) -> list[dict[str, Any]]:
    return [{"name": "near", "job": {"data": str(path)}}]


@pytest.mark.parametrize("varied", [False, True])
def test_moved_data_are_resumed_and_other_data_are_refused(varied: bool, here: Path) -> None:
    def at(path: Path) -> Any:
        return (
            brief(here, variants=variants_at(path))
            if varied
            else brief(here, variants=[], job={"data": str(path)})
        )

    run(at(here / "near.jsonl"))
    rows = (here / "out" / "runs.parquet").read_bytes()
    moved = (here / "near.jsonl").rename(here / "moved.jsonl")
    run(at(moved), resume=True)
    assert (here / "out" / "runs.parquet").read_bytes() == rows
    whole = moved.read_text(encoding="utf-8").splitlines(keepends=True)
    (here / "other.jsonl").write_text("".join(whole[:-1]), encoding="utf-8")
    with pytest.raises(JobError, match=r"start.examples.\w+ was"):
        run(at(here / "other.jsonl"), resume=True)
    assert len(rows_at(here / "out" / "runs.parquet").every) == 1


def test_data_are_checked_against_every_run_before_the_first(here: Path) -> None:
    near = variants_at(here / "near.jsonl")
    with pytest.raises(DataError, match="^listed: .*negative if train.loss is triplet"):
        run(brief(here, variants=[*near, {**near[0], "name": "listed", "train": {"loss": "triplet"}}]))
    assert not (here / "out").exists()
