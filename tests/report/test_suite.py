"""A suite on disk, and its page."""

import base64
import hashlib
import re
from dataclasses import replace
from functools import cache

from adiabat.report.page_templates import script
from adiabat.report.suite_analysis import overview_of
from adiabat.report.suite_page import render_suite
from adiabat.results.suite_result import Fact, SuiteModel, SuiteResult, UnitRow
from tests.report.sample_suites import full_suite, make_score, make_suite
from tests.report.test_page import NASTY, Page


class Shown(Page):
    """A page whose script is no text of it."""

    def handle_data(self, data):
        if "script" not in self.open:
            super().handle_data(data)


def html_of(result: SuiteResult) -> str:
    return render_suite(overview_of(result))


@cache
def full_html(baseline: str | None = None) -> str:
    """Drawn once for all tests that only read it."""
    return html_of(full_suite(baseline=baseline))


# --- Files ---


# --- The page ---


def test_a_full_suite_has_every_part() -> None:
    shown = Shown(full_html())
    assert {
        "verdict",
        "models-by-tasks",
        "over-all",
        "tasks",
        "task-0",
        "task-3",
        "how-to-read",
        "made",
        "inputs",
        "settings",
        "versions",
    } <= set(shown.ids())
    assert len(shown.ids()) == len(set(shown.ids()))
    # a forest plot for each task
    assert len(shown.tags("svg")) == 4
    for words in (
        "large is best on 3 of 4 tasks",
        "0.610 [0.590, 0.630]",
        "0.600 ≈ [0.580, 0.620]",
        "best large 0.800 [0.780, 0.820], clearly",
        "−0.0600 [−0.0800, −0.0400]",
        "< 0.001 sign flips",
        "+60 −90",
        "small minus large : 1 better, 1 worse, 7 no evidence, of 9 (by the z-test 7 better, 2 worse)",
        "text of query 3",
        "models/small-1, models/small-2",
        "mean of 3 runs",
        "large: cut to 128 tokens",
    ):
        assert words in shown.text.replace(" ,", ","), words


def test_cells_are_marked_as_the_comparisons_say() -> None:
    cells = [(one["class"] or "").split() for one in Shown(full_html()).tags("td") if "num" in (one.get("class") or "").split()][:12]
    # rows small, large, lexical; columns first, second, similar, xnli
    assert [("best" in one, "even" in one) for one in cells] == [
        *[(False, False), (True, False), (False, False), (False, False)],
        *[(True, False), (False, True), (True, False), (True, False)],
        *[(False, True), (False, False), (False, False), (False, False)],
    ]


def test_beside_a_baseline_cells_bear_verdicts() -> None:
    shown = Shown(full_html("small"))
    assert [len(shown.with_class(name)) for name in ("sign",)] == [6]
    assert "0.610 ▲" in shown.text
    assert "0.400 ○" in shown.text
    assert "0.300 ▼" in shown.text
    assert "Every model is compared with small on the same units." in shown.text


