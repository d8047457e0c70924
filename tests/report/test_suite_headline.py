"""What follows from the values of a suite: best models, ranks, means, findings."""

import random
from dataclasses import replace
from typing import get_args

import pytest

from adiabat.evaluation.suite_findings import analysed
from adiabat.report.suite_headline import Overview
from adiabat.results.suite_result import ModelStanding, SuiteResult, by_kind, equal_values
from adiabat.results.verdict import Word
from tests.report.sample_suites import full_suite, make_suite, make_task

VALUES = {
    "first": {"a": 0.5, "b": 0.6, "c": 0.6},
    "second": {"a": 0.9, "b": 0.3, "c": 0.1},
    "alone": {"a": 0.2},
}


def view_of(values=VALUES, **options) -> Overview:
    return Overview(make_suite(values, **options))


def standings(view: Overview) -> list[ModelStanding]:
    return view.result.analysis.models


LAST_DIGIT = {
    "x": {f"m{number}": value for number, value in enumerate((0.3, 0.1 + 0.2, 0.3, 0.1 + 0.2, 0.3 - 1e-16))}
}


def test_values_that_differ_in_their_last_digit_share_ranks_and_the_reference_leads() -> None:
    assert len(set(LAST_DIGIT["x"].values())) == 3
    view = view_of(LAST_DIGIT)
    ranking = view.rankings["x"]
    assert set(ranking.ranks.values()) == {3}
    assert (ranking.against, ranking.best, ranking.clear) == ("m1", ["m1", "m0", "m2", "m3", "m4"], False)
    assert [view.mark("x", model).best for model in LAST_DIGIT["x"]] == [True] * 5


@pytest.mark.parametrize(
    ("first", "second", "equal"),
    [
        (0.3, 0.1 + 0.2, True),
        (0.3, 0.3 + 1e-11, False),
        (0.0, 1e-17, True),
        (1e6, 1e6 + 1e-7, True),
        (0.5, 0.4, False),
        (-0.2, 0.2, False),
    ],
)
def test_only_rounding_makes_no_difference(first, second, equal) -> None:
    assert equal_values(first, second) is equal_values(second, first) is equal


def test_ranks_are_those_of_sorting_by_hand() -> None:
    draw = random.Random(3)
    models = [f"m{model}" for model in range(6)]
    values = {
        f"t{task}": {model: draw.choice([0.1, 0.2, 0.3, 0.4]) for model in models} for task in range(20)
    }
    kinds = {f"t{task}": "triplets" for task in range(0, 20, 2)}
    view = view_of(values, kinds=kinds)
    for task, by_model in values.items():
        order = sorted(by_model.values(), reverse=task not in kinds)
        for model, value in by_model.items():
            places = [place for place, other in enumerate(order, start=1) if other == value]
            assert view.rankings[task].ranks[model] == sum(places) / len(places)


def test_the_order_of_models_changes_nothing() -> None:
    # Of two equal best models either may be the one that others are compared with.
    turned = view_of({task: dict(reversed(by_model.items())) for task, by_model in VALUES.items()})
    for task, ranking in view_of().rankings.items():
        assert ranking.ranks == turned.rankings[task].ranks
        assert set(ranking.best) == set(turned.rankings[task].best)
    assert sorted(standings(view_of()), key=str) == sorted(standings(turned), key=str)


def test_a_task_that_one_model_did_has_no_best_and_no_rank() -> None:
    view = view_of()
    assert {name: (set(ranking.best), ranking.ranks) for name, ranking in view.rankings.items()} == {
        "first": ({"b", "c"}, {"a": 3, "b": 1.5, "c": 1.5}),
        "second": ({"a"}, {"a": 1, "b": 2, "c": 3}),
        "alone": (set(), {}),
    }
    assert [standing.tasks for standing in standings(view)] == [3, 2, 2]


def test_where_lower_is_better_a_fall_is_better() -> None:
    for baseline, verdict in ((None, ("b", "worse")), ("b", ("a", "better"))):
        view = view_of({"x": {"a": 0.2, "b": 0.4}}, kinds={"x": "triplets"}, baseline=baseline)
        assert view.rankings["x"].best == ["a"]
        assert (view.pairings["x", verdict[0]].verdict) == verdict[1]


TWO_REFERENCES = {
    "x": {"a": 0.6, "b": 0.5, "c": 0.4},
    "y": {"a": 0.6, "c": 0.59},
    "z": {"a": 0.3, "c": 0.5},
    "alone": {"a": 0.5},
}
BEST, BEST_AND_BETTER, EVEN = (True, False, None), (True, False, "better"), (False, True, None)
WORSE, BETTER, NONE = (False, False, "worse"), (False, False, "better"), (False, False, None)


