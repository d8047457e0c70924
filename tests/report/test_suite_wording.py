"""What a suite says in sentences."""

from dataclasses import replace

import pytest

from adiabat.measure.suite_results import SuiteModel
from adiabat.report import suite_wording as words
from adiabat.report.suite_overview import overview_of
from tests.report.sample_suites import full_suite, make_score, make_suite


def seen_of(values, **options):
    return overview_of(make_suite(values, **options))


def plain(text: str) -> str:
    return text.replace("\xa0", " ")


ONE = {"x": {"a": 0.6, "b": 0.5, "c": 0.59}}


@pytest.mark.parametrize(
    ("seen", "sentence"),
    [
        (
            seen_of({"x": {"a": 0.6, "b": 0.5}, "y": {"a": 0.6, "b": 0.59}, "z": {"a": 0.5, "b": 0.6}}),
            "a is best on 2 of 3 tasks (1 clearly), b on 1 (1 clearly); on 1 task the best cannot be told from others.",
        ),
        (
            seen_of({"x": {"a": 0.6, "b": 0.5}, "y": {"a": 0.6, "b": 0.5}}),
            "a is best on 2 of 2 tasks (all clearly); on every task the best is measurably above all others.",
        ),
        (
            seen_of({f"t{place}": {"a": 0.6, letter: 0.601} for place, letter in enumerate("bcdefg")}),
            "b is best on 1 of 6 tasks (none clearly), c on 1 (none clearly), d on 1 (none clearly), e on 1 (none clearly) and 2 more; "
            "on 6 tasks the best cannot be told from others.",
        ),
        (
            seen_of({"x": {"a": 0.6, "b": 0.5}, "y": {"a": 0.6, "b": 0.59}}, baseline="b"),
            "Beside b: a is better on 1 of 2 tasks, worse on 0, no evidence on 1.",
        ),
        (
            seen_of({"x": {"a": 0.6, "b": 0.5}, "y": {"b": 0.6, "c": 0.5}, "z": {"a": 0.6, "c": 0.5}}, baseline="a"),
            "Beside a: b is better on 0 of 1 task, worse on 1, no evidence on 0; c is better on 0 of 1 task, worse on 1, no evidence on 0.",
        ),
        (
            seen_of(ONE),
            "a is best on x, nDCG@10 0.600 [0.580, 0.620]; worse: b (−0.100 [−0.120, −0.080]); "
            "no evidence either way: c (−0.010 [−0.030, +0.010]).",
        ),
        (
            seen_of(ONE, baseline="b"),
            "b is the baseline on x, nDCG@10 0.500 [0.480, 0.520]; better: a (+0.100 [+0.080, +0.120]) and c (+0.090 [+0.070, +0.110]).",
        ),
        (
            seen_of({"x": {"a": 0.6}, "y": {"a": 0.5}}),
            "x nDCG@10 0.600 [0.580, 0.620]; y nDCG@10 0.500 [0.480, 0.520]. No task was done by two models, "
            "so this says nothing about differences.",
        ),
        (seen_of({}), "Nothing was measured."),
    ],
)
def test_the_head_line_says_no_more_than_the_comparisons(seen, sentence: str) -> None:
    assert plain(words.headline(seen)) == sentence


def test_a_model_that_shares_no_task_with_the_baseline_is_told_so() -> None:
    seen = seen_of({"x": {"a": 0.6, "b": 0.5}, "y": {"b": 0.6, "c": 0.5}}, baseline="a")
    assert "c has no task in common with it" in plain(words.headline(seen))


def test_braces_in_a_name_are_no_placeholders() -> None:
    seen = seen_of({"x": {"{a}": 0.6, "b": 0.5}, "y": {"{a}": 0.5, "b": 0.6}})
    assert words.headline(seen).startswith("{a} is best on 1 of 2")


def test_names_that_run_right_to_left_are_set_apart_in_a_sentence() -> None:
    assert words.headline(seen_of({"x": {"نموذج": 0.6, "b": 0.5}, "y": {"b": 0.5}})).startswith("\u2068نموذج\u2069 is best")