def test_the_page_loads_nothing_and_runs_its_one_script_alone() -> None:
    html = full_html()
    shown = Shown(html)
    assert {tag for tag, _ in shown.elements} & {"img", "iframe", "object", "embed", "form", "base"} == set()
    (source,) = re.findall(r"<script>(.*?)</script>", html, flags=re.DOTALL)
    assert source == script()
    (policy,) = [meta["content"] for meta in shown.tags("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert f"script-src 'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "script-src 'unsafe" not in policy
    for _, attributes in shown.elements:
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "href", "xlink:href", "action"):
            assert (attributes.get(name) or "#").startswith(("#", "data:,"))
    assert html.replace("http://www.w3.org/2000/svg", "").count("://") == 0


def test_the_script_makes_no_markup_of_texts() -> None:
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval|Function|fetch|XMLHttp|import\(", script())
    assert "</" not in script()


def test_what_the_script_works_on_is_there() -> None:
    shown = Shown(full_html())
    ids = set(shown.ids())
    controls = [one.get("aria-controls") for one in shown.tags("input")]
    assert controls == ["task-0-units"]
    assert set(controls) <= ids
    assert len(shown.with_class("sortable")) == 8
    assert all("hidden" in one for one in shown.with_class("filter"))
    numbers = [one["data-value"] for one in shown.tags("td") if one.get("data-value")]
    assert len(numbers) > 50
    assert all(float(number or "nan") == float(number or "nan") for number in numbers)


def test_every_row_of_a_table_has_as_many_cells_as_its_head() -> None:
    for baseline in (None, "small"):
        for table in re.findall(r"<table.*?</table>", full_html(baseline), flags=re.DOTALL):
            rows = re.findall(r"<tr[ >].*?</tr>", table, flags=re.DOTALL)
            counts = {sum(int(span or 1) for span in re.findall(r'<t[hd][ >](?:[^>]*colspan="(\d+)")?', row)) for row in rows}
            assert len(counts) == 1, table


def test_markup_in_any_text_is_inert() -> None:
    values = {NASTY: {NASTY: 0.6, "b": 0.5}, "y": {NASTY: 0.5, "b": 0.6}}
    models = [SuiteModel(NASTY, NASTY, runs=[NASTY], query_prompt=NASTY, notes=[NASTY]), SuiteModel("b", "b")]
    result = make_suite(values, models=models, title=NASTY, notes=(NASTY,), command=NASTY, settings={NASTY: NASTY})
    tasks = [replace(task, notes=[NASTY], measure=NASTY, unit=NASTY) for task in result.tasks]
    scores = [replace(score, measure=NASTY, similarity=NASTY) for score in result.scores]
    units = [UnitRow(NASTY, NASTY, NASTY, {NASTY: 1.0, "b": 0.5})]
    shown = Shown(html_of(replace(result, tasks=tasks, scores=scores, units=units)))
    assert len(shown.tags("script")) == 1
    assert shown.tags("img") == []
    assert shown.text.count('<script>alert("x")</script>') >= 20
    assert "{{ 7 * 7 }}" in shown.text


def test_texts_choose_their_own_direction_and_are_cut() -> None:
    units = [UnitRow("first", "q1", "ما هي أسباب تغير المناخ؟", {"small": 0.5}), UnitRow("first", "q2", "word " * 1000, {"small": 0.1})]
    html = html_of(replace(full_suite(), units=units))
    cells = [one for one in Shown(html).tags("td") if "text" in (one.get("class") or "").split()]
    assert [one.get("dir") for one in cells] == ["auto", "auto"]
    assert "word word…" in html
    assert html.count("word word") < 200


def test_both_texts_of_a_pair_stand_on_lines_of_their_own() -> None:
    units = [UnitRow("first", "q1", "the one\nthe other\nand more", {"small": 0.5})]
    assert ">the one\nthe other and more</td>" in html_of(replace(full_suite(), units=units))


def test_a_note_on_several_tasks_stands_once() -> None:
    result = full_suite()
    tasks = [replace(task, notes=["a common note"]) for task in result.tasks]
    assert Shown(html_of(replace(result, tasks=tasks))).text.count("all tasks: a common note") == 1


def heads_of(html: str, words: str) -> list[str]:
    """Heads of columns, as they stand in the page, that hold certain words."""
    return [head for head in re.findall(r"<th [^>]*>.*?</th>", html, flags=re.DOTALL) if words in head]


def test_columns_of_measures_that_should_be_low_say_so_and_begin_with_the_lowest() -> None:
    values = {"x": {"a": 0.3, "b": 0.2}, "y": {"a": 0.25, "b": 0.2}}
    html = html_of(make_suite(values, kinds={"x": "triplets", "y": "triplets"}))
    (mean,) = heads_of(html, "PND, 2 tasks")
    assert 'data-first="ascending"' in mean
    assert "lower is better" in mean
    assert all('data-first="ascending"' in head for head in heads_of(html, "effect"))
    (high,) = heads_of(html_of(make_suite(values)), "nDCG@10, 2 tasks")
    assert 'data-first="descending"' in high
    assert "lower is better" not in high


def test_each_of_all_measures_tells_its_direction() -> None:
    result = make_suite({"x": {"a": 0.3, "b": 0.2}}, kinds={"x": "triplets"})
    low = [make_score(result.tasks[0], model, 0.4, measure="PND at 1") for model in "ab"]
    (head,) = heads_of(html_of(replace(result, scores=[*result.scores, *low])), "value [95")
    assert 'data-first="ascending"' in head
    html = html_of(replace(result, scores=[*result.scores, *(replace(one, measure="RR", lower_is_better=False) for one in low)]))
    (head,) = heads_of(html, "value [95")
    assert 'data-first="descending"' in head
    assert html.count('<td class="tight">PND<span class="sub">lower is better</span></td>') == 2
    assert html.count('<td class="tight">RR</td>') == 2


def test_facts_of_single_models_stand_among_all_measures() -> None:
    result = make_suite({"x": {"a": 0.6, "b": 0.5}, "y": {"a": 0.6}})
    assert "All measures" not in html_of(result)
    facts = [Fact("a", "x", "pairs with an unknown word", 25.0), Fact("b", "x", "share of unknown words", 0.125)]
    shown = Shown(html_of(replace(result, facts=facts)))
    assert shown.text.count("All measures") == 1
    assert "a pairs with an unknown word – 25" in shown.text
    assert "b share of unknown words – 0.125" in shown.text


def test_notes_beyond_a_few_are_folded_away() -> None:
    result = make_suite({"x": {"a": 0.6, "b": 0.5}})

    def page_of(count: int) -> str:
        return html_of(replace(result, tasks=[replace(result.tasks[0], notes=[f"note {number}" for number in range(count)])]))

    assert "more</summary>" not in page_of(5)
    folded = page_of(8)
    before, after = folded.split("<summary>and 3 more</summary>")
    assert ("note 4" in before, "note 5" in before, "note 5" in after, "note 7" in after) == (True, False, True, True)
    assert folded.count("<details") == folded.count("</details>")


def test_grids_without_verdicts_say_why() -> None:
    result = full_suite()
    (small, large) = result.grids
    untold = [replace(small, against=None, grid=large.grid), large]
    assert "bear no verdict" not in full_html()
    text = Shown(html_of(replace(result, grids=untold))).text
    assert "Cells of small bear no verdict: where values are means over several runs" in text


def test_the_page_says_what_p_is_of_for_models_of_several_runs_and_cells_of_grids() -> None:
    text = " ".join(Shown(full_html()).text.split())
    assert "or one of the two has runs of several seeds, from the tails of the bootstrap" in text
    assert "in the cells of a language grid more often" in text
    assert "resamples 10,000" in text
    assert "sign flips 10,000" not in text


def test_equal_models_are_all_in_bold() -> None:
    shown = Shown(html_of(make_suite({"x": {"a": 0.3, "b": 0.1 + 0.2, "c": 0.1}})))
    assert len(shown.with_class("best")) == 2
    assert "best b and a 0.300" in shown.text


def test_units_that_differ_in_their_last_digit_have_no_best() -> None:
    units = [UnitRow("x", "q", "", {"a": 0.3, "b": 0.1 + 0.2}), UnitRow("x", "r", "", {"a": 0.3, "b": 0.4})]
    shown = Shown(html_of(make_suite({"x": {"a": 0.6, "b": 0.5}}, units=units)))
    assert [one["data-value"] for one in shown.with_class("most")] == ["0.4"]


def test_no_name_turns_the_words_after_it() -> None:
    evil = "a\u202eevil"
    html = html_of(make_suite({"x": {evil: 0.6, "b": 0.5}, "y": {evil: 0.5, "b": 0.6}}, baseline=evil))
    for part in re.findall(r"<(\w+)([^>]*)>([^<]*\u202e[^<]*)", html):
        # Elsewhere it ends with its element, which has a direction of its own.
        assert 'dir="auto"' in part[1] or part[0] in ("title", "th", "td", "pre", "dd", "figure", "text"), part
    assert "compared with a\ufffdevil on the same units" in html


def test_a_suite_of_one_model_compares_nothing() -> None:
    shown = Shown(html_of(make_suite({"x": {"a": 0.6}, "y": {"a": 0.5}})))
    assert "No task has two models to compare" in shown.text
    assert "mean rank" not in shown.text
    assert shown.tags("svg") == []
    assert shown.with_class("best") == []


def test_a_suite_of_nothing_has_a_page() -> None:
    assert "Nothing was measured." in Shown(html_of(make_suite({}))).text


def test_similarities_that_differ_stand_beside_the_models() -> None:
    result = make_suite({"x": {"a": 0.6, "bm25": 0.5}})
    own = replace(result, scores=[result.scores[0], replace(result.scores[1], similarity="bm25")])
    text = Shown(html_of(own)).text
    assert "by bm25" in text
    assert "by cosine" in text
    assert "nDCG@10, cosine" not in text
