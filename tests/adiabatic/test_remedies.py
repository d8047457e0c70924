"""What holds a tuned tower near its start, against the same by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn, optim
from torch.nn import functional

from adiabat.adiabatic.drift import TURN
from adiabat.adiabatic.probes import read_probes
from adiabat.adiabatic.regularization import Guard, l2_to_start, soften
from adiabat.adiabatic.tuning_context import TuningContext, prepared_tower
from adiabat.config.reader import checked
from adiabat.config.tuning import TuneSettings
from adiabat.core.errors import ConfigError, InterruptionError
from adiabat.models.encoder import Encoder
from adiabat.models.loading import load
from adiabat.models.towers import interpolated, merged_tower
from adiabat.results.record import read_result
from adiabat.results.training_record import LayerChange
from adiabat.store.vector_store import Store
from adiabat.training.loop import Loop
from tests.adiabatic.problem import Problem, run, settings_of
from tests.jobs import log_of, weights_of

FAST = {"learning_rate": 3e-3, "keep": "last"}


def settings(
    problem: Problem,
    *,
    guard: dict[str, Any] | None = None,
    rehearsal: dict[str, Any] | None = None,
    **tune: Any,
) -> TuneSettings:
    """A job that drifts, whose drift is looked at."""
    table = settings_of(tune=FAST | tune).model_dump(exclude_defaults=True)
    probes, texts = (str(problem.data.with_name(f"{name}.txt")) for name in ("probes", "rehearsed"))
    own = {} if rehearsal is None else {"rehearsal": {"texts": texts, **rehearsal}}
    return checked(
        TuneSettings,
        {**table, **own, "guard": {"probes": probes, "depth": 10, "measure": TURN, **(guard or {})}},
    )


def query_of(out: Path) -> Encoder:
    return load(out / "model").query


def drift_at_the_end(out: Path) -> float:
    return [row[f"validation_{TURN}"] for row in log_of(out) if "validation_loss" in row][-1]


def guard_of(problem: Problem, most: float | None) -> Guard:
    section = settings(problem, guard={} if most is None else {"limit": most}).guard
    return Guard.of(section, read_probes(section.probes), problem.fresh(), Store.open(problem.store))


@pytest.fixture(scope="module")
def plain(problem: Problem, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job that nothing holds."""
    out = tmp_path_factory.mktemp("plain") / "job"
    run(problem, out, settings(problem))
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
    pulled = settings(problem, l2_to_start=1.0)
    run(problem, tmp_path / "straight", pulled)
    assert 0 < drift_at_the_end(tmp_path / "straight") < 0.8 * drift_at_the_end(plain)
    end_epoch = Loop._end_epoch

    def cut(self: Loop) -> None:
        end_epoch(self)
        if self.position.epoch == 2:
            self.save()
            raise InterruptionError("cut")

    monkeypatch.setattr(Loop, "_end_epoch", cut)
    with pytest.raises(InterruptionError):
        run(problem, tmp_path / "cut", pulled)
    monkeypatch.setattr(Loop, "_end_epoch", end_epoch)
    run(problem, tmp_path / "cut", pulled, resume=True)
    assert weights_of(query_of(tmp_path / "cut")) == weights_of(query_of(tmp_path / "straight"))


def test_a_rehearsal_adds_its_distance_to_the_loss(problem: Problem) -> None:
    wanted = settings(problem, rehearsal={"weight": 2.5, "texts_per_step": 5})
    context = TuningContext(problem.fresh, problem.store, str(problem.data))
    tower, _ = prepared_tower(context.model.query, wanted)
    with torch.no_grad():
        for weights in tower.parameters():
            weights += 0.05 * torch.randn(weights.shape, generator=torch.Generator().manual_seed(1))
    held, free = context.objective(tower, wanted), context.objective(tower, settings(problem))
    texts = [f"rehearsed {number} of nothing" for number in range(24)]
    for step in (0, 3, 9):
        picked = [texts[row] for row in held.rehearsal.sampler.rows(step)] if held.rehearsal else []
        assert len(set(picked)) == 5 or step == 9
        now, before = (
            torch.from_numpy(one.encode(picked, side="query", precision="fp32"))
            for one in (tower, context.model.query)
        )
        added = 2.5 * (1 - functional.cosine_similarity(now, before)).mean()
        assert float((held.loss(step) - free.loss(step)).detach()) == pytest.approx(float(added), rel=1e-4)


def test_a_rehearsal_holds_texts_that_are_not_its_own_too(
    problem: Problem, plain: Path, tmp_path: Path
) -> None:
    run(problem, tmp_path / "held", settings(problem, rehearsal={"weight": 5.0}))
    assert drift_at_the_end(tmp_path / "held") < 0.8 * drift_at_the_end(plain)


