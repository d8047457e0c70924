"""How long a run is: what a budget pays for, to within a step."""

from pathlib import Path

import numpy as np
import pytest
import torch

from adiabat.config.dual_training import TrainSettings
from adiabat.core.errors import ConfigError
from adiabat.core.progress import SILENT
from adiabat.dual_encoder.train import estimate, step_seconds
from adiabat.dual_encoder.train_checks import steps_within
from adiabat.models.encoder import Encoder
from adiabat.models.tokens import TokenBatch
from adiabat.results.training_record import TrainingRecord
from adiabat.training.flop_count import operations_of, passed_parameters
from adiabat.training.time_limit import WritingTime
from tests.dual_encoder.problem import FROZEN, Problem, from_memory, job_settings, prepared_objective, run


@pytest.mark.parametrize(("budget", "steps"), [(1.0, 1), (2.9, 1), (3.0, 2), (5.9, 2), (6.0, 3), (100.0, 13)])
def test_a_budget_pays_for_the_steps_that_fit_into_it(budget: float, steps: int) -> None:
    assert steps_within(budget, lambda step: float(step + 1)) == steps


def test_a_budget_below_one_step_and_one_without_end_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^train.budget_flops must .* takes 20 FLOP, got 19; raise it"):
        steps_within(19.0, lambda step: 20.0)
    with pytest.raises(ConfigError, match=r"1,000,000 steps of 20 FLOP, got 1e\+12; lower it$"):
        steps_within(1e12, lambda step: 20.0)


def test_a_run_spends_its_budget_to_within_a_step_and_says_so(problem: Problem, tmp_path: Path) -> None:
    objective = prepared_objective(job_settings(problem, tmp_path / "none"))
    costs = [objective.flops_of(step) for step in range(8)]
    budget = sum(costs[:6]) + costs[6] / 2
    train = {"budget_flops": budget, "epochs": 1.0, "schedule": "cosine"}
    record = run(job_settings(problem, tmp_path / "job", train=train)).training
    assert record.steps == 6
    assert record.stop_reason == "the limit of 6 steps was reached"
    assert record.flops == pytest.approx(sum(costs[:6]))
    assert record.planned == pytest.approx(budget)
    with objective.passing():
        assert record.operations == pytest.approx(sum(objective.cost(step).operations for step in range(6)))


