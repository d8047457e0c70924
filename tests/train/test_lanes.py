"""Runs that are stepped together against the same runs one after another."""

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from adiabat.config import OptimizerName
from adiabat.errors import DivergedError, JobError
from adiabat.model.building import trainable_copy
from adiabat.model.encoder import Encoder, EncoderSettings
from adiabat.model.freezing import freeze
from adiabat.store.embeddings import Store
from adiabat.train.checkpoint import read_latest
from adiabat.train.distributed import Processes
from adiabat.train.interrupt import InterruptionError
from adiabat.train.lanes import SharedPass, run_lanes
from adiabat.train.limits import Limits, Outcome
from adiabat.train.log import JobLog, read_log
from adiabat.train.loop import Loop
from adiabat.train.optimizers import make_optimizer
from adiabat.train.schedules import Schedule
from adiabat.train.stacked import StackedTowers
from adiabat.tune.objective import StoredDocuments
from tests.tiny import Kind, tiny_encoder
from tests.train.toy import RATES
from tests.tune.problem import WIDTH, addressed, objective_over, random_vectors, section, store_of

TWO_EPOCHS = Limits(5, 2, None, keep="last", log_every=4)
REASON = "the limit of 2 epochs was reached"
FROZEN = {"bert": ["embeddings", r"key\.bias"], "llama": ["embeddings"]}
"""BERT's keys have a bias whose gradient is 0: Adam makes a step of whatever rounding leaves of it."""

CLOSE = {"rtol": 1e-5, "atol": 2e-6}


@dataclass(frozen=True)
class Run:
    """What a run differs in from those beside it."""

    rate: float = 1e-3
    decay: float = 0.01
    optimizer: OptimizerName = "adamw"
    limits: Limits = TWO_EPOCHS
    tune: dict[str, Any] = field(default_factory=lambda: {"margin": 0.3})
    seed: int = 0


THREE_RATES = [Run(rate=3e-4), Run(rate=1e-3), Run(rate=3e-3)]


def loops_of(folder: Path, runs: Sequence[Run], kind: Kind = "bert") -> list[Loop]:
    """A loop for each run, from one model, over one store, each in a folder of its own."""
    made = folder / "store" / "stored"
    store = Store.open(made) if made.exists() else store_of(made.parent, random_vectors(12))
    train, validation = (
        addressed([[n % 12] for n in range(9)], [[(n + 1) % 12, (n + 5) % 12] for n in range(9)], name=name) for name in ("t", "v")
    )
    base = tiny_encoder(kind, width=WIDTH, layers=1, settings=EncoderSettings(max_tokens=32))
    loops = []
    for number, run in enumerate(runs):
        tower = trainable_copy(base)
        freeze(tower.backbone, FROZEN[kind])
        settings = section(batch_size=4, negatives_per_query=2, **run.tune)
        own = folder / str(number)
        own.mkdir(exist_ok=True)
        trained = [weights for weights in tower.parameters() if weights.requires_grad]
        loops.append(
            Loop(
                objective=objective_over(store, train, validation, settings, encoder=tower, seed=run.seed),
                optimizer=make_optimizer(run.optimizer, trained, learning_rate=run.rate, weight_decay=run.decay),
                learning_rate=run.rate,
                schedule=Schedule(name="linear", total_steps=40),
                limits=run.limits,
                folder=own / "checkpoints",
                log=JobLog(own / "log.jsonl"),
                seed=run.seed,
            )
        )
    return loops


def objective_of(loop: Loop) -> StoredDocuments:
    assert isinstance(loop.objective, StoredDocuments)
    return loop.objective


def tower_of(loop: Loop) -> Encoder:
    return objective_of(loop).encoder


def shared_by(loops: Sequence[Loop]) -> SharedPass:
    shared = SharedPass(StackedTowers([tower_of(loop) for loop in loops]))
    for number, loop in enumerate(loops):
        objective_of(loop).passes = shared.lane(number)
    return shared


def together(loops: Sequence[Loop], *, resume: bool = False) -> list[Outcome | DivergedError]:
    return run_lanes(loops, shared_by(loops), resume=resume)


def apart(loops: Sequence[Loop], *, resume: bool = False) -> list[Outcome | DivergedError]:
    ends: list[Outcome | DivergedError] = []
    for loop in loops:
        try:
            ends.append(loop.run(resume=resume))
        except DivergedError as fault:
            ends.append(fault)
    return ends