@pytest.mark.parametrize(
    ("values", "baseline", "tone"),
    [
        ({"x": {"a": 0.6, "b": 0.5}, "y": {"a": 0.6, "b": 0.5}}, None, "good"),
        ({"x": {"a": 0.6, "b": 0.5}, "y": {"a": 0.6, "b": 0.59}}, None, "plain"),
        ({"x": {"a": 0.6, "b": 0.5}, "y": {"a": 0.6, "b": 0.59}}, "b", "good"),
        ({"x": {"a": 0.6, "b": 0.5}, "y": {"a": 0.5, "b": 0.6}}, "b", "plain"),
        ({"x": {"a": 0.4, "b": 0.5}, "y": {"a": 0.5, "b": 0.5}}, "b", "bad"),
        ({"x": {"a": 0.6, "b": 0.5, "c": 0.4}}, "b", "plain"),
        ({"x": {"a": 0.6}}, None, "plain"),
    ],
)
def test_only_one_answer_for_all_tasks_is_good_or_bad_news(values, baseline, tone) -> None:
    assert words.tone(seen_of(values, baseline=baseline)) == tone


def test_reservations_name_what_the_head_line_leaves_out() -> None:
    said = plain(" ".join(words.reservations(overview_of(full_suite()))))
    assert "Benjamini–Hochberg at 5 % over all 6 comparisons of main measures" in said
    assert "In 2 of 6 comparisons there is no evidence either way, which is not proof of equality" in said
    assert "Not every model did all 4 tasks: lexical (2)." in said
    assert "Means over several seeds, with intervals over seeds and units: small (3). All others are one run" in said
    assert said.endswith("a note of the suite")


def test_reservations_that_have_no_cause_are_left_out() -> None:
    said = plain(" ".join(words.reservations(seen_of({"x": {"a": 0.6, "b": 0.5}}))))
    assert "over the one comparison of main measures" in said
    assert "Every model is one run" in said
    for absent in ("no evidence either way", "Not every model", "did not do"):
        assert absent not in said
    assert "Benjamini" not in " ".join(words.reservations(seen_of({"x": {"a": 0.6}})))


def test_tasks_that_the_baseline_did_not_do_are_named() -> None:
    said = " ".join(words.reservations(seen_of({"x": {"a": 0.6, "b": 0.5}, "y": {"b": 0.6, "c": 0.5}}, baseline="a")))
    assert "a did not do y: there the others are compared with the best." in said


def test_where_every_model_has_runs_no_others_are_spoken_of() -> None:
    models = [SuiteModel("a", "a", runs=["b"]), SuiteModel("b", "b", runs=["c"])]
    said = words.about_runs(make_suite({"x": {"a": 0.6, "b": 0.5}}, models=models))
    assert said == "Means over several seeds, with intervals over seeds and units: a (2) and b (2)."


def test_a_similarity_is_told_only_where_all_models_have_it() -> None:
    result = make_suite({"x": {"a": 0.6, "bm25": 0.5}})
    assert words.measure(overview_of(result), result.tasks[0]) == "nDCG@10, cosine"
    own = replace(result, scores=[result.scores[0], replace(result.scores[1], similarity="bm25")])
    assert words.measure(overview_of(own), own.tasks[0]) == "nDCG@10"


def test_what_a_task_is_made_of_is_told_in_a_line() -> None:
    result = make_suite({"x": {"a": 0.6}}, kinds={"x": "nli_grid"})
    task = replace(result.tasks[0], documents=0, languages=["en", "de"], units=1, unit="premise")
    said = words.about(overview_of(replace(result, tasks=[task])), task)
    assert plain(said) == "language grid of sentence pairs; 1 premise, 2 languages; PND, cosine (lower is better)"


def test_the_key_explains_the_marks_that_are_there() -> None:
    assert words.key(seen_of(ONE)) == ["bold: the best value of a task", "≈ not measurably worse than the best"]
    assert words.key(seen_of(ONE, baseline="b"))[1:] == ["▲ better, ▼ worse, ○ no evidence beside b"]
    assert len(words.key(seen_of({**ONE, "y": {"a": 0.5, "c": 0.4}}, baseline="b"))) == 3
    assert words.key(seen_of({"x": {"a": 0.6}})) == []


def test_who_is_best_on_a_task_is_told_in_few_words() -> None:
    seen = seen_of({"x": {"a": 0.6, "b": 0.5}, "y": {"a": 0.6, "b": 0.6}, "z": {"a": 0.5}})
    said = [plain(words.said_of_best(seen, task)) for task in seen.result.tasks]
    assert said == ["best a 0.600 [0.580, 0.620], clearly", "best a and b 0.600 [0.580, 0.620]", "a 0.500 [0.480, 0.520]"]


def test_small_values_keep_a_digit_that_is_not_zero() -> None:
    score = replace(make_score(make_suite({"x": {"a": 1.0}}).tasks[0], "a", 0.0004), interval=(-0.0002, 0.001))
    assert plain(words.level(score)) == "0.0004 [−0.0002, 0.001]"
