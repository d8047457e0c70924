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
from adiabat.dual_encoder import estimate as estimating
from adiabat.dual_encoder.estimate import Estimate, estimate
from adiabat.dual_encoder.train import prepared
from adiabat.dual_encoder.train_record import counts_of, notes_of
from adiabat.scaling_laws.flops import training_flops
from adiabat.training.distributed import ALONE
from adiabat.training.flop_count import passed_parameters
from tests.commands import listing
from tests.dual_encoder.problem import Problem, from_memory, job_settings, model, run, write_problem


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    return write_problem(tmp_path)


def estimated(problem: Problem, **tables: dict[str, Any]) -> Estimate:
    return estimate(from_memory, job_settings(problem, problem.folder / "job", **tables), watch=SILENT)


def weights_of_start() -> int:
    return sum(weights.numel() for weights in model().query.parameters())


# The norm of the embeddings and two blocks of width 16: no table, no pooler.
PASSED = 2 * 16 + 2 * (4 * (16 * 16 + 16) + (16 * 32 + 32) + (32 * 16 + 16) + 4 * 16)


def tokens_by_hand(problem: Problem, steps: int, **tables: dict[str, Any]) -> float:
    """Bytes of every distinct text of every batch, and its two special tokens; queries have a prompt."""
    objective, _ = prepared(from_memory, job_settings(problem, problem.folder / "job", **tables), ALONE)
    total = 0
    for step in range(steps):
        batch = objective._batch(step)
        texts = objective.train.texts
        total += sum(len(f"ask: {query}") + 2 for query in texts.queries.take(np.unique(batch.query)))
        total += sum(len(document) + 2 for document in texts.documents.take(np.unique(batch.documents)))
    return total


def test_parameters_tokens_and_operations_by_hand(problem: Problem) -> None:
    found = estimated(problem)
    tokens = tokens_by_hand(problem, 12)
    assert (found.parameters, found.steps) == (weights_of_start(), 12)
    assert found.trained == weights_of_start() - (16 * 16 + 16)
    assert found.tokens == pytest.approx(tokens)
    assert found.flops == pytest.approx(6 * PASSED * tokens)
    assert 20 < found.pairs < 40


def test_operations_are_those_of_each_tower_over_its_own_tokens(problem: Problem) -> None:
    tables: dict[str, Any] = {
        "towers": {"kind": "asymmetric", "document_model": "wide", "projection_width": 8},
        "train": {"freeze": ["blocks[0]"]},
    }
    objective, _ = prepared(from_memory, job_settings(problem, problem.folder / "job", **tables), ALONE)
    counts = [objective.tokens_of(step) for step in range(12)]
    expected = sum(
        training_flops(passed_parameters(objective.towers.tower(side)), float(sum(one[side] for one in counts))) for side in SIDES
    )
    found = estimated(problem, **tables)
    assert found.flops == pytest.approx(expected)
    assert (found.parameters, found.trained) == counts_of(objective)
    assert found.notes == notes_of(objective)


def test_a_frozen_tower_costs_no_training(problem: Problem) -> None:
    found = estimated(problem, towers={"kind": "asymmetric", "frozen": "document"})
    queries = estimated(problem, towers={"kind": "asymmetric"})
    assert 0 < found.tokens < queries.tokens
    assert found.flops == pytest.approx(6 * PASSED * found.tokens)


def test_adapters_cost_less_than_all_weights_and_blocks_that_are_frozen_less_still(problem: Problem) -> None:
    whole, adapters, frozen = (
        estimated(problem, train=train) for train in ({}, {"method": {"kind": "lora", "rank": 1}}, {"freeze": ["embeddings", "blocks[0]"]})
    )
    assert whole.tokens == adapters.tokens == frozen.tokens
    assert frozen.flops < adapters.flops < whole.flops
    assert frozen.flops == pytest.approx((2 * PASSED + 4 * (PASSED - 32) / 2) * frozen.tokens)


def test_a_long_run_is_counted_from_some_of_its_batches(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimating, "SAMPLED_STEPS", 4)
    found = estimated(problem, train={"steps": 1_000_000})
    assert found.steps == 1_000_000
    assert found.tokens == pytest.approx(tokens_by_hand(problem, 4) / 4 * 1_000_000)


def test_passes_over_the_data_are_told_in_steps(problem: Problem) -> None:
    found = estimated(problem, train={"epochs": 3.0})
    assert found.steps == int(np.ceil(3 * found.pairs / 6))


def test_time_is_that_of_a_step_times_their_number_and_progress_is_shown(problem: Problem) -> None:
    shown: list[tuple[str, int, int]] = []
    watch = Watch(progress=lambda label, done, total: shown.append((label, done, total)))
    found = estimate(from_memory, job_settings(problem, problem.folder / "job"), watch=watch)
    assert found.seconds == pytest.approx(12 * found.step_seconds)
    assert 0 < found.step_seconds < 60
    assert [told for told in shown if told[0] == "measuring steps"] == [("measuring steps", done, 3) for done in range(4)]
    # At least the weights, their gradients and two moments of each, and no more than the machine has.
    most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 16 * found.trained < found.memory_bytes < most
    assert found.device


def test_what_is_told_is_a_run_that_reads_back_as_the_same_settings(problem: Problem) -> None:
    settings = job_settings(
        problem, problem.folder / "job", train={"freeze": ["embeddings"], "matryoshka": [4, 8]}, towers={"kind": "asymmetric"}
    )
    found = estimate(from_memory, settings, watch=SILENT)
    told = found.summary()
    (problem.folder / "RUN.toml").write_text(told)
    assert read_settings(TrainSettings, problem.folder / "RUN.toml") == settings
    said = [line for line in told.splitlines() if line.startswith("#")]
    share = 100 * found.trained / found.parameters
    assert said[0] == f"# parameters: {found.parameters:,}, trained: {found.trained:,} ({share:.1f} %)"
    assert said[1].startswith(f"# length: 12 steps on {found.pairs} pairs, ")
    assert [line.split(":")[0] for line in said[:5]] == ["# parameters", "# length", "# operations", "# memory", "# time"]


def test_an_estimate_of_a_job_that_is_there_leaves_it_alone(problem: Problem) -> None:
    run(job_settings(problem, problem.folder / "job", train={"steps": 1}))
    before = listing(problem.folder)
    assert estimated(problem).steps == 12
    assert listing(problem.folder) == before