def weights_of(loop: Loop) -> dict[str, Tensor]:
    return {name: weights.detach().clone() for name, weights in tower_of(loop).named_parameters()}


def rows_of(loop: Loop) -> list[dict[str, float]]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in read_log(loop.folder.parent / "log.jsonl")]


def assert_alike(loops: Sequence[Loop], others: Sequence[Loop]) -> None:
    """Weights, rows of the log and the newest checkpoint, whose optimizer has state too."""
    for loop, other in zip(loops, others, strict=True):
        torch.testing.assert_close(weights_of(loop), weights_of(other), **CLOSE)
        for row, wanted in zip(rows_of(loop), rows_of(other), strict=True):
            assert row == pytest.approx(wanted, rel=1e-5, abs=1e-6)
        (found, _), (expected, _) = read_latest(loop.folder), read_latest(other.folder)
        assert found is not None
        assert expected is not None
        torch.testing.assert_close(dict(found.tensors), dict(expected.tensors), **CLOSE)
        assert loop.position.step == other.position.step


def assert_apart(loops: Sequence[Loop]) -> None:
    """The runs went further from each other than they may from their twins."""
    one, other = (weights_of(loop) for loop in loops)
    assert max(float((one[name] - other[name]).abs().max()) for name in one) > 50 * CLOSE["atol"]


def compared(tmp_path: Path, runs: Sequence[Run], kind: Kind = "bert") -> tuple[list[Loop], list[Any], list[Any]]:
    """Run both ways, compare all that the runs leave, and give the loops stepped together and how both ended."""
    lanes, singles = loops_of(tmp_path / "together", runs, kind), loops_of(tmp_path / "apart", runs, kind)
    ends, expected = together(lanes), apart(singles)
    assert_alike(lanes, singles)
    return lanes, ends, expected


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_stacked_equals_separate(tmp_path: Path, kind: Kind) -> None:
    twenty = replace(TWO_EPOCHS, max_epochs=4)
    lanes, ends, expected = compared(tmp_path, [replace(run, limits=twenty) for run in THREE_RATES], kind)
    assert [end.reason for end in ends] == [end.reason for end in expected] == ["the limit of 4 epochs was reached"] * 3
    assert [loop.position.step for loop in lanes] == [20] * 3
    assert_apart(lanes[:2])
    assert_apart(lanes[1:])


def test_stacked_equals_separate_with_other_margins_and_decays(tmp_path: Path) -> None:
    lanes, _, _ = compared(tmp_path, [Run(), Run(tune={"margin": 0.02}), Run(tune={"margin": 0.5}), Run(decay=10.0)])
    for other in lanes[1:]:
        assert_apart([lanes[0], other])


@pytest.mark.parametrize("optimizer", RATES)
def test_stacked_equals_separate_with_every_optimizer(tmp_path: Path, optimizer: OptimizerName) -> None:
    rate = RATES[optimizer] / 10
    compared(tmp_path, [Run(rate=rate, optimizer=optimizer), Run(rate=rate / 3, optimizer=optimizer)])


def test_stacked_equals_separate_under_the_softmax_with_negatives_of_the_store(tmp_path: Path) -> None:
    tune = {"loss": "in_batch_softmax", "temperature": 0.1, "negatives": "hardest"}
    compared(tmp_path, [Run(rate=rate, tune=tune) for rate in (1e-3, 3e-3)])


def test_stacked_equals_separate_where_one_run_stops_early(tmp_path: Path) -> None:
    best, last = replace(TWO_EPOCHS, max_epochs=3, keep="loss"), replace(TWO_EPOCHS, max_epochs=3)
    idle, short = replace(last, keep="both", idle_epochs=2), replace(best, max_epochs=1)
    # A rate that moves nothing never improves.
    runs = [Run(limits=best), Run(rate=1e-30, optimizer="sgd", limits=idle), Run(rate=3e-3, limits=short), Run(limits=last)]
    lanes, ends, _ = compared(tmp_path, runs)
    assert [loop.position.step for loop in lanes] == [15, 10, 5, 15]
    assert "2 epochs in a row" in ends[1].reason
    # Every tower is by itself again.
    for loop in lanes:
        for weights in tower_of(loop).parameters():
            assert weights.untyped_storage().nbytes() == weights.numel() * weights.element_size()
            assert weights.grad is None