def test_a_run_reads_as_many_tokens_as_it_says(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    forward = Encoder.forward

    def counted(self: Encoder, batch: TokenBatch) -> torch.Tensor:
        # A pass of one token is none of training: it finds out what a token passes.
        if torch.is_grad_enabled() and batch.attention_mask.numel() > 1:
            read.append(int(batch.attention_mask.sum()))
        return forward(self, batch)

    objective = prepared_objective(job_settings(problem, tmp_path / "none"))
    # Counting what a pass costs passes too, once for all towers of a shape.
    operations_of(objective.towers.query)
    monkeypatch.setattr(Encoder, "forward", counted)
    result = run(job_settings(problem, tmp_path / "job", train={"steps": 5, "schedule": "constant"}))
    assert sum(read) == sum(sum(objective.tokens_of(step).values()) for step in range(5))
    passed = passed_parameters(objective.towers.query).forward
    assert result.training.flops == pytest.approx(6 * passed * sum(read))


@pytest.mark.parametrize("frozen", [{}, FROZEN], ids=["none", "document"])
def test_a_resumed_run_has_spent_what_one_that_never_stopped_has(
    problem: Problem, tmp_path: Path, frozen: dict[str, str]
) -> None:
    def spent(name: str, steps: int, *, resume: bool = False) -> TrainingRecord:
        train = {"steps": steps, "schedule": "constant", "warmup_fraction": 0.0}
        return run(job_settings(problem, tmp_path / name, train=train, towers=frozen), resume=resume).training

    whole = spent("whole", 8)
    spent("job", 3)
    resumed = spent("job", 8, resume=True)
    assert (resumed.flops, resumed.operations) == (pytest.approx(whole.flops), whole.operations)
    # Without a budget it is what all its steps take.
    assert 0 < whole.flops == pytest.approx(whole.planned)


def test_a_second_pass_is_counted_and_is_none_of_the_budget(problem: Problem, tmp_path: Path) -> None:
    plain, cached = (
        prepared_objective(job_settings(problem, tmp_path / "none", memory={"cached": use}))
        for use in (False, True)
    )
    first, second = plain.cost(0), cached.cost(0)
    assert first.flops == second.flops
    assert 1.2 < second.operations / first.operations < 1.4


def test_texts_of_a_frozen_tower_are_counted_once_at_the_step_that_needs_them(
    problem: Problem, tmp_path: Path
) -> None:
    objective = prepared_objective(job_settings(problem, tmp_path / "none", towers=FROZEN))
    document, texts = objective.towers.document, objective.train.texts.documents
    seen: set[int] = set()
    for step in range(6):
        with objective.passing():
            trained = objective.cost_of_passes(step).operations
            objective.loss(step)
            spent = objective.cost(step).operations
        new = set(objective._batch(step).documents.ravel().tolist()) - seen
        seen |= new
        fresh = texts.take(np.array(sorted(new), dtype=np.int64))
        lengths = document.tokenize(fresh, side="document").lengths
        alone = operations_of(document).of(lengths, trained=False, cached=False, checkpointed=False)
        assert spent - trained == pytest.approx(alone)
        # Documents of a validation are none of the step after it.
        objective.validate()
        seen |= set(np.flatnonzero(objective._texts.sides["document"].vectors.known).tolist())
        with objective.passing():
            assert objective.cost(step).operations == spent
    assert len(seen) > 10


def clock(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Every look at the clock comes so many seconds after the last."""
    now = [0.0]

    def monotonic() -> float:
        now[0] += seconds
        return now[0]

    monkeypatch.setattr("time.monotonic", monotonic)


def steps_alone_take_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading, measuring and writing take no time."""
    monkeypatch.setattr("adiabat.dual_encoder.train.seconds_since", lambda _: 0.0)
    monkeypatch.setattr("adiabat.dual_encoder.train._reserve", lambda *_: 0.0)


@pytest.fixture
def known_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step takes 2 s, and a validation 8 s."""
    monkeypatch.setattr("adiabat.dual_encoder.train.step_seconds", lambda objective, watch: 2.0)
    monkeypatch.setattr("adiabat.dual_encoder.train._validation_seconds", lambda objective: 8.0)


def lasting(problem: Problem, out: Path, seconds: float) -> TrainSettings:
    """A job of a time, whose every fourth step is followed by a validation."""
    train = {"steps": None, "budget_seconds": seconds, "validate_every": 4}
    return job_settings(problem, out, train=train)


@pytest.mark.usefixtures("known_pace")
def test_time_alone_gives_the_steps_that_fit_into_it(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps_alone_take_time(monkeypatch)
    notes, out = list[str](), tmp_path / "job"
    with pytest.raises(ConfigError, match=r"^train.budget_seconds must .* takes 4 s, got 1; raise it"):
        run(lasting(problem, out, 1.0))
    assert not out.exists()
    # Each step takes 2 s and a quarter of a validation.
    settings = lasting(problem, out, 41.0)
    estimated = estimate(from_memory, settings, watch=SILENT)
    assert (estimated.steps, estimated.settings["train"]["steps"]) == (10, 10)
    result = run(settings, notes=notes)
    assert "41 s are enough for about 10 steps of 4 s, including validations" in notes
    assert (result.training.steps, result.training.stop_reason) == (10, "the limit of 10 steps was reached")
    assert result.settings["train"]["steps"] == 10
    # What was found is not measured again: the schedule of the steps taken depends on it.
    monkeypatch.setattr(
        "adiabat.dual_encoder.train.step_seconds", lambda objective, watch: pytest.fail("measured again")
    )
    assert run(settings, resume=True).training.steps == 10


@pytest.mark.usefixtures("known_pace")
def test_a_time_limit_holds_loading_and_writing_too(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = WritingTime(checkpoint=1.0, ending=5.0)
    monkeypatch.setattr("adiabat.dual_encoder.train.seconds_since", lambda _: 30.0)
    monkeypatch.setattr("adiabat.dual_encoder.train.writing_time", lambda _: written)
    # 30 s before, and 8 + 1 + 5 s after the last step; each step takes 4 s with its share of validations.
    longer = lasting(problem, tmp_path / "job", 44 + 41.0)
    assert estimate(from_memory, longer, watch=SILENT).steps == 10
    with pytest.raises(ConfigError, match=r"^train.budget_seconds must .* got 47; .* take 44 s of it"):
        estimate(from_memory, lasting(problem, tmp_path / "job", 47.0), watch=SILENT)


def test_measuring_steps_changes_no_number_of_the_run(problem: Problem, tmp_path: Path) -> None:
    objective = prepared_objective(job_settings(problem, tmp_path / "timed", train={"steps": 5}))
    before = {name: weights.detach().clone() for name, weights in objective.module.named_parameters()}
    state = torch.get_rng_state()
    assert step_seconds(objective, SILENT) > 0
    assert all(weights.equal(before[name]) for name, weights in objective.module.named_parameters())
    assert all(weights.grad is None for weights in objective.module.parameters())
    assert torch.equal(state, torch.get_rng_state())


def test_a_run_ends_with_the_first_step_past_its_time(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_for(seconds: float, *, resume: bool = False) -> TrainingRecord:
        train = {"steps": 1000, "budget_seconds": seconds, "schedule": "constant"}
        settings = job_settings(problem, tmp_path / "job", train=train)
        with monkeypatch.context() as patched:
            clock(patched, 1.0)
            steps_alone_take_time(patched)
            return run(settings, resume=resume).training

    record = run_for(50.0)
    assert record.stop_reason == "the time limit was reached"
    assert 5 < record.steps < 50
    # Its last weights were validated and kept.
    assert record.validation_loss[-1][0] == record.epochs == record.best_epoch
    again = run_for(90.0, resume=True)
    assert again.steps > record.steps
    assert again.stop_reason == "the time limit was reached"
