"""Tables of a sweep for other programs, for papers and for the terminal."""

import re
from dataclasses import replace

import pytest

from adiabat.experiments.sweep_analysis import change_of
from adiabat.report.sweep_tables import (
    case_column,
    case_label,
    change_cell,
    count,
    drift_columns,
    label_of,
    main_columns,
    task_columns,
)
from adiabat.report.sweep_tables import table_of as terminal_table_of
from tests.report.html_page import HOSTILE, csv_rows, plain, printed, table_of
from tests.report.sample_sweeps import (
    MARGIN,
    RATE,
    RATES,
    drift_at,
    failed_sweep,
    full_sweep,
    make_change,
    make_failed,
    make_run,
    make_sweep,
    make_task,
    simple_sweep,
)

MAIN = "msmarco: nDCG@10 cosine"


def hostile_sweep():
    tasks = [make_task(HOSTILE, 2.0), make_task("b", 1.5)]
    run = make_run({"tune.optimizer": HOSTILE, RATE: 1e-8}, tasks)
    failed = make_failed({"tune.optimizer": "sgd", RATE: 1e-8}, reason=HOSTILE)
    told = {"title": HOSTILE, "notes": [HOSTILE], "targets": (HOSTILE,), "tasks": (HOSTILE, "b")}
    return make_sweep([run, failed], varied=("tune.optimizer", RATE), **told)


# --- CSV ---


def test_csv_has_a_line_for_each_setting_with_all_digits() -> None:
    rows = csv_rows(simple_sweep())
    assert [float(row[RATE]) for row in rows] == RATES
    assert [float(row[f"{MAIN}, improvement %"]) for row in rows] == [0.5, 3.0, 7.3, 9.1]
    third = rows[2]
    assert (float(third[f"{MAIN}, low %"]), float(third[f"{MAIN}, high %"])) == (6.3, 8.3)
    assert [row[f"{MAIN}, verdict"] for row in rows] == ["undecided", "better", "better", "better"]
    counts = {"runs": "1", "failed": "0", "seeds": "0", "steps": "3000", "best_epoch": "3"}
    assert third.items() >= counts.items()
    assert float(third["msmarco: nDCG@10 distance, improvement %"]) == pytest.approx(8.3)


def test_csv_has_means_ranges_and_counts_over_seeds() -> None:
    *_, third, last = csv_rows(full_sweep())
    name = "arxiv: nDCG@10 cosine"
    assert float(last[f"{name}, improvement %"]) == pytest.approx(1.1)
    assert [float(last[f"{name}, {end} %"]) for end in ("low", "high")] == pytest.approx([0.8, 1.4])
    verdicts = {f"{name}, verdict": "mixed", f"{name}, runs better": "1", f"{name}, runs worse": "0"}
    runs = {"runs": "3", "failed": "1", "seeds": "0 1 2", "reason": "the loss is not finite"}
    assert last.items() >= (verdicts | runs).items()
    sides = ("improved", "worsened", "improved_z", "worsened_z")
    counts = [third[f"xnli: entailment-neutral cosine, {side}"] for side in sides]
    assert counts == ["194.0", "6.0", "193.0", "8.0"]
    assert (third["steps"], third["best_epoch"]) == ("14000.0", "4.0")
    assert (third["tune.freeze"], third["drift: turn"]) == ("embeddings", "0.00015")


def test_csv_leaves_open_what_was_not_measured() -> None:
    (row,) = csv_rows(failed_sweep(1e-8))
    assert {name for name, value in row.items() if value} == {RATE, "runs", "failed", "seeds", "reason"}
    done = make_run({RATE: 2e-8}, [make_task("msmarco", 2.0)])
    first, _ = csv_rows(make_sweep([make_failed({RATE: 1e-8}), done]))
    assert first[f"{MAIN}, improvement %"] == ""
    assert csv_rows(make_sweep([])) == []


def test_kinds_of_values_keep_their_meaning_in_csv() -> None:
    values = [True, False, None, [], ["a", "b"], 3, 0.5]
    rows = csv_rows(make_sweep([make_run({"tune.x": value}) for value in values], varied=("tune.x",)))
    assert [row["tune.x"] for row in rows] == ["yes", "no", "", "none", "a + b", "3", "0.5"]


# --- Markdown and LaTeX ---


