"""The tower that a tenant takes: its rule on given measures, and the average of weights."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from adiabat.adiabatic import tenant_choice as module
from adiabat.adiabatic.judged_queries import JudgedQueries
from adiabat.adiabatic.tenant_choice import TowerChooser, judged_file, tuned_tower, write_average
from adiabat.core.text import counted
from adiabat.models.encoder import Encoder
from adiabat.models.model_names import load, trained_by
from adiabat.models.towers import averaged, trainable_copy, with_projection
from adiabat.results.record import read_result
from tests.adiabatic.problem import Problem, problem_model, run, settings_of, write_problem

QUERIES = 40


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    return write_problem(tmp_path_factory.mktemp("tenant"), queries=QUERIES, documents=QUERIES * 4)


@pytest.fixture(scope="module")
def judged(world: Problem) -> JudgedQueries:
    return judged_file(world.context(), world.data, settings_of())


def changed(tower: Encoder, seed: int) -> Encoder:
    """A copy with other weights."""
    twin, generator = trainable_copy(tower), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in twin.parameters():
            weights.add_(0.05 * torch.randn(weights.shape, generator=generator))
    return twin


def values_of(tower: Encoder) -> dict[str, torch.Tensor]:
    return dict(tower.used_parameters())


NOISE = np.resize([0.06, -0.06], QUERIES)
"""Differences of mean 0, whose one-sided 80 % reaches about 0.008."""


@pytest.mark.parametrize(
    ("gains", "lost", "kept"),
    [
        ({"shared": 0.05, "average": 0.05, "own": 0.05}, (), "shared"),
        ({"shared": 0.05, "average": 0.05, "own": 0.09}, (), "own"),
        ({"shared": 0.05, "average": 0.09, "own": 0.09}, (), "average"),
        ({"shared": 0.05, "average": 0.07, "own": 0.12}, (), "own"),
        ({"shared": 0.05, "average": 0.055, "own": 0.05}, (), "shared"),
        ({"shared": 0.05, "average": 0.09, "own": 0.12}, ("own",), "average"),
        ({"shared": 0.05, "average": 0.09, "own": 0.12}, ("own", "average"), "shared"),
        ({"shared": -0.05, "average": -0.05, "own": -0.05}, (), "start"),
        ({"shared": 0.0, "average": 0.0, "own": 0.0}, (), "shared"),
    ],
)
def test_another_tower_replaces_the_shared_one_where_it_ranks_better_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
    judged: JudgedQueries,
    gains: dict[str, float],
    lost: tuple[str, ...],
    kept: str,
) -> None:
    tower = problem_model().query
    names = {"start": tower, "shared": changed(tower, 1), "own": changed(tower, 2)}
    monkeypatch.setattr(module, "averaged", lambda first, second: names["average"])
    names["average"] = changed(tower, 3)
    called = {id(each): name for name, each in names.items()}
    retained = JudgedQueries(**{name: getattr(judged, name) for name in judged.__dataclass_fields__})

    def scores(self: TowerChooser, tower: Encoder, queries: JudgedQueries) -> np.ndarray:
        name = called[id(tower)]
        if queries is retained:
            return np.full(QUERIES, 0.3 if name in lost else 0.5)
        # Noise of its own sign tells the towers apart by more than a mean.
        sign = {"start": 0, "shared": 1, "average": -1, "own": 1}[name]
        return 0.5 + gains.get(name, 0.0) + sign * NOISE

    monkeypatch.setattr(TowerChooser, "_scores", scores)
    chooser = TowerChooser(names["start"], names["shared"], [retained])
    found = chooser.choose(judged, names["own"], "")
    assert found.name == kept
    assert counted(QUERIES, "validation query") in found.why
    assert [tower.name for tower in found.towers] == ["shared", "average", "own"]
    for tower_of in found.towers:
        assert tower_of.figures[0].change == pytest.approx(gains[tower_of.name])
        assert tower_of.figures[1].is_retained == (tower_of.name not in lost)


def test_the_test_is_a_paired_t_test_at_eighty_percent(
    monkeypatch: pytest.MonkeyPatch, judged: JudgedQueries
) -> None:
    start = problem_model().query
    shared, own = changed(start, 1), changed(start, 2)
    rng = np.random.default_rng(4)
    difference = rng.normal(0.0, 0.1, QUERIES)
    # The queries of the problem share documents, and are drawn with them.
    owners = judged.examples.positives.values
    sums, sizes = np.bincount(owners, difference), np.bincount(owners)
    kept = sizes > 0
    units, mean = kept.sum(), difference.mean()
    left_out = (sums.sum() - sums[kept]) / (sizes.sum() - sizes[kept])
    error = np.sqrt((units - 1) / units * ((left_out - left_out.mean()) ** 2).sum())
    worth = sizes.sum() ** 2 / (sizes**2).sum()
    edge = stats.t.ppf(0.8, worth - 1) * error - mean
    monkeypatch.setattr(module, "averaged", lambda first, second: start)
    for shift, name in ((edge + 1e-6, "own"), (edge - 1e-6, "shared")):
        by_tower = {id(start): np.zeros(QUERIES), id(shared): np.full(QUERIES, 0.2)}
        by_tower[id(own)] = 0.2 + difference + shift
        monkeypatch.setattr(
            TowerChooser, "_scores", lambda self, tower, _, values=by_tower: values[id(tower)]
        )
        assert TowerChooser(start, shared, []).choose(judged, own, "").name == name


def test_a_tenant_without_own_tower_or_queries_takes_the_shared_tower_or_the_start(
    judged: JudgedQueries,
) -> None:
    start = problem_model().query
    assert TowerChooser(start, start, []).choose(None, None, "no queries").name == "shared"
    assert TowerChooser(start, None, []).choose(None, None, "no queries").name == "start"
    few = TowerChooser(start, start, []).choose(judged, None, "3 queries of 100")
    assert few.name == "shared"
    assert few.why == "3 queries of 100"
    assert [tower.name for tower in few.towers] == ["shared"]


def test_the_average_has_the_mean_of_each_weight() -> None:
    start = problem_model().query
    first, second = changed(start, 1), changed(start, 2)
    mean = values_of(averaged(first, second))
    for name, weights in values_of(first).items():
        torch.testing.assert_close(mean[name], (weights + values_of(second)[name]) / 2)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_map_that_one_tower_lacks_counts_as_the_identity(swapped: bool) -> None:
    start = problem_model().query
    weights = torch.eye(start.width) + 0.2 * torch.randn(
        start.width, start.width, generator=torch.Generator().manual_seed(1)
    )
    pair = [with_projection(changed(start, 1), weights), changed(start, 2)]
    mean = averaged(*reversed(pair)) if swapped else averaged(*pair)
    (layer,) = mean.projection_list()
    expected = (torch.eye(start.width) + weights) / 2
    inputs = torch.randn(3, start.width, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(layer(inputs), inputs @ expected)


def test_the_average_of_two_jobs_is_a_model_with_the_texts_of_both(problem: Problem, tmp_path: Path) -> None:
    settings = settings_of()
    run(problem, tmp_path / "own", settings)
    other = write_problem(tmp_path / "other", queries=30)
    shared = Problem(problem.model, problem.store, other.data)
    run(shared, tmp_path / "shared", settings)
    towers = [tuned_tower(tmp_path / name, settings) for name in ("own", "shared")]
    assert towers[0] is not None
    assert towers[1] is not None
    write_average(tmp_path / "own", tmp_path / "shared", tmp_path / "mean", averaged(*towers))
    loaded = load(tmp_path / "mean").query
    for name, weights in values_of(loaded).items():
        torch.testing.assert_close(weights, (values_of(towers[0])[name] + values_of(towers[1])[name]) / 2)
    texts = trained_by(tmp_path / "mean")
    assert texts is not None
    for name in ("own", "shared"):
        known = trained_by(tmp_path / name)
        assert known is not None
        assert {*known.queries} <= {*texts.queries}
    notes = read_result(tmp_path / "mean" / "result.json").training.notes
    assert notes[-1].startswith("the weights are the means of those of")


def test_a_job_that_kept_its_start_has_no_tower_of_its_own(problem: Problem, tmp_path: Path) -> None:
    idle = settings_of(tune={"learning_rate": 1e-12, "max_epochs": 1})
    run(problem, tmp_path / "idle", idle)
    assert tuned_tower(tmp_path / "idle", idle) is None
