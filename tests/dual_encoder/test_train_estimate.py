"""What a training run will take: counted by hand, and nothing written."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import read_settings
from adiabat.core.progress import SILENT, Watch
from adiabat.data.records import SIDES
from adiabat.dual_encoder import train_record
from adiabat.dual_encoder.train import estimate
from adiabat.dual_encoder.train_record import Estimate, counts_of, notes_of
from adiabat.scaling_laws.flops import training_flops
from adiabat.training.flop_count import passed_parameters
from tests.commands import listing
from tests.dual_encoder.problem import (
    Problem,
    from_memory,
    job_settings,
    model,
    prepared_objective,
    run,
    write_problem,
)

pytestmark = pytest.mark.usefixtures("two_blocks")


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    return write_problem(tmp_path)


def settings_of(problem: Problem, **tables: dict[str, Any]) -> TrainSettings:
    return job_settings(problem, problem.folder / "job", **tables)


def estimated(problem: Problem, **tables: dict[str, Any]) -> Estimate:
    return estimate(from_memory, settings_of(problem, **tables), watch=SILENT)


# The norm of the embeddings and two blocks of width 16: no table, no pooler.
PASSED = 2 * 16 + 2 * (4 * (16 * 16 + 16) + (16 * 32 + 32) + (32 * 16 + 16) + 4 * 16)


def tokens_by_hand(problem: Problem, steps: int) -> float:
    """Bytes of every distinct text of every batch, and its two special tokens; queries have a prompt."""
    objective = prepared_objective(settings_of(problem))
    total, texts = 0, objective.train.texts
    for batch in map(objective._batch, range(steps)):
        total += sum(len(f"ask: {query}") + 2 for query in texts.queries.take(np.unique(batch.query)))
        total += sum(len(document) + 2 for document in texts.documents.take(np.unique(batch.documents)))
    return total


def test_parameters_tokens_and_steps_by_hand(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    found = estimated(problem)
    size = sum(weights.numel() for weights in model().query.parameters())
    assert (found.parameters, found.trained, found.steps) == (size, size - (16 * 16 + 16), 12)
    assert found.tokens == pytest.approx(tokens_by_hand(problem, 12))
    assert 20 < found.pairs < 40
    assert estimated(problem, train={"epochs": 3.0}).steps == int(np.ceil(3 * found.pairs / 6))
    # A long run is counted from some of its batches.
    monkeypatch.setattr(train_record, "SAMPLED_STEPS", 4)
    long = estimated(problem, train={"steps": 1_000_000})
    assert (long.steps, long.tokens) == (1_000_000, pytest.approx(tokens_by_hand(problem, 4) / 4 * 1_000_000))


@pytest.mark.parametrize(
    ("tables", "operations"),
    [
        ({}, 6 * PASSED),
        # A frozen tower costs no training.
        ({"towers": {"kind": "asymmetric", "frozen": "document"}}, 6 * PASSED),
        ({"train": {"freeze": ["embeddings", "blocks[0]"]}}, 2 * PASSED + 4 * (PASSED - 32) / 2),
    ],
)
def test_operations_of_a_token_by_hand(problem: Problem, tables: dict[str, Any], operations: float) -> None:
    found = estimated(problem, **tables)
    assert found.flops == pytest.approx(operations * found.tokens)
    assert 0 < found.tokens <= tokens_by_hand(problem, 12) * (0.7 if "towers" in tables else 1.01)


def test_operations_are_those_of_each_tower_over_its_own_tokens(problem: Problem) -> None:
    towers = {"kind": "asymmetric", "document_model": "wide", "projection_width": 8}
    tables: dict[str, Any] = {"towers": towers, "train": {"freeze": ["blocks[0]"]}}
    objective = prepared_objective(settings_of(problem, **tables))
    tokens = {side: float(sum(objective.tokens_of(step)[side] for step in range(12))) for side in SIDES}
    found = estimated(problem, **tables)
    passed = {side: passed_parameters(objective.towers.tower(side)) for side in SIDES}
    expected = sum(training_flops(passed[side], tokens[side]) for side in SIDES)
    assert found.flops == pytest.approx(expected)
    assert (found.parameters, found.trained, found.notes) == (*counts_of(objective), notes_of(objective))


def test_time_is_that_of_a_step_times_their_number_and_progress_is_shown(problem: Problem) -> None:
    shown: list[tuple[str, int, int]] = []
    watch = Watch(progress=lambda label, done, total: shown.append((label, done, total)))
    found = estimate(from_memory, settings_of(problem), watch=watch)
    assert found.seconds == pytest.approx(12 * found.step_seconds)
    assert 0 < found.step_seconds < 60
    of_steps = [(done, total) for label, done, total in shown if label == "measuring steps"]
    assert of_steps == [(done, 3) for done in range(4)]
    # At least the weights, their gradients and two moments of each, and no more than the machine has.
    most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 16 * found.trained < found.memory_bytes < most
    assert found.device


def test_what_is_told_is_a_run_that_reads_back_as_the_same_settings(problem: Problem) -> None:
    settings = settings_of(
        problem, train={"freeze": ["embeddings"], "matryoshka": [4, 8]}, towers={"kind": "asymmetric"}
    )
    found = estimate(from_memory, settings, watch=SILENT)
    (problem.folder / "RUN.toml").write_text(found.summary())
    assert read_settings(TrainSettings, problem.folder / "RUN.toml") == settings
    said = [line for line in found.summary().splitlines() if line.startswith("#")]
    assert f"parameters: {found.parameters:,}, trained: {found.trained:,} (" in said[0]
    assert f"length: 12 steps on {found.pairs} pairs, " in said[1]
    assert [line.split(":")[0] for line in said[2:5]] == ["# operations", "# memory", "# time"]


def test_an_estimate_of_a_job_that_is_there_leaves_it_alone(problem: Problem) -> None:
    run(settings_of(problem, train={"steps": 1}))
    before = listing(problem.folder)
    assert estimated(problem).steps == 12
    assert listing(problem.folder) == before