def test_markdown_has_a_row_for_each_setting_as_the_source_has_it() -> None:
    text = table_of(full_sweep(), "md")
    assert "| learning rate | freeze | runs | msmarco<br>nDCG@10, cosine | arxiv<br>" in text
    grids = ("entailment-neutral<br>xnli, cosine, of 225", "entailment-contradiction<br>xnli, cosine, of 225")
    assert f"| {grids[0]} | {grids[1]} | steps | best epoch | failed |" in text
    gains = "+6.9 % ▲<br>+6.6 to +7.2 | +1.5 % ▲<br>+1.2 to +1.8 | +0.6 % ○<br>+0.3 to +0.9"
    cells = "+1.4 % ▲<br>+1.4 to +1.4 | 194/6<br>z 193/8 | 189/8<br>z 188/10 | 14,000 | 4 | –"
    assert f"| 5e-8 | embeddings | 3 | {gains} | {cells} |" in text
    assert "| 1e-7 | embeddings | 2 of 3 | " in text
    assert text.count("| the loss is not finite |") == 1
    assert "probes are of two languages\n" in text


def test_settings_that_are_no_numbers_stand_to_the_left_and_lists_are_joined() -> None:
    runs = [
        make_run({"tune.freeze": freeze, "tune.optimizer": name}, [make_task("msmarco", 2.0)])
        for freeze, name in ((["embeddings", "blocks[0]"], "adamw"), ([], "sgd"))
    ]
    result = make_sweep(runs, varied=("tune.freeze", "tune.optimizer"), tasks=("msmarco",))
    text = table_of(result, "md")
    assert "| freeze | optimizer | runs | msmarco<br>nDCG@10, cosine |" in text
    assert "\n| --- | --- | ---: | ---: |" in text
    assert r"| embeddings + blocks\[0\] | adamw | 1 | +2.0 % ▲" in text
    assert "| none | sgd | 1 | +2.0 % ▲" in text
    assert r"\begin{tabular}{llrrrr}" in table_of(result, "tex")


def test_most_changed_tensors_stand_below() -> None:
    text = table_of(simple_sweep(), "md")
    assert "| measure | learning rate | most changed | next |" in text
    key, output = (f"encoder.layer.0.{name}.weight" for name in ("attention.self.key", "output.dense"))
    assert f"| largest weight | 1e-8 | {key} 3 | {output} 2.02 |" in text


def test_latex_is_balanced_and_every_row_has_its_cells() -> None:
    text = table_of(full_sweep(), "tex")
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1
    body = text.split(r"\begin{tabular}")[1].split("\n")
    # A title over several columns takes their cells.
    spans = sum(int(size) - 1 for size in re.findall(r"\\multicolumn{(\d+)}", body[2]))
    rows = [line for line in body[3:] if line.endswith(r"\\")]
    assert {line.count(" & ") + 1 for line in rows} == {body[2].count(" & ") + 1 + spans} == {12}


def test_hostile_names_stay_in_their_cells() -> None:
    text = table_of(hostile_sweep(), "md")
    assert "<b>" not in text.replace("<br>", "")
    own = [line for line in text.split("\n") if line.startswith("|") and ("sgd" in line or "cmd" in line)]
    columns = terminal_table_of(main_columns(hostile_sweep())).columns
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in own[:3]} == {len(columns) + 1}
    # What a comment holds is not read.
    lines = table_of(hostile_sweep(), "tex").split("\n")
    body = "\n".join(line for line in lines if not line.startswith("%"))
    assert "<b>" not in body
    assert body.count(r"\end{tabular}") == 1


# --- Columns ---


def test_what_runs_took_is_a_column_only_where_the_grid_does_not_tell() -> None:
    def heads(*runs, varied=(RATE,)):
        columns = main_columns(make_sweep(runs, varied=varied, tasks=()))
        return [column.head.full for column in columns if "taken" in column.head.full]

    assert heads(make_run({RATE: 1e-8}), make_run({RATE: 2e-8})) == []
    for rate in ({}, {RATE: 5e-8}):
        taken = [{"learning_rate": 5e-8 * size / 14, "batch_size": size} for size in (14, 28)]
        scaled = [make_run({"tune.batch_size": one["batch_size"], **rate}, **one) for one in taken]
        assert heads(*scaled, varied=("tune.batch_size", *rate)) == ["learning rate taken"]
    by_variant = [make_run({}, variant=name, batch_size=size) for name, size in (("a", 14), ("b", 28))]
    assert heads(*by_variant, varied=()) == ["batch size taken"]


def test_a_case_is_told_by_what_differs() -> None:
    def labels(*pairs: tuple[float, float]) -> list[str]:
        runs = [make_run({RATE: rate, MARGIN: margin}) for rate, margin in pairs]
        result = make_sweep(runs, varied=(RATE, MARGIN))
        column, first = case_column(result), result.variation.cases[0]
        return [column.head.head, case_label(result.variation, first), column.cells[0].text]

    both = "learning rate 1e-8, margin 0.1"
    assert labels((1e-8, 0.1), (2e-8, 0.2)) == ["setting", both, both]
    assert labels((1e-8, 0.1), (1e-8, 0.2)) == ["margin", "margin 0.1", "0.1"]
    assert labels((1e-8, 0.1))[1:] == ["the only setting"] * 2
    alike = make_run({"tune.distance": "cosine", "data.distance": "euclidean", "guard.limit": 0.1})
    view = make_sweep([alike], varied=list(alike.varied)).variation
    assert [label_of(view, index) for index in range(3)] == ["distance", "data distance", "guard limit"]