def test_stacked_equals_separate_where_one_run_diverges(tmp_path: Path) -> None:
    lanes, ends, expected = compared(tmp_path, [Run(), Run(rate=1e30), Run(rate=3e-3)])
    assert isinstance(ends[1], DivergedError)
    assert isinstance(ends[1], JobError)
    assert str(ends[1]).replace("together", "apart") == str(expected[1])
    assert str(ends[1]).startswith("the training loss must be a finite number, got nan at step 1 (4 queries: q")
    assert [isinstance(end, Outcome) for end in ends] == [True, False, True]
    # The weights that went wrong are there to be looked at, and nothing holds its gradients.
    assert read_latest(lanes[1].folder)[0] is not None
    assert all(weights.grad is None for weights in tower_of(lanes[1]).parameters())


def test_a_run_that_fails_before_its_first_step_ends_by_itself(tmp_path: Path) -> None:
    lanes, singles = loops_of(tmp_path / "together", THREE_RATES), loops_of(tmp_path / "apart", THREE_RATES[1:])
    tower_of(lanes[0]).backbone.get_parameter("encoder.layer.0.output.dense.bias").data.fill_(torch.nan)
    ends = together(lanes)
    assert str(ends[0]) == "the validation loss must be a finite number, got nan at step 0; look at the model's weights"
    apart(singles)
    assert_alike(lanes[1:], singles)


def test_a_run_whose_loss_cannot_be_computed_ends_by_itself(tmp_path: Path) -> None:
    lanes, singles = loops_of(tmp_path / "together", THREE_RATES), loops_of(tmp_path / "apart", THREE_RATES[1:])
    choose = objective_of(lanes[0]).choose

    def choosing(picked: Any, step: int, query: Tensor) -> Any:
        if step == 3:
            raise DivergedError("nothing is near", "lower the rate")
        return choose(picked, step, query)

    objective_of(lanes[0]).choose = choosing
    ends = together(lanes)
    assert [str(end) for end in ends if isinstance(end, DivergedError)] == ["nothing is near; lower the rate"]
    assert lanes[0].position.step == 3
    assert all(weights.grad is None for weights in tower_of(lanes[0]).parameters())
    apart(singles)
    assert_alike(lanes[1:], singles)


def test_if_every_run_diverges_all_are_errors(tmp_path: Path) -> None:
    ends = together(loops_of(tmp_path, [Run(rate=1e30), Run(rate=2e30)]))
    assert all(isinstance(end, DivergedError) for end in ends)


# --- Interrupting and resuming ---


def at_step(step: int, act: Callable[[], object]) -> Callable[[Any], None]:
    return lambda position: act() if position.step == step else None


