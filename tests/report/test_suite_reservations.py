"""What a suite says in sentences."""

from dataclasses import replace

import pytest

from adiabat.report import suite_headline as words
from adiabat.report.suite_headline import Overview
from adiabat.results.suite_result import SuiteModel
from tests.report.sample_suites import full_suite, make_suite


def seen_of(values, **options):
    return Overview(make_suite(values, **options))


def plain(text: str) -> str:
    return text.replace("\xa0", " ")


ONE = {"x": {"a": 0.6, "b": 0.5, "c": 0.59}}


def test_reservations_name_what_the_head_line_leaves_out() -> None:
    said = plain(" ".join(words.reservations(full_suite())))
    assert "Benjamini–Hochberg at 5 % over all 6 comparisons of main measures" in said
    assert "In 2 of 6 comparisons there is no evidence either way, which is not proof of equality" in said
    assert "Not every model did all 4 tasks: lexical (2)." in said
    assert "Means over several seeds, with intervals over seeds and units: small (3). All others are one run" in said
    assert said.endswith("a note of the suite")


def test_reservations_that_have_no_cause_are_left_out() -> None:
    said = plain(" ".join(words.reservations(make_suite({"x": {"a": 0.6, "b": 0.5}}))))
    assert "over the one comparison of main measures" in said
    assert "Every model is one run" in said
    for absent in ("no evidence either way", "Not every model", "did not do"):
        assert absent not in said
    assert "Benjamini" not in " ".join(words.reservations(make_suite({"x": {"a": 0.6}})))


MIXED = {"x": {"a": 0.6, "b": 0.5}, "y": {"b": 0.6, "c": 0.5}, "z": {"a": 0.5}}


@pytest.mark.parametrize(
    ("seen", "sentence", "columns"),
    [
        (
            seen_of(MIXED, baseline="a"),
            "Models are compared with a where it did the task, else with the best of the task (y), on the same units.",
            ["beside a", "beside the best, b", "not compared"],
        ),
        (seen_of(MIXED), "Every model is compared with the best of the task on the same units.", ["", "", ""]),
        (seen_of(ONE, baseline="b"), "Every model is compared with b on the same units.", [""]),
        (
            seen_of({**ONE, "y": {"d": 0.5}}, baseline="d"),
            "d did no task beside others: every model is compared with the best of the task on the same units.",
            ["", ""],
        ),
        (seen_of({"x": {"a": 0.6}}), "No task has two models to compare.", [""]),
    ],
)
def test_whom_models_are_compared_with_is_said_once_and_over_each_column_where_it_differs(seen, sentence: str, columns) -> None:
    assert words.references(seen.result) == sentence
    assert [words.beside(seen, task.name) for task in seen.result.tasks] == columns


def test_of_many_tasks_that_the_baseline_did_not_do_a_few_are_named() -> None:
    seen = seen_of({"x": {"a": 0.6, "b": 0.5}, **{f"t{place}": {"b": 0.6, "c": 0.5} for place in range(6)}}, baseline="a")
    assert "else with the best of the task (t0, t1, t2, t3 and 2 more), on the same units." in words.references(seen.result)


def test_a_dash_in_place_of_a_mean_rank_is_explained() -> None:
    said = "A mean rank is over all tasks that several models did; – where a model lacks one of them."
    assert said in " ".join(words.reservations(make_suite(MIXED)))
    assert words.about_ranks(make_suite(ONE)) == words.about_ranks(make_suite({"x": {"a": 0.6}})) == ""


def test_where_every_model_has_runs_no_others_are_spoken_of() -> None:
    models = [SuiteModel("a", "a", runs=["b"]), SuiteModel("b", "b", runs=["c"])]
    said = words.about_runs(make_suite({"x": {"a": 0.6, "b": 0.5}}, models=models))
    assert said == "Means over several seeds, with intervals over seeds and units: a (2) and b (2)."


def test_a_similarity_is_told_only_where_all_models_have_it() -> None:
    result = make_suite({"x": {"a": 0.6, "bm25": 0.5}})
    assert words.measure(Overview(result), result.tasks[0]) == "nDCG@10, cosine"
    own = replace(result, scores=[result.scores[0], replace(result.scores[1], similarity="bm25")])
    assert words.measure(Overview(own), own.tasks[0]) == "nDCG@10"


def test_the_key_explains_the_marks_that_are_there() -> None:
    bold, even, worse = words.key(make_suite(ONE))
    assert (bold, even) == ("bold: the best value of a task", "≈ not measurably worse than the best")
    assert worse == "▼ measurably worse than the best"
    assert words.key(make_suite(ONE, baseline="b"))[1:] == ["▲ better, ▼ worse, ○ no evidence beside b"]
    assert words.key(make_suite({**ONE, "y": {"a": 0.5, "c": 0.4}}, baseline="b"))[1:] == [
        "in columns beside b: ▲ better, ▼ worse, ○ no evidence",
        "in columns beside the best: ≈ not measurably worse, ▼ measurably worse",
    ]
    assert words.key(make_suite({"x": {"a": 0.6}})) == []


def test_who_is_best_on_a_task_is_told_in_few_words() -> None:
    seen = seen_of({"x": {"a": 0.6, "b": 0.5}, "y": {"a": 0.6, "b": 0.6}, "z": {"a": 0.5}})
    said = [plain(words.best_of(seen, task)) for task in seen.result.tasks]
    assert said == ["best a 0.600 [0.580, 0.620], clearly", "best a and b 0.600 [0.580, 0.620]", "a 0.500 [0.480, 0.520]"]
