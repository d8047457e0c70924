"""The starts of a sweep over training runs: their records and scores, and what becomes of those that are lost or of another start."""

from dataclasses import replace
from pathlib import Path

import pytest

from adiabat.evaluation.score_files import run_folder_name
from adiabat.experiments.sweep_trials import read_starts, write_starts
from tests.experiments.sweep.training_world import brief, ranking_of, run, write_world


@pytest.fixture
def here(tmp_path: Path) -> Path:
    write_world(tmp_path)
    return tmp_path


def start_file(folder: Path, name: str) -> Path:
    return folder / "out" / "scores" / run_folder_name(name) / "asked.parquet"


def test_losses_of_other_similarities_have_starts_of_their_own_whichever_run_comes_first(here: Path) -> None:
    losses = [{"kind": "in_batch_softmax", "similarity": name} for name in ("cosine", "dot")]
    data = {"data": str(here / "near.jsonl")}
    variants = [{"name": loss["similarity"], "job": data, "train": {"loss": loss}} for loss in losses]
    starts = ranking_of(run(brief(here, variants=variants))).starts
    assert [one.case for one in starts] == ["cosine", "dot"]


def test_a_record_and_scores_of_another_start_are_made_again(here: Path) -> None:
    first = ranking_of(run(brief(here))).starts
    records, scores = read_starts(here / "out"), start_file(here, "untrained")
    write_starts({"untrained": replace(records["untrained"], parameters=1, key="other")}, here / "out")
    assert ranking_of(run(brief(here), resume=True)).starts == first
    assert read_starts(here / "out") == records
    scores.write_bytes(start_file(here, "near, seed=0").read_bytes())
    assert ranking_of(run(brief(here), resume=True)).starts == first
    scores.unlink()
    assert ranking_of(run(brief(here), resume=True)).starts == first


def test_a_lost_file_of_scores_is_named_where_it_prevents_the_ranking(here: Path) -> None:
    run(brief(here))
    start_file(here, "near, seed=0").unlink()
    result = run(brief(here), resume=True)
    assert result.ranking is None
    assert any(str(start_file(here, "near, seed=0")) in note for note in result.notes)
