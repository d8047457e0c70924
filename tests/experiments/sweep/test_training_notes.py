"""Notes of sweeps over training runs: their cases, and how equal their runs are."""

from pathlib import Path
from typing import Any

import pytest

from adiabat.experiments.train_sweep import TrainSweepRunner
from adiabat.report import pages
from adiabat.report.sweep_headline import reservations
from tests.experiments.sweep.training_world import brief, run, write_world
from tests.pages import EVERY, without_pages


@pytest.fixture(autouse=True, scope="module")
def _quick() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        without_pages(patch, EVERY)
        yield


@pytest.fixture
def here(tmp_path: Path) -> Path:
    write_world(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("train", "named"),
    [
        ({"steps": 2}, "train.steps"),
        ({"steps": 2, "batch_size": 4}, "train.steps and train.batch_size"),
        ({"weight_decay": 0.3}, None),
    ],
)
def test_a_comparison_of_runs_of_unequal_length_says_so(
    here: Path, train: dict[str, Any], named: str | None
) -> None:
    variants = [
        {"name": name, "job": {"data": str(here / "near.jsonl")}, "train": own}
        for name, own in (("one", {}), ("two", train))
    ]
    result = run(brief(here, variants=variants))
    expected = [] if named is None else [f"runs differ in {named}, so recipes of unequal cost are compared"]
    assert [note for note in result.notes if "unequal cost" in note] == expected
    assert [note for note in reservations(result) if "unequal cost" in note] == expected
    assert [note for note in pages.notes(result) if "unequal cost" in note] == expected


def test_notes_of_runs_name_their_case_and_are_told_once_for_all_its_seeds(here: Path) -> None:
    notes: list[str] = []
    run(brief(here, sweep={"seeds": [0, 1]}), notes=notes)
    for case, queries in (("near", 6), ("far", 8)):
        assert [note for note in notes if note.startswith(f"{case}: validating on ")] == [
            f"{case}: validating on {queries} queries"
        ]
        assert len([note for note in notes if note.startswith(f"{case}: training ")]) == 1
    assert not [note for note in notes if note.startswith(("training ", "validating "))]


@pytest.mark.parametrize(
    ("tables", "why"),
    [
        ({"variants": [], "job": {"model": "tiny", "data": "near.jsonl"}}, None),
        (
            {"grid": {"train.weight_decay": [number / 100 for number in range(21)]}},
            "only up to 40 settings are compared",
        ),
        ({}, None),
    ],
)
def test_a_sweep_of_too_many_settings_to_compare_says_so_before_data_are_read(
    here: Path, monkeypatch: pytest.MonkeyPatch, tables: dict[str, Any], why: str | None
) -> None:
    monkeypatch.chdir(here)
    monkeypatch.setattr(TrainSweepRunner, "tasks", property(lambda _: pytest.fail("data were read")))
    notes: list[str] = []
    with pytest.raises(pytest.fail.Exception):
        run(brief(here, **tables), notes=notes)
    told = [note for note in notes if "compared" in note]
    assert len(told) == (why is not None)
    assert all(note.startswith(str(why)) and note.endswith("got 42") for note in told)