def test_rehearsed_texts_must_be_no_probes(problem: Problem, tmp_path: Path) -> None:
    probes = str(problem.data.with_name("probes.txt"))
    with pytest.raises(
        ConfigError, match=r"rehearsal.texts must differ from the probes of drift, got 24 that are also in"
    ):
        run(problem, tmp_path / "job", settings(problem, guard={}, rehearsal={"texts": probes}))
    assert not (tmp_path / "job").exists()
    unwatched = checked(TuneSettings, {"rehearsal": {"texts": probes}})
    TuningContext(problem.fresh, problem.store, str(problem.data)).require_possible([unwatched])


def test_rehearsed_texts_are_read_and_embedded_once(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = TuningContext(problem.fresh, problem.store, str(problem.data))
    runs = [settings(problem, rehearsal={"weight": weight}) for weight in (1.0, 2.0)]
    context.require_possible(runs)
    monkeypatch.setattr("adiabat.adiabatic.regularization.at_start", None)
    monkeypatch.setattr("adiabat.adiabatic.probes.read_probes", None)
    for one in runs:
        tower, _ = prepared_tower(context.model.query, one)
        assert context.objective(tower, one).rehearsal
        assert context.digests(one)["rehearsed"] == context.probes(one.rehearsal.texts).sha256


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_weights_between_are_on_the_line_and_its_ends_exact(
    problem: Problem, plain: Path, share: float
) -> None:
    tuned, start = query_of(plain), problem.fresh().query
    between = dict(interpolated(tuned, start, share).named_parameters())
    before, after = dict(start.named_parameters()), dict(tuned.named_parameters())
    for name, weights in between.items():
        expected = before[name] + share * (after[name] - before[name])
        assert (
            torch.equal(weights, expected)
            if share in (0.0, 1.0) and share == 0
            else torch.allclose(weights, expected, atol=1e-7)
        )
    if share == 1.0:
        assert weights_of(interpolated(tuned, start, share)) == weights_of(tuned)


def test_a_tower_is_taken_back_to_the_furthest_point_inside(problem: Problem, plain: Path) -> None:
    tuned, start = query_of(plain), problem.fresh().query
    whole = guard_of(problem, None).look(tuned).measures[TURN]
    guard = guard_of(problem, 0.4 * whole)
    found = soften(tuned, start, guard)
    assert found.drift == guard.look(found.tower).measures[TURN] <= 0.4 * whole
    shares = np.linspace(0, 1, 65)
    inside = [
        share
        for share in shares
        if guard.look(interpolated(tuned, start, float(share))).measures[TURN] <= 0.4 * whole
    ]
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


@pytest.mark.parametrize("method", ["full", "bias", "lora"])
def test_a_job_is_softened_once_it_has_ended(problem: Problem, tmp_path: Path, method: str) -> None:
    extra: dict[str, Any] = {
        "method": {"kind": method} | ({"rank": 2} if method == "lora" else {}),
        "freeze": [],
    }
    run(problem, tmp_path / "free", settings(problem, **extra))
    most = 0.5 * drift_at_the_end(tmp_path / "free")
    run(problem, tmp_path / "soft", settings(problem, guard={"limit": most, "action": "soften"}, **extra))
    # Nothing is different until the end.
    assert log_of(tmp_path / "soft") == log_of(tmp_path / "free")
    tuned, start = query_of(tmp_path / "free"), problem.fresh().query
    expected = soften(tuned, start, guard_of(problem, most))
    assert 0 < expected.share < 1
    left = query_of(tmp_path / "soft")
    for name, weights in expected.tower.named_parameters():
        assert torch.allclose(dict(left.named_parameters())[name], weights, atol=1e-6)
    record = read_result(tmp_path / "soft" / "result.json").training
    assert record is not None
    assert f"; softened: {expected.share:.1%} of the change was kept" in record.stop_reason
    whole = read_result(tmp_path / "free" / "result.json").training
    assert whole is not None
    assert {one.name for one in record.layers} == {one.name for one in whole.layers}
    assert 0 < moved(record.layers) < 0.9 * moved(whole.layers)


def test_softening_needs_a_limit() -> None:
    with pytest.raises(
        ConfigError, match=r"guard.action has no effect without guard.limit; leave it out, or set guard.limit"
    ):
        checked(TuneSettings, {"guard": {"action": "soften"}})


def test_merging_leaves_a_tower_without_adapters_as_it_is(plain: Path) -> None:
    tower = query_of(plain)
    assert merged_tower(tower) is tower
