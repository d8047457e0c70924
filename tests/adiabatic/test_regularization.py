"""Drift is measured at each validation; a tower that drifts too far is not the result; and what holds a tuned
tower near its start, against the same by hand.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn, optim
from torch.nn import functional

from adiabat.adiabatic.drift import MEASURES, OVERLAP_LOSS, TURN, Reading, drift_of
from adiabat.adiabatic.probes import read_probes
from adiabat.adiabatic.regularization import Guard, l2_to_start, noise_of, soften
from adiabat.adiabatic.tuning_context import prepared_tower
from adiabat.config.reader import checked
from adiabat.config.tuning import TuneSettings
from adiabat.core.errors import ConfigError, DataError, InterruptionError, StoreError
from adiabat.models.encoder import Encoder
from adiabat.models.loading import load
from adiabat.models.towers import interpolated, merged_tower
from adiabat.results.evaluation_result import Result
from adiabat.results.record import read_result
from adiabat.results.training_record import LayerChange
from adiabat.store.vector_store import Store
from adiabat.training.loop import Loop
from tests.adiabatic.problem import Problem, run, settings_of
from tests.jobs import log_of, weights_of
from tests.tiny import tiny_dual

SLOW = {"learning_rate": 3e-4, "keep": "last"}


def settings(
    problem: Problem,
    *,
    guard: dict[str, Any] | None = None,
    rehearsal: dict[str, Any] | None = None,
    **tune: Any,
) -> TuneSettings:
    """A job whose drift is looked at."""
    table = settings_of(tune=tune).model_dump(exclude_defaults=True)
    probes, texts = (str(problem.data.with_name(f"{name}.txt")) for name in ("probes", "rehearsed"))
    own = {} if rehearsal is None else {"rehearsal": {"texts": texts, **rehearsal}}
    watched = {"probes": probes, "depth": 10, "measure": TURN, **(guard or {})}
    return checked(TuneSettings, {**table, **own, "guard": watched})


def guarded(problem: Problem, *, tune: dict[str, Any] | None = None, **guard: Any) -> TuneSettings:
    """A job that drifts further in each of its three epochs, and keeps the last."""
    return settings(problem, guard=guard, **(SLOW | (tune or {})))


def training(result: Result) -> Any:
    """The record of the run."""
    return result.training


def query_of(out: Path) -> Encoder:
    return load(out / "model").query


def turns_of(out: Path) -> list[float]:
    """Drift after each epoch, by the log."""
    return [row[f"validation_{TURN}"] for row in log_of(out) if "validation_loss" in row]


def between(watched: Path) -> float:
    """A limit that the first epoch keeps and the second does not."""
    turns = turns_of(watched)
    return (turns[1] + turns[2]) / 2


def cut_at(place: Callable[[Loop], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt a run where it next rests at a place."""
    rest = Loop._rest

    def cut(self: Loop, *, stopping: bool) -> None:
        rest(self, stopping=stopping or place(self))

    monkeypatch.setattr(Loop, "_rest", cut)


