"""What the page of a suite says of its references, measures and settings."""

from dataclasses import replace

from tests.report.sample_suites import make_score, make_suite
from tests.report.test_suite import Shown, full_html, html_of


def test_a_page_with_two_references_names_one_over_each_column_and_marks_by_it() -> None:
    shown = Shown(full_html("lexical"))
    text = " ".join(shown.text.split())
    assert "Models are compared with lexical where it did the task, else with the best of the task (similar and xnli), on" in text
    assert text.count("beside the best, large") == text.count("cosine beside lexical") == 2
    assert "in columns beside lexical: ▲ better, ▼ worse, ○ no evidence" in text
    assert "in columns beside the best: ≈ not measurably worse, ▼ measurably worse" in text
    assert "0.700 ▼ [0.680, 0.720]" in text
    assert "0.610 ○ [0.590, 0.630]" in text
    assert "compared with lexical; the best of each task that it did not do" in text
    assert "On the 2 tasks that lexical did not do: large is best on 2 (all clearly)." in text
    assert "not measurably worse than the best of 2 other tasks" in text
    # tasks, best, better, no evidence, worse, not worse, mean rank
    assert "small 4 1 1 0 1 0 2.0" in text
    assert "large 4 3 1 1 0 2 1.2" in text
    assert "lexical 2 0 – – – – –" in text


def test_what_pnd_is_stands_on_pages_that_show_it() -> None:
    definition = "“PND” is the mean over queries; “PND pooled” counts all pairs together, so queries with many pairs weigh more."
    assert definition in Shown(full_html()).text
    assert "positive–negative discrepancy" not in Shown(html_of(make_suite({"x": {"a": 0.6, "b": 0.5}}))).text


def test_why_a_model_of_unit_length_has_cosine_alone_is_said_beside_all_measures() -> None:
    result = make_suite({"x": {"a": 0.6, "b": 0.5, "c": 0.4}})
    more = [replace(score, similarity="dot") for score in result.scores if score.model == "b"]
    bm25 = [replace(score, similarity="bm25") if score.model == "c" else score for score in result.scores]
    said = "vectors of unit length, so dot and distance rank as cosine does and are left out."
    assert f"a : {said}" in Shown(html_of(replace(result, scores=[*bm25, *more]))).text
    extra = make_score(result.tasks[0], "a", 0.5, measure="RR")
    assert said not in Shown(html_of(replace(result, scores=[*bm25, extra]))).text


def test_settings_have_a_row_for_each_task_and_no_measures_that_none_takes() -> None:
    own = {"kind": "retrieval", "name": "one", "measures": ["RR"], "stores": []}
    default = {"kind": "triplets", "name": "two"}
    other = {"kind": "sts", "name": "three"}

    def text_of(*tasks) -> str:
        settings = {"measure": {"measures": ["nDCG@10"], "depth": 100}, "tasks": list(tasks)}
        return Shown(html_of(make_suite({"x": {"a": 0.6}}, settings=settings))).text

    both = text_of(own, other)
    assert 'tasks[0] {"kind": "retrieval", "name": "one", "measures": ["RR"]}' in both
    assert 'tasks[1] {"kind": "sts", "name": "three"}' in both
    assert "measure.depth 100" in both
    assert "measure.measures" not in both
    assert 'measure.measures ["nDCG@10"]' in text_of(own, default)
    assert 'measure.measures ["RR"]' in Shown(html_of(make_suite({"x": {"a": 0.6}}, settings={"measure": {"measures": ["RR"]}}))).text
