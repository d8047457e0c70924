"""The evidence before a tuning job: told, obeyed, overruled, and asked once."""

from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from safetensors.torch import load_file

import adiabat
from adiabat.core.progress import SILENT
from adiabat.experiments import evidence as module
from adiabat.experiments.advice import advise_on
from adiabat.experiments.evidence import Evidence, evidence_for
from adiabat.report.training_page import training_sentence
from adiabat.results.advice_result import TUNING, Advice, Choice
from adiabat.results.evaluation_result import Result
from adiabat.results.record import read_result
from adiabat.results.training_record import TrainingRecord
from adiabat.store.addressing import joined
from tests.adiabatic.problem import Problem, addressed, settings_of, write_problem
from tests.commands import PAIRS, Run, assert_refused, lines, other_pairs, write_world
from tests.commands import here as here
from tests.commands import run as run
from tests.pages import no_page as no_page

SHORT = "--set tune.batches_per_epoch=2 --set tune.max_epochs=2"
QUICK = (
    f"tune model store many.jsonl --out new --recipe quick {SHORT} "
    "--set tune.learning_rate=1e-3 --set guard=false --set rehearsal=false"
)


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    return write_problem(tmp_path_factory.mktemp("problem"), queries=60)


@pytest.fixture
def world(tmp_path: Path) -> Path:
    write_world(tmp_path)
    lines(tmp_path / "many.jsonl", [*PAIRS, *other_pairs("another"), *other_pairs("a third")])
    return tmp_path


def says(monkeypatch: pytest.MonkeyPatch, choice: Choice) -> list[int]:
    """Let all evidence come to a choice; the list has the number of queries of each measurement."""
    measured: list[int] = []

    def advise(*given: object, **options: object) -> Advice:
        advice = advise_on(*given, **options)  # type: ignore[arg-type]
        measured.append(advice.target.queries)
        return replace(advice, choice=choice)

    monkeypatch.setattr(module, "advise_on", advise)
    return measured


def trained(here: Path) -> TrainingRecord:
    """The record of the job in ``new``."""
    record = read_result(here / "new" / "result.json", Result).training
    assert record is not None
    return record


def test_two_sets_of_one_store_are_joined_in_their_order() -> None:
    first, second = addressed([[0], [1, 2]], name="a"), addressed([[3]], [[4]], name="b", answers=[[3, 5]])
    both = joined(first, second)
    assert both.name == "a"
    assert both.queries == [*first.queries, *second.queries]
    assert [rows.tolist() for rows in both.positives] == [[0], [1, 2], [3]]
    assert [rows.tolist() for rows in both.negatives] == [[], [], [4]]
    assert [rows.tolist() for rows in both.known] == [[0], [1, 2], [3, 5]]
    assert joined(first, first).answers is None


def test_the_evidence_is_the_advice_on_training_and_validation_queries(
    problem: Problem, tmp_path: Path
) -> None:
    context, settings = problem.context(), settings_of()
    found = evidence_for(context, tmp_path, settings, SILENT).advice
    assert found is not None
    _, validation = context.examples(settings.data)
    assert (found.target.queries, found.target.measured) == (60, 60)
    assert len(validation) > 0
    asked = adiabat.advise(problem.model, problem.store, problem.data)
    # The same queries in another order: the clusters draw other signs.
    assert found.target.untuned.after == pytest.approx(asked.target.untuned.after, rel=1e-12)
    assert found.target.bm25 is not None
    assert asked.target.bm25 is not None
    assert found.target.bm25.difference == pytest.approx(asked.target.bm25.difference, rel=1e-12)
    assert list(tmp_path.iterdir()) == []