@pytest.mark.parametrize(
    ("improvements", "text", "below", "signs"),
    [
        ([7.3], "+7.3 %", "[+6.3, +8.3]", "▲"),
        ([0.2], "+0.2 %", "[−0.8, +1.2]", "○"),
        ([-1.004], "−1.004 %", "[−2.004, −0.004]", "▼"),
        ([7.0, 8.0, 9.0], "+8.0 %", "+7.0 to +9.0", "▲"),
        ([0.5, 3.0, 4.0], "+2.5 %", "+0.5 to +4.0", "▲2 ○1"),
        ([3.0, -3.0], "0.0 %", "−3.0 to +3.0", "▲1 ▼1"),
        ([None], "+0.1000", "[+0.0500, +0.1500]", "▲"),
        ([None, 5.0], "+0.0625", "+0.0250 to +0.1000", "▲"),
    ],
)
def test_a_change_is_a_mean_with_bounds_and_verdicts(
    improvements: list[float | None], text: str, below: str, signs: str
) -> None:
    changes = [make_change(one) for one in improvements]
    cell = change_cell(change_of("task", "RR", "cosine", changes))
    assert (plain(cell.text), [plain(line) for line in cell.sub], cell.sign) == (text, [below], signs)
    unknown = replace(make_change(None), difference=None, difference_interval=None, verdict=None)
    assert change_cell(change_of("task", "RR", "cosine", [unknown])).text == "–"


def test_means_of_counts_have_a_decimal_if_they_need_one() -> None:
    assert [count(value) for value in (222.0, 221.5, 1200.0)] == ["222", "221.5", "1,200"]


def test_cells_are_sorted_by_their_numbers() -> None:
    seen = full_sweep()
    by_name = {column.head.full: column for column in main_columns(seen)}
    assert by_name["learning rate"].cells[0].value == 1e-8
    assert by_name["msmarco"].cells[0].value == pytest.approx(0.6)
    assert by_name["entailment-neutral"].cells[-1].value == 174
    assert by_name["freeze"].cells[0].value == "embeddings"
    assert by_name["arxiv"].cells[-1].sign_tone == ""
    assert by_name["xnli"].cells[-1].sign_tone == "undecided"


def test_all_measures_and_drift_have_columns() -> None:
    seen = full_sweep()
    heads = [(column.head.full, *column.head.sub) for column in task_columns(seen, "msmarco")]
    assert heads == [("msmarco", "nDCG@10, cosine"), ("msmarco", "nDCG@10, distance")]
    drifts = ["overlap loss", "margins", "turn"]
    for group in (None, "zh"):
        assert [column.head.full for column in drift_columns(seen, group)] == drifts
    alone = make_sweep([make_run({RATE: 1e-8}, drift=drift_at(1e-8))])
    cell = drift_columns(alone)[0].cells[0]
    assert (cell.text, *cell.sub) == ("0.004", "± 4e−4")
    assert drift_columns(simple_sweep()) == []


# --- Terminal ---


def test_the_terminal_shows_settings_by_tasks_pairs_and_failures() -> None:
    text = printed(full_sweep())
    assert re.search(r"msmarco +arxiv +title +xnli", text)
    assert re.search(r"1e-7 +\+9\.6 % ▲ +\+1\.1 % ▲1 ○1 +−1\.1 % ○1 ▼1 +\+1\.0 % ○ +2 of 3", text)
    assert re.search(r"5e-8 +194/6 +189/8 *\n +z 193/8 +z 188/10", text)
    assert "the loss is not finite" in text
    assert "learning rate 5e-8 gains most" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80


def test_the_terminal_shows_sweeps_without_anything() -> None:
    assert "0 runs completed." in plain(printed(make_sweep([])))
    assert "failed" in printed(failed_sweep(1e-8))
    assert "1 run completed." in printed(make_sweep([make_run({MARGIN: 0.1})], varied=(MARGIN,), targets=()))


def test_one_run_has_its_interval_in_the_tables() -> None:
    markdown, latex = (table_of(simple_sweep(), ending) for ending in ("md", "tex"))
    assert r"| 1e-7 | 1 | +9.1 % ▲<br>\[+8.1, +10.1\] | −2.0 % ▼<br>\[−3.0, −1.0\] | 3,000 | 3 |" in markdown
    gained, lost = r"+9.1~\% $\uparrow$ {[}+8.1,~+10.1{]}", r"$-$2.0~\% $\downarrow$ {[}$-$3.0,~$-$1.0{]}"
    assert rf"1e-7 & 1 & {gained} & {lost} & 3,000 & 3 \\" in latex