@pytest.mark.parametrize(
    ("values", "baseline", "marks", "clear"),
    [
        # A best model is clear where all others are measurably worse; whoever is is marked too, so that no
        # mark says nothing.
        ({"x": {"a": 0.6, "b": 0.5, "c": 0.4}}, None, {"x": [BEST, WORSE, WORSE]}, {"x"}),
        ({"x": {"a": 0.6, "b": 0.59, "c": 0.4}}, None, {"x": [BEST, EVEN, WORSE]}, set()),
        ({"x": {"a": 0.6, "b": 0.6, "c": 0.4}}, None, {"x": [BEST, BEST, WORSE]}, set()),
        # Beside a baseline nothing is said of who is even with the best.
        ({"x": {"a": 0.6, "b": 0.5, "c": 0.59}}, "b", {"x": [BEST_AND_BETTER, NONE, BETTER]}, set()),
        ({"x": {"a": 0.6, "b": 0.5}}, "a", {"x": [BEST, WORSE]}, {"x"}),
        # The baseline is the reference where it did the task, else the best.
        (
            TWO_REFERENCES,
            "b",
            {"x": [BEST_AND_BETTER, NONE, WORSE], "y": [BEST, EVEN], "z": [WORSE, BEST], "alone": [NONE]},
            {"z"},
        ),
    ],
)
def test_marks_say_no_more_than_the_comparisons(values, baseline: str | None, marks, clear: set[str]) -> None:
    view = view_of(values, baseline=baseline)
    for task, by_model in values.items():
        found = [view.mark(task, model) for model in by_model]
        assert [(mark.best, mark.even, mark.verdict) for mark in found] == marks[task], task
    assert {task for task, ranking in view.rankings.items() if ranking.clear} == clear


def test_the_baseline_is_the_reference_where_it_did_the_task_else_the_best() -> None:
    view = view_of(TWO_REFERENCES, baseline="b")
    against = {name: ranking.against for name, ranking in view.rankings.items()}
    assert against == {"x": "b", "y": "a", "z": "c", "alone": None}
    assert (view.result.beside_best, view.result.mixed) == (["y", "z"], True)
    assert [standing.even for standing in standings(view)] == [1, None, 2]
    beside = view_of({"x": {"a": 0.6, "b": 0.5}}, baseline="b")
    assert [standing.even for standing in standings(beside)] == [None] * 2
    assert view_of(TWO_REFERENCES).result.beside_best == ["x", "y", "z"]
    for baseline in (None, "a"):
        assert not view_of(TWO_REFERENCES, baseline=baseline).result.mixed
    assert not view_of({"x": {"a": 0.6, "c": 0.5}, "y": {"b": 0.5}}, baseline="b").result.mixed


NOTHING = dict.fromkeys(get_args(Word), 0)


def test_findings_count_only_tasks_that_the_baseline_did() -> None:
    view = view_of({"x": {"a": 0.6, "b": 0.5}, "y": {"a": 0.6, "c": 0.5}}, baseline="b")
    verdicts = {standing.model: standing.verdicts for standing in standings(view)}
    assert verdicts == {"a": NOTHING | {"better": 1}, "b": None, "c": NOTHING}
    assert view.mark("y", "c").verdict == "worse"
    assert "c" not in view.rankings["y"].even


def test_only_a_model_that_did_what_several_did_has_a_mean_rank() -> None:
    def mean_ranks(values: dict[str, dict[str, float]]) -> list[float | None]:
        return [standing.mean_rank for standing in standings(view_of(values))]

    assert mean_ranks(TWO_REFERENCES) == [pytest.approx(4 / 3), None, pytest.approx(2)]
    # Each lacks another task, so no two means would be over the same ones.
    turns = {"x": {"a": 0.6, "b": 0.5}, "y": {"b": 0.6, "c": 0.5}, "z": {"a": 0.5, "c": 0.6}}
    assert mean_ranks(turns) == [None] * 3
    assert mean_ranks({"x": {"a": 0.6}}) == [None]


def test_tasks_stand_beside_others_of_their_kind_in_the_order_of_the_suite() -> None:
    tasks = [make_task("a"), make_task("b", "sts"), make_task("c")]
    assert [(kind, [task.name for task in group]) for kind, group in by_kind(tasks)] == [
        ("retrieval", ["a", "c"]),
        ("sts", ["b"]),
    ]


def test_means_are_of_models_that_did_all_tasks_of_a_kind_by_one_measure() -> None:
    (mean,) = full_suite().analysis.means
    assert (mean.kind, mean.measure, mean.tasks) == ("retrieval", "nDCG@10", 2)
    pairs = ((0.55, 0.41), (0.61, 0.40), (0.60, 0.30))
    assert list(mean.values.values()) == pytest.approx([(one + other) / 2 for one, other in pairs])
    lacking = view_of({"x": {"a": 0.5, "b": 0.7}, "y": {"a": 0.6}}).result.analysis.means
    assert list(lacking[0].values.values()) == [pytest.approx(0.55), None]


def test_values_of_unlike_measures_are_not_averaged() -> None:
    result: SuiteResult = make_suite({"x": {"a": 0.5}, "y": {"a": 0.6}})
    other = replace(result, tasks=[result.tasks[0], replace(result.tasks[1], measure="RR")])
    scores = [result.scores[0], replace(result.scores[1], measure="RR")]
    assert analysed(replace(other, scores=scores)).analysis.means == []