def test_a_large_store_goes_without_bm25(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_DOCUMENTS", 49)
    found = evidence_for(problem.context(), tmp_path, settings_of(), SILENT).advice
    assert found is not None
    assert list(found.target.changes) == ["untuned", "linear map"]
    assert any("BM25" in note and "adiabat advise" in note for note in found.notes)


def test_too_few_queries_are_no_evidence(tmp_path: Path) -> None:
    few = write_problem(tmp_path, queries=9)
    found = evidence_for(few.context(), tmp_path / "job", settings_of(), SILENT)
    assert found.advice is None
    assert not found.says_tune
    assert "at least 10 queries" in found.reason
    assert found.promise() == ""


@pytest.mark.parametrize("choice", get_args(Choice))
def test_choices_of_the_advice_to_tune_or_to_try(problem: Problem, tmp_path: Path, choice: Choice) -> None:
    advice = evidence_for(problem.context(), tmp_path, settings_of(), SILENT).advice
    assert advice is not None
    found = Evidence(replace(advice, choice=choice))
    assert found.says_try == (choice == "fuse with BM25")
    assert found.says_tune == (choice in TUNING or found.says_try)
    assert (choice in TUNING) == ("tune" in choice)
    mapped = advice.target.mapped
    assert mapped is not None
    assert f"{mapped.improvement:+.1f} %".replace("-", "\N{MINUS SIGN}") in found.promise()


@pytest.mark.usefixtures("no_page")
def test_the_first_epoch_tries_where_fusion_gains(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says(monkeypatch, "fuse with BM25")
    # Without an improvement the job ends there; a change of mind goes on.
    still = "--set tune.learning_rate=1e-30"
    said = run(f"{QUICK} {still}")
    assert said.code == 0, said.err
    assert "the first epoch is a trial" in said.err
    record = trained(here)
    assert (record.steps, record.best_epoch) == (2, 0)
    assert record.stop_reason.startswith("the first epoch was a trial, and no better than the start")
    assert run(f"{QUICK} {still} --resume").code == 0
    assert trained(here).steps == 2
    assert run(f"{QUICK} {still} --resume --anyway").code == 0
    assert trained(here).steps == 4


@pytest.mark.usefixtures("no_page")
def test_a_job_keeps_its_start_where_its_evidence_says_so_and_asks_once(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = says(monkeypatch, "leave it")
    said = run(QUICK)
    assert said.code == 0, said.err
    assert "evidence: leave it" in said.err
    assert "--anyway" in said.err
    # A time is told where it is taken.
    assert "expected time" not in said.err
    record = trained(here)
    assert (record.steps, record.best_epoch) == (0, 0)
    assert "leave it" in record.stop_reason
    assert not any("learning rate" in note for note in record.notes)
    assert record.stop_reason in training_sentence(record)
    start = load_file(here / "model" / "model.safetensors")
    (path,) = (here / "new").glob("model/query_0_Transformer/model.safetensors")
    kept = load_file(path)
    assert all(np.array_equal(kept[name], start[name]) for name in kept)
    assert read_result(here / "new" / "evidence" / "result.json", Advice).choice == "leave it"
    assert not (here / "new" / "rate-search").exists()
    assert run(f"{QUICK} --resume").code == 0
    assert measured == [60]
    # A change of mind goes on from there.
    said = run(f"{QUICK} --resume --anyway")
    assert said.code == 0, said.err
    assert "evidence: leave it" in said.err
    record = trained(here)
    assert record.steps == 4
    assert measured == [60]


def test_a_job_that_is_refused_measures_no_evidence(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = says(monkeypatch, "leave it")
    assert_refused(run(f'{QUICK} --set tune.freeze=["embeddings","blocks[0:9]"]'), "freeze must")
    assert measured == []
    assert not (here / "new").exists()


@pytest.mark.usefixtures("no_page")
def test_a_job_takes_its_steps_where_its_evidence_says_tune(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = says(monkeypatch, "tune the query tower")
    said = run(QUICK)
    assert said.code == 0, said.err
    assert "expect about" in said.err
    assert "were expected" in said.err
    record = trained(here)
    assert record.steps == 4
    promised = read_result(here / "new" / "evidence" / "result.json", Advice).target.mapped
    assert promised is not None
    assert record.expected == (promised.improvement, *promised.improvement_interval)
    assert measured == [60]
    # The paper's regime measures nothing.
    assert run(f"tune model store many.jsonl --out other --recipe paper {SHORT}").code == 0
    assert measured == [60]
    assert not (here / "other" / "evidence").exists()


@pytest.mark.usefixtures("no_page")
def test_the_half_of_a_retention_set_that_chose_is_in_no_verdict(run: Run, here: Path) -> None:
    # Forty questions, each on documents that few others ask for.
    lines(here / "kept.jsonl", [*other_pairs("a fourth"), *other_pairs("a fifth")])
    said = run(f"{QUICK} --anyway --retain store kept.jsonl")
    assert said.code == 0, said.err
    candidates = trained(here).candidates
    assert {len(each.figures) for each in candidates} == {2}
    chose = candidates[0].figures[1].queries
    assert run("evaluate new store kept.jsonl --baseline model --out found").code == 0
    found = read_result(here / "found" / "result.json", Result).datasets[0]
    assert found.left_out == chose == 20