def cut_at(loop: Loop, step: int) -> None:
    """Run a loop by itself, until Ctrl-C in that step."""
    loop.watch = at_step(step, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(InterruptionError, match=f"^stopped at step {step};"):
        loop.run()


def test_stacked_equals_separate_resumed_from_different_steps(tmp_path: Path) -> None:
    for loop, step in zip(loops_of(tmp_path / "together", THREE_RATES), [3, 0, 7], strict=True):
        if step:
            cut_at(loop, step)
    lanes, singles = loops_of(tmp_path / "together", THREE_RATES), loops_of(tmp_path / "apart", THREE_RATES)
    order: list[tuple[int, int]] = []
    for number, loop in enumerate(lanes):
        loop.watch = lambda position, number=number: order.append((number, position.step))
    together(lanes, resume=True)
    apart(singles)
    assert_alike(lanes, singles)
    # The one that has fewest steps goes first, until they meet.
    steps = [step for _, step in order]
    assert steps == sorted(steps)
    assert [number for number, step in order if step == 8] == [0, 1, 2]
    assert [number for number, step in order if step == 4] == [0, 1]


def test_runs_interrupted_together_go_on_alone_or_together(tmp_path: Path) -> None:
    lanes = loops_of(tmp_path / "together", THREE_RATES)
    lanes[1].watch = at_step(7, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(InterruptionError, match="^stopped at step 7; run the same command with --resume to go on$"):
        together(lanes)
    assert [[path.name for path in sorted(loop.folder.iterdir())] for loop in lanes] == [["step-000000005", "step-000000007"]] * 3
    lanes, singles = loops_of(tmp_path / "together", THREE_RATES), loops_of(tmp_path / "apart", THREE_RATES)
    apart(lanes[:1], resume=True)
    together(lanes[1:], resume=True)
    apart(singles)
    assert_alike(lanes, singles)


def test_an_interrupted_run_that_has_ended_ends_at_once_when_resumed(tmp_path: Path) -> None:
    runs = [Run(limits=replace(TWO_EPOCHS, max_epochs=1)), Run(rate=1e30), Run()]
    lanes = loops_of(tmp_path, runs)
    lanes[2].watch = at_step(8, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(InterruptionError, match="^stopped at step 8"):
        together(lanes)
    lanes = loops_of(tmp_path, runs)
    ends = together(lanes, resume=True)
    assert [loop.position.step for loop in lanes] == [5, 1, 10]
    assert isinstance(ends[1], DivergedError)


def test_finished_runs_are_not_stepped_again(tmp_path: Path) -> None:
    together(loops_of(tmp_path, THREE_RATES))
    lanes, seen = loops_of(tmp_path, THREE_RATES), []
    for loop in lanes:
        loop.watch = lambda position: seen.append(position.step)
    ends = together(lanes, resume=True)
    assert seen == []
    assert [end.reason for end in ends if isinstance(end, Outcome)] == [REASON] * 3


def test_the_random_state_of_the_process_stays_as_it_was(tmp_path: Path) -> None:
    before = torch.get_rng_state()
    together(loops_of(tmp_path, THREE_RATES))
    assert torch.equal(torch.get_rng_state(), before)


def test_handlers_and_logs_are_let_go_after_an_error(tmp_path: Path) -> None:
    lanes = loops_of(tmp_path, THREE_RATES)
    before = signal.getsignal(signal.SIGINT)

    def broken() -> None:
        raise RuntimeError("power cut")

    lanes[1].watch = at_step(6, broken)
    with pytest.raises(RuntimeError, match="power cut"):
        together(lanes)
    assert signal.getsignal(signal.SIGINT) is before
    assert all(loop.log._stream is None for loop in lanes)


# --- What cannot be stepped together ---


def test_runs_that_ask_for_other_texts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        RuntimeError, match="^runs that are stepped together must ask for the same texts, got others; give them one data set"
    ):
        together(loops_of(tmp_path, [Run(), Run(seed=1)]))


def test_a_lane_may_ask_twice_for_the_same_but_not_for_other_rows_or_texts(tmp_path: Path) -> None:
    loops = loops_of(tmp_path, THREE_RATES[:2])
    shared = shared_by(loops)
    table, other = objective_of(loops[0]).tokens, objective_of(loops[0]).validation_tokens
    shared.begin([0, 1])
    first = shared.lane(0).embed(table, np.array([1, 2]))
    assert shared.lane(0).embed(table, np.array([1, 2])) is first
    # The same texts in another table.
    assert shared.lane(1).embed(objective_of(loops[1]).tokens, np.array([1, 2])).shape == first.shape
    for wrong, rows in ((table, [1, 3]), (table, [1]), (other, [1, 2])):
        with pytest.raises(RuntimeError, match="must ask for the same texts"):
            shared.lane(1).embed(wrong, np.array(rows))
    shared.begin([0, 1])
    assert shared.lane(1).embed(other, np.array([1, 2])).shape == first.shape


def test_a_lane_that_asked_for_nothing_gets_no_gradient(tmp_path: Path) -> None:
    loops = loops_of(tmp_path, THREE_RATES[:2])
    shared = shared_by(loops)
    shared.begin([0, 1])
    shared.carry_on()
    shared.lane(0).embed(objective_of(loops[0]).tokens, np.array([1, 2]))[:, 0].sum().backward()
    shared.carry_on()
    reached = [{name for name, weights in tower_of(loop).named_parameters() if weights.grad is not None} for loop in loops]
    assert reached == [{name for name, weights in tower_of(loops[0]).named_parameters() if weights.requires_grad}, set()]


def test_there_must_be_a_loop_for_each_lane_and_one_process(tmp_path: Path) -> None:
    loops = loops_of(tmp_path, THREE_RATES)
    shared = shared_by(loops)
    with pytest.raises(ValueError, match="^there must be a loop for each lane, got 2 for 3$"):
        run_lanes(loops[:2], shared, resume=False)
    loops[0].processes = Processes(count=2)
    with pytest.raises(ValueError, match="^runs that are stepped together must be of one process"):
        run_lanes(loops, shared, resume=False)