@pytest.fixture(scope="module")
def watched(problem: Problem, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job whose drift is measured and not limited."""
    out = tmp_path_factory.mktemp("watched") / "job"
    run(problem, out, guarded(problem))
    return out


def test_drift_is_in_the_log_and_in_the_result(watched: Path) -> None:
    turns = turns_of(watched)
    assert turns[0] == 0
    assert turns == sorted(turns)
    assert len(set(turns)) == 4
    found = training(read_result(watched / "result.json")).measures
    assert set(found) == set(MEASURES)
    assert [value for _, value in found[TURN]] == turns


def test_a_guard_that_only_watches_changes_no_weight(problem: Problem, watched: Path, tmp_path: Path) -> None:
    run(problem, tmp_path / "job", settings_of(tune=SLOW))
    assert weights_of(query_of(tmp_path / "job")) == weights_of(query_of(watched))


def test_a_run_stops_where_drift_leaves_the_band_and_keeps_what_was_inside(
    problem: Problem, watched: Path, tmp_path: Path
) -> None:
    result = run(problem, tmp_path / "job", guarded(problem, limit=between(watched)))
    record = training(result)
    assert (record.epochs, record.best_epoch) == (2, 1)
    assert "the drift of the probes (turn) is " in record.stop_reason
    assert record.stop_reason.endswith("; the weights of epoch 1 are kept")
    run(problem, tmp_path / "short", settings_of(tune={**SLOW, "max_epochs": 1}))
    assert weights_of(query_of(tmp_path / "job")) == weights_of(query_of(tmp_path / "short"))


def test_the_best_weights_inside_the_band_are_kept_where_the_best_are_asked_for(
    problem: Problem, tmp_path: Path
) -> None:
    fast = {"keep": "both", "learning_rate": 3e-3, "idle_epochs": 9}
    improving = training(run(problem, tmp_path / "free", guarded(problem, tune=fast)))
    assert improving.best_epoch > 0
    most = dict(improving.measures[TURN])[improving.best_epoch] * 0.999
    found = training(run(problem, tmp_path / "job", guarded(problem, tune=fast, limit=most)))
    assert found.best_epoch < improving.best_epoch


def test_where_nothing_may_drift_the_start_is_the_result(problem: Problem, tmp_path: Path) -> None:
    record = training(run(problem, tmp_path / "job", guarded(problem, limit=1e-12)))
    assert (record.epochs, record.best_epoch) == (1, 0)
    assert weights_of(query_of(tmp_path / "job")) == weights_of(problem.fresh().query)


def test_a_run_goes_back_and_on_at_half_the_rate(problem: Problem, watched: Path, tmp_path: Path) -> None:
    notes: list[str] = []
    run(problem, tmp_path / "job", guarded(problem, limit=between(watched), action="back"), notes=notes)
    told = ": restored the weights of epoch 1; continuing at 0.5 of the learning rate"
    assert sum(told in note for note in notes) == 1
    rows = log_of(tmp_path / "job")
    rates = {row["epoch"]: row["learning_rate"] for row in rows if "learning_rate" in row}
    assert rates[2] == pytest.approx(rates[1] / 2)
    # From the weights of epoch 1 it has gone less far than two epochs at the full rate.
    assert turns_of(tmp_path / "job")[3] < turns_of(watched)[3]


def test_a_run_that_went_back_resumes_exactly(
    problem: Problem, watched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = guarded(problem, limit=between(watched), action="back")
    run(problem, tmp_path / "whole", settings)
    with monkeypatch.context() as patch:
        cut_at(lambda loop: loop.position.step == 9, patch)
        with pytest.raises(InterruptionError):
            run(problem, tmp_path / "cut", settings)
    run(problem, tmp_path / "cut", settings, resume=True)
    assert weights_of(query_of(tmp_path / "cut")) == weights_of(query_of(tmp_path / "whole"))
    assert log_of(tmp_path / "cut") == log_of(tmp_path / "whole")


def test_what_a_guard_needs_is_told_before_any_step(problem: Problem, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere.txt must exist, got no such file"):
        run(problem, tmp_path / "job", guarded(problem, probes=str(tmp_path / "nowhere.txt")))
    with pytest.raises(StoreError, match="store"):
        run(problem, tmp_path / "job", guarded(problem), model=replace(tiny_dual(width=16), name="other"))
    assert not (tmp_path / "job").exists()


@pytest.mark.parametrize("action", ["back", "soften"])
def test_what_is_done_beyond_a_limit_wants_a_limit(action: str) -> None:
    with pytest.raises(ConfigError, match=r"guard.action has no effect without guard.limit; .* set guard"):
        checked(TuneSettings, {"guard": {"action": action}})


def turned(angles: list[float], rows: list[list[int]], *, length: float = 1.0) -> Reading:
    vectors = length * np.array([[np.cos(angle), np.sin(angle)] for angle in angles], dtype=np.float32)
    scores = np.array([[0.9, 0.8 - angle] for angle in angles], dtype=np.float32)
    return Reading(vectors, np.array(rows), scores)


def test_noise_is_the_drift_of_the_probes_that_move() -> None:
    start, otherwise = turned([0.0, 0.5], [[1, 2], [3, 4]]), turned([0.1, 0.5], [[2, 1], [3, 4]])
    found = noise_of(start, otherwise)
    assert found[TURN] == pytest.approx(0.1, rel=1e-5)
    # Half of what both probes have: the second one's vector stays.
    assert found[OVERLAP_LOSS] == pytest.approx(2 * drift_of(start, otherwise).means[OVERLAP_LOSS])


def test_the_length_of_a_vector_and_its_rounding_do_not_move_a_probe() -> None:
    start = turned([0.2, 0.4], [[1, 2], [3, 4]])
    otherwise = turned([0.2, 0.4 + 1e-6], [[1, 2], [3, 4]], length=1e3)
    assert noise_of(start, otherwise) == dict.fromkeys(MEASURES, 0.0)


# --- What holds a tower near its start ---

FAST = {"learning_rate": 3e-3, "keep": "last"}


def fast(problem: Problem, **options: Any) -> TuneSettings:
    """A job that drifts far."""
    return settings(problem, **(FAST | options))


def guard_of(problem: Problem, most: float | None) -> Guard:
    section = fast(problem, guard={} if most is None else {"limit": most}).guard
    return Guard.of(section, read_probes(section.probes), problem.fresh(), Store.open(problem.store))


@pytest.fixture(scope="module")
def plain(problem: Problem, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job that nothing holds."""
    out = tmp_path_factory.mktemp("plain") / "job"
    run(problem, out, fast(problem))
    return out


def test_the_pull_is_added_to_the_gradient() -> None:
    weights, free = nn.Parameter(torch.tensor([1.0, -2.0])), nn.Parameter(torch.tensor([5.0]))
    optimizer = optim.SGD([weights, free], lr=0.1)
    l2_to_start(optimizer, 3.0)
    expected = np.array([1.0, -2.0])
    for gradient in (np.array([1.0, 1.0]), np.array([0.0, -2.0]), np.array([0.0, 0.0])):
        weights.grad = torch.tensor(gradient, dtype=torch.float32)
        optimizer.step()
        expected = expected - 0.1 * (gradient + 3.0 * (expected - np.array([1.0, -2.0])))
        np.testing.assert_allclose(weights.detach().numpy(), expected, rtol=1e-6)
    # Without a gradient a weight does not move.
    assert free.item() == 5.0


def test_a_pull_holds_the_tower_back_and_goes_on_from_the_same_start(
    problem: Problem, plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulled = fast(problem, l2_to_start=1.0)
    run(problem, tmp_path / "straight", pulled)
    assert 0 < turns_of(tmp_path / "straight")[-1] < 0.8 * turns_of(plain)[-1]
    with monkeypatch.context() as patch:
        cut_at(lambda loop: loop.position.epoch == 2, patch)
        with pytest.raises(InterruptionError):
            run(problem, tmp_path / "cut", pulled)
    run(problem, tmp_path / "cut", pulled, resume=True)
    assert weights_of(query_of(tmp_path / "cut")) == weights_of(query_of(tmp_path / "straight"))


def test_a_rehearsal_adds_its_distance_to_the_loss(problem: Problem) -> None:
    wanted, context = fast(problem, rehearsal={"weight": 2.5, "texts_per_step": 5}), problem.context()
    tower, _ = prepared_tower(context.model.query, wanted)
    with torch.no_grad():
        for weights in tower.parameters():
            weights += 0.05 * torch.randn(weights.shape, generator=torch.Generator().manual_seed(1))
    held, free = context.objective(tower, wanted), context.objective(tower, fast(problem))
    texts = [f"rehearsed {number} of nothing" for number in range(24)]
    for step in (0, 3, 9):
        picked = [texts[row] for row in held.rehearsal.sampler.rows(step)]
        assert len(set(picked)) == 5 or step == 9
        now, before = (
            torch.from_numpy(one.encode(picked, side="query", precision="fp32"))
            for one in (tower, context.model.query)
        )
        added = 2.5 * (1 - functional.cosine_similarity(now, before)).mean()
        assert float((held.loss(step) - free.loss(step)).detach()) == pytest.approx(float(added), rel=1e-4)


def test_a_rehearsal_holds_other_texts_too(problem: Problem, plain: Path, tmp_path: Path) -> None:
    run(problem, tmp_path / "held", fast(problem, rehearsal={"weight": 5.0}))
    assert turns_of(tmp_path / "held")[-1] < 0.8 * turns_of(plain)[-1]


def test_rehearsed_texts_must_be_no_probes(problem: Problem, tmp_path: Path) -> None:
    probes = str(problem.data.with_name("probes.txt"))
    with pytest.raises(ConfigError, match=r"rehearsal.texts must differ from the probes of drift, got 24"):
        run(problem, tmp_path / "job", fast(problem, guard={}, rehearsal={"texts": probes}))
    assert not (tmp_path / "job").exists()
    unwatched = checked(TuneSettings, {"rehearsal": {"texts": probes}})
    problem.context().require_possible([unwatched])


def test_rehearsed_texts_are_read_and_embedded_once(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = problem.context()
    runs = [fast(problem, rehearsal={"weight": weight}) for weight in (1.0, 2.0)]
    context.require_possible(runs)
    monkeypatch.setattr("adiabat.adiabatic.regularization.at_start", None)
    monkeypatch.setattr("adiabat.adiabatic.probes.read_probes", None)
    for one in runs:
        tower, _ = prepared_tower(context.model.query, one)
        assert context.objective(tower, one).rehearsal
        assert context.digests(one)["rehearsed"] == context.probes(one.rehearsal.texts).sha256


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_weights_between_lie_on_a_line_with_exact_ends(problem: Problem, plain: Path, share: float) -> None:
    tuned, start = query_of(plain), problem.fresh().query
    between = dict(interpolated(tuned, start, share).named_parameters())
    before, after = dict(start.named_parameters()), dict(tuned.named_parameters())
    for name, weights in between.items():
        expected = before[name] + share * (after[name] - before[name])
        assert torch.equal(weights, expected) if share == 0 else torch.allclose(weights, expected, atol=1e-7)
    if share == 1.0:
        assert weights_of(interpolated(tuned, start, share)) == weights_of(tuned)


def test_a_tower_is_taken_back_to_the_furthest_point_inside(problem: Problem, plain: Path) -> None:
    tuned, start = query_of(plain), problem.fresh().query
    whole = guard_of(problem, None).look(tuned).measures[TURN]
    guard = guard_of(problem, 0.4 * whole)
    found = soften(tuned, start, guard)
    assert found.drift == guard.look(found.tower).measures[TURN] <= 0.4 * whole
    shares = np.linspace(0, 1, 65).tolist()
    drifts = [guard.look(interpolated(tuned, start, share)).measures[TURN] for share in shares]
    inside = [share for share, drift in zip(shares, drifts, strict=True) if drift <= 0.4 * whole]
    assert found.share == pytest.approx(max(inside), abs=1 / 64)


def test_a_tower_inside_stays_and_one_without_room_goes_home(problem: Problem, plain: Path) -> None:
    tuned, start = query_of(plain), problem.fresh().query
    stays = soften(tuned, start, guard_of(problem, 3.0))
    assert (stays.share, weights_of(stays.tower)) == (1.0, weights_of(tuned))
    home = soften(tuned, start, guard_of(problem, 1e-12))
    assert (home.share, home.drift, weights_of(home.tower)) == (0.0, 0.0, weights_of(start))
    with pytest.raises(ValueError, match="must have a limit"):
        soften(tuned, start, guard_of(problem, None))


def moved(layers: list[LayerChange]) -> float:
    """A tensor that was zero has no relative change."""
    return sum(one.largest_after if one.relative is None else one.relative for one in layers)


@pytest.mark.parametrize("method", [{"kind": "full"}, {"kind": "bias"}, {"kind": "lora", "rank": 2}], ids=str)
def test_a_job_is_softened_at_its_end(problem: Problem, tmp_path: Path, method: dict[str, Any]) -> None:
    extra: dict[str, Any] = {"method": method, "freeze": []}
    run(problem, tmp_path / "free", fast(problem, **extra))
    most = 0.5 * turns_of(tmp_path / "free")[-1]
    run(problem, tmp_path / "soft", fast(problem, guard={"limit": most, "action": "soften"}, **extra))
    # Nothing is different until the end.
    assert log_of(tmp_path / "soft") == log_of(tmp_path / "free")
    tuned, start = query_of(tmp_path / "free"), problem.fresh().query
    expected = soften(tuned, start, guard_of(problem, most))
    assert 0 < expected.share < 1
    left = dict(query_of(tmp_path / "soft").named_parameters())
    for name, weights in expected.tower.named_parameters():
        assert torch.allclose(left[name], weights, atol=1e-6)
    soft, free = (read_result(tmp_path / name / "result.json").training for name in ("soft", "free"))
    assert f"; softened: {expected.share:.1%} of the change was kept" in soft.stop_reason
    assert {one.name for one in soft.layers} == {one.name for one in free.layers}
    assert 0 < moved(soft.layers) < 0.9 * moved(free.layers)


def test_merging_leaves_a_tower_without_adapters_as_it_is(plain: Path) -> None:
    tower = query_of(plain)
    assert merged_tower(tower) is tower
