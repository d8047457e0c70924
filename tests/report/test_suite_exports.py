"""Tables of a suite for other programs and for papers, and those of the terminal."""

import csv
import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from adiabat.report.suite_analysis import overview_of
from adiabat.report.suite_exports import CSV_COLUMNS, suite_csv, suite_latex, suite_markdown
from adiabat.report.suite_page import render_suite
from adiabat.report.suite_table import suite_table
from adiabat.results.suite_result import Fact, SuiteModel
from tests.report.sample_suites import full_suite, make_suite

HOSTILE = "=cmd|'x'!A1 <b>&amp; *x* _y_ [z](w) `c` \\end{tabular} % $1 #2 ^3 ~4 {5} \"q\"\n| new"
FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "|x", "%x"]


def rows_of(result) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(suite_csv(overview_of(result)))))


def printed(result, width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    console.print(suite_table(result))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().replace("\xa0", " ")


def hostile_suite():
    values = {HOSTILE: {HOSTILE: 0.6, "b": 0.5}, "y": {HOSTILE: 0.5, "b": 0.6}}
    return make_suite(values, models=[SuiteModel(HOSTILE, HOSTILE, notes=[HOSTILE]), SuiteModel("b", "b")], title=HOSTILE, notes=(HOSTILE,))


# --- CSV ---


def test_csv_has_a_line_for_each_score_with_all_digits() -> None:
    result = full_suite()
    rows = rows_of(result)
    assert len(rows) == len(result.scores)
    for row, score in zip(rows, result.scores, strict=True):
        assert (row["task"], row["model"], row["measure"]) == (score.task, score.model, score.measure)
        assert (float(row["value"]), float(row["low"]), float(row["high"])) == (score.value, *score.interval)


def test_csv_tells_the_best_and_the_comparison_of_main_measures_only() -> None:
    rows = {(row["task"], row["model"], row["measure"]): row for row in rows_of(full_suite())}
    first = [rows["first", model, "nDCG@10"] for model in ("small", "large", "lexical")]
    assert [row["best"] for row in first] == ["no", "yes", "no"]
    assert [row["not_worse"] for row in first] == ["no", "yes", "yes"]
    assert [row["against"] for row in first] == ["large", "", "large"]
    assert [row["verdict"] for row in first] == ["worse", "", "no evidence"]
    assert [(row["significant"], row["p"], row["test"]) for row in first] == [
        ("yes", "0.0004", "sign flips"),
        ("",) * 3,
        ("no", "0.42", "sign flips"),
    ]
    assert (first[0]["gained"], first[0]["lost"], first[0]["runs"]) == ("60", "90", "3")
    other = rows["first", "small", "RR"]
    assert (other["main"], other["best"], other["p"], other["against"]) == ("no", "", "", "")


def test_beside_a_baseline_csv_leaves_open_who_is_even_with_the_best() -> None:
    rows = {(row["task"], row["model"]): row for row in rows_of(full_suite(baseline="small")) if row["main"] == "yes"}
    assert rows["first", "lexical"]["not_worse"] == ""
    assert rows["first", "large"]["not_worse"] == "yes"


@pytest.mark.parametrize("name", FORMULAS)
def test_no_name_becomes_a_formula_in_a_spreadsheet(name: str) -> None:
    (row,) = rows_of(make_suite({name: {name: 0.5}}))
    assert (row["task"], row["model"]) == (f"'{name}", f"'{name}")


def test_csv_ends_with_the_facts_of_single_models() -> None:
    result = replace(full_suite(), facts=[Fact("small", "first", "unknown words", 25.0)])
    row = rows_of(result)[-1]
    known = {"task": "first", "kind": "retrieval", "model": "small", "measure": "unknown words", "main": "no", "value": "25.0"}
    about = {"unit": "query", "units": "300", "runs": "3"}
    assert {name: value for name, value in row.items() if value} == known | about
    assert len(rows_of(result)) == len(result.scores) + 1


def test_numbers_below_zero_stay_numbers_in_csv() -> None:
    row = rows_of(full_suite())[0]
    assert row["difference"].startswith("-0.0")
    assert float(row["difference"]) < 0


def test_a_hostile_name_stays_in_its_cell_of_csv() -> None:
    rows = rows_of(hostile_suite())
    assert len(rows) == 4
    assert all(set(row) == set(CSV_COLUMNS) for row in rows)
    assert rows[0]["model"] == "'" + " ".join(HOSTILE.split())


# --- Markdown ---


def test_markdown_marks_the_best_and_those_that_are_not_measurably_worse() -> None:
    text = suite_markdown(overview_of(full_suite())).replace("\xa0", " ")
    assert r"| lexical | 0.600 ≈<br>\[0.580, 0.620\] | 0.300 ▼<br>\[0.280, 0.320\] | – | – | – |" in text
    assert "**0.610**<br>" in text
    assert "≈ not measurably worse than the best" in text
    assert "▼ measurably worse than the best" in text


def test_markdown_beside_a_baseline_bears_the_marks_of_verdicts() -> None:
    text = suite_markdown(overview_of(full_suite(baseline="small"))).replace("\xa0", " ")
    assert "**0.610** ▲<br>" in text
    assert "0.400 ○<br>" in text
    assert "0.300 ▼<br>" in text


def test_tables_with_two_references_name_one_over_each_column() -> None:
    seen = overview_of(full_suite(baseline="lexical"))
    text = suite_markdown(seen).replace("\xa0", " ")
    assert "| first<br>nDCG@10, cosine<br>beside lexical | second<br>" in text
    assert "| similar<br>Spearman, cosine<br>beside the best, large |" in text
    assert r"0.700 ▼<br>\[0.680, 0.720\] | 0.250 ▼<br>" in text
    assert "\nModels are compared with lexical where it did the task, else with the best of the task (similar and xnli), on" in text
    latex = suite_latex(seen)
    assert " & beside lexical & beside lexical & beside the best, large & beside the best, large &  \\\\\n" in latex
    assert r"% in columns beside the best: $\approx$ not measurably worse, $\downarrow$ measurably worse" in latex
    assert "\n% Models are compared with lexical where it did the task" in latex
    assert "beside" not in suite_latex(overview_of(full_suite())).split("tabular")[1]


@pytest.mark.parametrize("export", [suite_markdown, suite_latex])
def test_tables_tell_what_is_noted_of_models_and_tasks(export) -> None:
    result = full_suite()
    tasks = [replace(result.tasks[0], notes=["small: 3 of 25 words are unknown"]), *result.tasks[1:]]
    text = export(overview_of(replace(result, tasks=tasks)))
    assert "first: small: 3 of 25 words are unknown\n" in text
    assert "large: cut to 128 tokens\n" in text


@pytest.mark.parametrize("export", [suite_csv, suite_markdown, suite_latex])
def test_no_name_turns_the_words_after_it(export) -> None:
    assert "\u202e" not in export(overview_of(make_suite({"t\u202ex": {"a\u202ey": 0.6, "b": 0.5}})))


def test_a_hostile_name_breaks_no_row_of_markdown() -> None:
    text = suite_markdown(overview_of(hostile_suite()))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 4
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {5}
    assert "<b>" not in text
    assert not re.search(r"(?<!\\)[`\[]", text)


# --- LaTeX ---


def test_latex_is_a_plain_tabular_with_marks_explained_in_comments() -> None:
    text = suite_latex(overview_of(full_suite()))
    body = [line for line in text.splitlines() if not line.startswith("%")]
    assert body[0] == r"\begin{tabular}{lrrrrr}"
    assert body[-1] == r"\end{tabular}"
    assert r"lexical & 0.600~$\approx$ {[}0.580,~0.620{]} & 0.300~$\downarrow$ {[}0.280,~0.320{]} & -- & -- & -- \\" in body
    assert r"\textbf{0.610} {[}0.590,~0.630{]}" in text
    assert r"\multicolumn{2}{c}{retrieval}" in text
    assert r"% $\approx$ not measurably worse than the best" in text


def test_every_row_of_latex_has_the_same_cells_whatever_the_names() -> None:
    text = suite_latex(overview_of(hostile_suite()))
    body = [line for line in text.splitlines() if not line.startswith("%")]
    rows = [line for line in body if line.endswith(r"\\")]
    assert len(rows) == 5
    cells = [sum(int(n) - 1 for n in re.findall(r"\\multicolumn\{(\d+)\}", row)) + len(re.findall(r"(?<!\\)&", row)) + 1 for row in rows]
    assert set(cells) == {4}
    assert body.count(r"\end{tabular}") == 1
    for row in rows:
        known = re.sub(
            r"\\[&%$#_{}]|\\text[a-z]+(\{\})?|\\multicolumn\{\d+\}\{c\}|\$(-|\\approx|\\uparrow|\\downarrow|\\circ)\$|\{[\[\]*]\}|\\\\$",
            "",
            row,
        )
        assert not set("%$#_\\^") & set(known), known


@pytest.mark.parametrize(
    ("name", "set_as"),
    [
        ("a--b", "a-{}-b"),
        ("a---b", "a-{}-{}-b"),
        ("e5-small", "e5-small"),
        ("-", "-"),
        (",,x", ",{},x"),
        ("'q'", r"\textquotesingle{}q\textquotesingle{}"),
        ("?`x``", r"?\textasciigrave{}x\textasciigrave{}\textasciigrave{}"),
        ('"', r"\textquotesingle\textquotesingle{}"),
        ("\x00", "?"),
    ],
)
def test_letters_that_latex_would_join_stay_apart(name: str, set_as: str) -> None:
    assert f"\n{set_as} & " in suite_latex(overview_of(make_suite({"x": {name: 0.6}})))


def test_a_row_of_latex_never_begins_with_what_the_line_end_before_it_would_take() -> None:
    text = suite_latex(overview_of(make_suite({"x": {"[2cm]": 0.6, "*a": 0.5}})))
    assert [line[:3] for line in text.splitlines() if "0.6" in line or "0.5" in line][-2:] == ["{[}", "{*}"]


# --- The terminal ---


@pytest.mark.parametrize("baseline", [None, "small"])
def test_both_tables_fit_eighty_columns_with_everything_in_them(baseline) -> None:
    said = printed(full_suite(baseline=baseline))
    assert max(map(len, said.splitlines())) <= 80
    assert "…" not in said
    assert re.search(r"PND, lower is better", said)
    assert "0.610 [0.590, 0.630]" in said
    assert "○ no evidence" in said


def test_the_terminal_says_who_is_compared_with_whom() -> None:
    alone = printed(full_suite())
    assert re.search(r"large +0.610 \[0.590, 0.630\] +– +best", alone)
    assert re.search(r"small +0.550 \[0.530, 0.570\] +−0.060 \[−0.080, −0.040\] +▼ worse", alone)
    assert re.search(r"large +0.800 \[0.780, 0.820\] +– +clearly best", alone)
    assert re.search(r"large +4 +3 +2 +4 +1.2", alone)
    beside = printed(full_suite(baseline="small"))
    assert re.search(r"small +0.550 \[0.530, 0.570\] +– +baseline", beside)
    assert re.search(r"lexical +2 +0 +1 +0 +1 +–", beside)
    assert "– where a model lacks" in " ".join(beside.split())


def test_the_terminal_names_the_reference_of_each_task_where_there_are_two() -> None:
    said = printed(full_suite(baseline="lexical"))
    assert max(map(len, said.splitlines())) <= 80
    assert re.search(r"first +nDCG@10 +beside lexical", said)
    assert re.search(r"similar +Spearman +beside the best, large", said)
    assert re.search(r"large +4 +3 +1 +1 +0 +2 +1.2", said)
    assert re.search(r"lexical +2 +0 +– +– +– +– +–", said)
    flat = " ".join(said.split())
    assert "Models are compared with lexical where it did the task" in flat
    assert "Better, no evidence and worse: beside lexical; not worse: than the best, on the other 2 tasks." in flat
    assert "beside" not in printed(full_suite(baseline="small"))


def test_of_many_models_on_many_tasks_the_terminal_shows_the_best_and_the_even() -> None:
    values = {f"t{task}": {f"m{model}": 0.6 if model == 0 else 0.59 if model == 1 else 0.3 for model in range(9)} for task in range(10)}
    said = printed(make_suite(values))
    assert said.count("and 7 more") == 10
    assert "0.300" not in said
    assert said.count("○ no evidence") == 10


def test_brackets_in_a_name_are_no_styling() -> None:
    assert "[bold]x[/]" in printed(make_suite({"[bold]x[/]": {"[bold]x[/]": 0.6, "b": 0.5}}), width=100)


def test_a_suite_of_one_model_has_tables_too() -> None:
    result = make_suite({"x": {"a": 0.6}})
    seen = overview_of(result)
    assert "0.600 [0.580, 0.620]" in printed(result)
    assert "**" not in suite_markdown(seen)
    assert r"\textbf" not in suite_latex(seen)
    assert suite_csv(overview_of(replace(result, scores=[]))).count("\n") == 1


def test_a_suite_of_a_single_unit_has_values_without_intervals() -> None:
    result = make_suite({"x": {"a": 0.6, "b": 0.5}})
    pairings = [replace(one, change=replace(one.change, difference_interval=None)) for one in result.pairings]
    alone = replace(result, scores=[replace(score, interval=None) for score in result.scores], pairings=pairings)
    seen = overview_of(alone)
    assert [(row["value"], row["low"], row["high"]) for row in rows_of(alone)] == [("0.6", "", ""), ("0.5", "", "")]
    assert "| a | **0.600** | 1.0 |" in suite_markdown(seen)
    assert r"a & \textbf{0.600} & 1.0 \\" in suite_latex(seen)
    assert re.search(r"b +0.500 +−0.100 ", printed(alone))
    assert "0.600" in render_suite(seen)
