"""The choice of the result among candidates: their towers and figures by brute force, the rule, and the half
of a retention set that chose.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

import adiabat
from adiabat.adiabatic import choice as module
from adiabat.adiabatic.choice import SHARES, Choice, Judges, choose, seconds_to_choose
from adiabat.adiabatic.judged_queries import JudgedQueries, choosing_half
from adiabat.adiabatic.linear_map import PULLS
from adiabat.adiabatic.tuning_context import TuningContext
from adiabat.config.reader import checked
from adiabat.config.shared import RetainSection
from adiabat.config.tuning import TuneSettings
from adiabat.core.errors import ConfigError, DataError
from adiabat.core.progress import SILENT
from adiabat.models.encoder import Encoder
from adiabat.models.model_names import trained_by
from adiabat.models.towers import trainable_copy
from adiabat.results.training_record import Candidate, CandidateFigure
from adiabat.store.vector_store import Store
from tests.adiabatic.problem import Problem, run, settings_of, write_problem
from tests.commands import lines
from tests.jobs import everything

BY_RANKING = {"keep": "ranking", "idle_epochs": 3}


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    return write_problem(tmp_path_factory.mktemp("problem"), queries=80)


@pytest.fixture(scope="module")
def retained(problem: Problem) -> RetainSection:
    """Other questions on the documents of the problem."""
    rows = [{"query": f"what of {number}?", "pos": [f"d{number % 50}"]} for number in range(100)]
    path = problem.data.parent / "retained.jsonl"
    lines(path, rows)
    return RetainSection(store=str(problem.store), data=str(path))


def by_ranking(*retained: RetainSection, **tune: object) -> TuneSettings:
    settings = settings_of(tune={**BY_RANKING, **tune})
    return settings.model_copy(update={"retain": retained})


@pytest.fixture(scope="module")
def context(problem: Problem) -> TuningContext:
    return problem.context()


@pytest.fixture(scope="module")
def judges(context: TuningContext, retained: RetainSection) -> Judges:
    settings = by_ranking(retained)
    objective = context.objective(trainable_copy(context.model.query), settings)
    return context.judges(settings, objective)


@pytest.fixture(scope="module")
def tuned(context: TuningContext) -> Encoder:
    """The query tower with other weights."""
    tower = trainable_copy(context.model.query)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weights in tower.parameters():
            weights.add_(0.05 * torch.randn(weights.shape, generator=generator))
    return tower


def chosen_by(context: TuningContext, judges: Judges, tuned: Encoder | None) -> Choice:
    return choose(context.model.query, tuned, judges, guard=None, seed=0, watch=SILENT)


def brute_ndcg(store: Store, vectors: np.ndarray, queries: JudgedQueries) -> list[float]:
    """nDCG@10 of each query by sorting all documents, its relevant ones behind others of equal score."""
    documents = store.gather(np.arange(store.count))
    found = []
    for vector, relevant in zip(vectors, queries.examples.positives, strict=True):
        scores = documents @ vector / np.linalg.norm(documents, axis=1) / np.linalg.norm(vector)
        is_relevant = np.isin(np.arange(store.count), relevant)
        order = np.lexsort((is_relevant, -scores.astype(np.float32)))[:10]
        gain = sum(1 / math.log2(2 + rank) for rank, row in enumerate(order) if is_relevant[row])
        found.append(gain / sum(1 / math.log2(2 + rank) for rank in range(min(10, len(relevant)))))
    return found


def test_the_figures_of_candidates_are_those_of_sorting_all_documents(
    context: TuningContext, judges: Judges, tuned: Encoder, problem: Problem
) -> None:
    found = chosen_by(context, judges, tuned).candidates
    assert [(each.share, each.pull) for each in found] == [
        *((share, None) for share in SHARES),
        *((1.0, pull) for pull in PULLS),
        *((0.0, pull) for pull in PULLS),
    ]
    store, start = Store.open(problem.store), context.model.query
    half = trainable_copy(start)
    with torch.no_grad():
        pairs = zip(half.parameters(), start.parameters(), tuned.parameters(), strict=True)
        for weights, before, after in pairs:
            weights.copy_((before + after) / 2)
    for place, queries in enumerate((judges.validation, *judges.retained)):
        texts = queries.examples.queries
        values = [
            np.array(brute_ndcg(store, tower.encode(texts, side="query", precision="fp32"), queries))
            for tower in (start, half)
        ]
        figure = found[SHARES.index(0.5)].figures[place]
        change = values[1] - values[0]
        assert figure.before == pytest.approx(values[0].mean(), abs=1e-6)
        assert figure.change == pytest.approx(change.mean(), abs=1e-6)


def test_the_lower_ends_are_those_of_a_t_interval_of_clusters_of_queries(
    context: TuningContext, judges: Judges
) -> None:
    queries, rng = judges.validation, np.random.default_rng(1)
    before, after = rng.uniform(size=(2, len(queries.examples)))
    found = module._figure(queries, after, before, 0.8)
    # Queries of the problem have one relevant document, and those of one document are one unit.
    owners = queries.examples.positives.values
    change, weight = np.bincount(owners, after - before), np.bincount(owners)
    kept = weight > 0
    units = kept.sum()
    left_out = (change.sum() - change[kept]) / (weight.sum() - weight[kept])
    error = math.sqrt((units - 1) / units * ((left_out - left_out.mean()) ** 2).sum())
    worth = weight.sum() ** 2 / (weight**2).sum()
    assert found.lowest == pytest.approx(found.change - stats.t.ppf(0.8, worth - 1) * error)
    # A loss of 1 % of each query is the margin itself.
    assert not module._figure(queries, 0.99 * before, before, 0.8).is_retained
    assert module._figure(queries, 0.995 * before, before, 0.8).is_retained


def test_the_tower_of_a_map_gives_the_vectors_that_were_judged(
    context: TuningContext, judges: Judges, tuned: Encoder
) -> None:
    start = context.model.query
    for base, share in ((start, 0.0), (tuned, 1.0)):
        vectors = [judges.validation.vectors(base)]
        for way in module._maps(base, share, vectors, judges.mapped, 0, SILENT):
            judged = way.vectors[0] / np.linalg.norm(way.vectors[0], axis=1, keepdims=True)
            assert judges.validation.vectors(way.tower().eval()) == pytest.approx(judged, abs=1e-5)


def figures(*changes: float) -> tuple[CandidateFigure, ...]:
    """Changes of the target, then of retention sets; one of -0.02 or less is a loss."""
    return tuple(CandidateFigure("set", 40, 0.5, each, each - 0.005, each > -0.02) for each in changes)


@pytest.mark.parametrize(
    ("changes", "outside", "kept"),
    [
        ({0: (0.03, 0.0), 1: (0.05, 0.0)}, (), 1),
        ({0: (0.03, 0.0), 1: (0.05, -0.03)}, (), 0),
        ({0: (0.03, 0.0), 1: (0.03, 0.0)}, (), 0),
        ({0: (0.03, 0.0), 5: (0.05, 0.0)}, (5,), 0),
        ({0: (0.004, 0.0)}, (), None),
        ({}, (), None),
    ],
)
def test_the_best_of_those_that_lose_nothing_is_kept(
    monkeypatch: pytest.MonkeyPatch,
    context: TuningContext,
    judges: Judges,
    tuned: Encoder,
    changes: dict[int, tuple[float, float]],
    outside: Sequence[int],
    kept: int | None,
) -> None:
    made: list[int] = []

    def figure(queries: JudgedQueries, *given: object) -> CandidateFigure:
        place = len(made) // 2
        made.append(place)
        return figures(*changes.get(place, (0.0, 0.0)))[(len(made) - 1) % 2]

    class OneGuard:
        """Finds the drift of some candidates, asked in the order of their gains, beyond its limit."""

        limit = 0.1

        def look(self, tower: Encoder) -> object:
            asked = next(order)
            return type("Look", (), {"outside": "too far" if asked in outside else None})()

    order = iter(sorted(changes, key=lambda place: -changes[place][0]))
    monkeypatch.setattr(module, "_figure", figure)
    guard = OneGuard() if outside else None
    found = choose(context.model.query, tuned, judges, guard=guard, seed=0, watch=SILENT)  # type: ignore[arg-type]
    assert [number for number, each in enumerate(found.candidates) if each.kept] == (
        [] if kept is None else [kept]
    )
    if kept is None:
        assert found.tower is context.model.query
    assert [number for number, each in enumerate(found.candidates) if each.outside] == list(outside)


def test_a_run_whose_epochs_are_all_idle_judges_the_maps_of_its_start_alone(
    context: TuningContext, judges: Judges
) -> None:
    found = chosen_by(context, judges, None).candidates
    assert [(each.share, each.pull) for each in found] == [(0.0, pull) for pull in PULLS]
    assert seconds_to_choose(judges, 0.01, torch.device("cpu")) > 0.01 * len(judges.mapped.examples)


def test_a_job_writes_its_candidates_and_is_the_one_that_it_kept(
    problem: Problem, retained: RetainSection, tmp_path: Path
) -> None:
    result = run(problem, tmp_path / "job", by_ranking(retained))
    assert result.training is not None
    assert len(result.training.candidates) in (len(PULLS), len(SHARES) + 2 * len(PULLS))
    ends = dict(result.training.measures["nDCG@10"])
    assert ends[0] == pytest.approx(result.training.candidates[0].figures[0].before)
    kept = [each for each in result.training.candidates if each.kept]
    assert (kept[0].name if kept else "the start was kept") in result.training.stop_reason


def test_a_job_killed_in_its_choice_is_resumed_bit_for_bit(
    problem: Problem, retained: RetainSection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = by_ranking(retained)
    run(problem, tmp_path / "whole", settings)

    def stop(*_: object, **__: object) -> Choice:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("adiabat.adiabatic.tune.choose", stop)
        with pytest.raises(KeyboardInterrupt):
            run(problem, tmp_path / "cut", settings)
    run(problem, tmp_path / "cut", settings, resume=True)
    assert everything(tmp_path / "cut") == everything(tmp_path / "whole")


def test_the_half_that_chose_is_recorded_as_trained_on(
    problem: Problem, retained: RetainSection, tmp_path: Path
) -> None:
    run(problem, tmp_path / "job", by_ranking(retained))
    chose = choosing_half(retained, Store.open(problem.store)).queries
    every = [f"what of {number}?" for number in range(100)]
    texts = trained_by(tmp_path / "job")
    assert texts is not None
    assert [query for query, held in zip(every, texts.holds_queries(every), strict=True) if held] == sorted(
        chose, key=every.index
    )
    # Halves share no relevant document.
    rows = {int(query.split()[-1][:-1]) % 50 for query in chose}
    assert not rows & {int(query.split()[-1][:-1]) % 50 for query in {*every} - {*chose}}


def test_queries_of_the_target_and_too_few_are_no_retention_set(problem: Problem, tmp_path: Path) -> None:
    own = RetainSection(store=str(problem.store), data=str(problem.data))
    with pytest.raises(ConfigError, match="retain must be another data set"):
        run(problem, tmp_path / "job", by_ranking(own))
    lines(tmp_path / "few.jsonl", [{"query": f"what {n}?", "pos": [f"d{n}"]} for n in range(30)])
    few = RetainSection(store=str(problem.store), data=str(tmp_path / "few.jsonl"))
    with pytest.raises(DataError, match="must hold at least 40 queries, half of which choose, got 30"):
        run(problem, tmp_path / "job", by_ranking(few))
    assert not (tmp_path / "job").exists()


def test_retention_sets_need_a_run_that_keeps_by_ranking(
    problem: Problem, retained: RetainSection, tmp_path: Path
) -> None:
    make = partial(adiabat.tune, "demo", problem.store, problem.data, tmp_path / "job")
    sets = [(retained.store, retained.data)]
    with pytest.raises(ConfigError, match=r"tune.keep must be ranking with retain.*got both"):
        make(retain=sets, learning_rate=1e-6)
    # A file that states no recipe takes the usual one, which keeps by ranking.
    stated = checked(TuneSettings, {"retain": [{"store": retained.store, "data": retained.data}]})
    assert stated.with_usual_recipe().tune.keep == "ranking"
    settings = by_ranking(retained, keep="both")
    with pytest.raises(ConfigError, match="tune.keep must be ranking"):
        run(problem, tmp_path / "job", settings)


def test_a_candidate_is_named_by_its_share_and_its_map() -> None:
    assert Candidate(0.75).name == "75% of the change"
    assert Candidate(0.0, 0.3).name == "the start with a linear map (pull 0.3)"
    assert Candidate(1.0, 3.0).name == "the tuned tower with a linear map (pull 3)"
    assert replace(Candidate(1.0), figures=figures(0.03, 0.0)).is_sound
