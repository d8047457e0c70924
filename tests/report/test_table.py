import io
from dataclasses import replace

from rich.console import Console

from adiabat.report.evaluation_page import render_page
from adiabat.report.evaluation_table import result_table
from tests.report.sample_results import make_dataset, make_grid, make_result, make_tuning


def printed(result) -> str:
    out = io.StringIO()
    Console(file=out, width=200, color_system=None).print(result_table(result))
    return out.getvalue().replace("\xa0", " ")


def test_each_data_set_has_a_row_with_its_interval_and_verdict():
    table = result_table(make_result(make_dataset("cs", "target", 0.612, 0.661), make_grid(["en"])))
    assert [str(column.header) for column in table.columns] == [
        *("data set", "measure", "before", "after", "change [paired 95 %]", "verdict")
    ]
    assert [str(next(iter(column.cells))).replace("\xa0", " ") for column in table.columns] == [
        *("target: cs", "nDCG@10", "0.6120", "0.6610", "+8.0 % [+4.7, +11.3]", "▲ better")
    ]


def test_a_comparison_fits_a_terminal_of_80_columns_with_readable_names():
    out = io.StringIO()
    table = result_table(make_result(make_dataset("arxiv-cs-test", "target", 0.0302, 0.0301), make_grid(["en"])))
    Console(file=out, width=80, color_system=None).print(table)
    assert max(len(line) for line in out.getvalue().splitlines()) <= 80
    assert "arxiv-cs-test" in out.getvalue()
    assert "no evidence" in out.getvalue().replace("\xa0", " ")


def test_the_headline_stands_below():
    assert "The target cs got better" in printed(make_result(make_dataset("cs", "target", 0.5, 0.6)))


def test_without_a_baseline_there_are_values_and_no_verdicts():
    text = printed(make_result(make_dataset("cs", "target", None, 0.652), baseline=None))
    assert "[0.6420, 0.6620]" in text
    assert "verdict" not in text


def test_tuning_alone_shows_its_validation_figures():
    text = printed(make_result(training=make_tuning()))
    assert "kept (epoch 2)" in text
    assert "errors of 4,000 pairs" in text
    assert "1,500" in text


def test_square_brackets_in_names_are_no_styling():
    result = make_result(make_dataset("[red]cs[/red] [/]", "target", 0.5, 0.6))
    assert "[red]cs[/red] [/]" in printed(replace(result, title="[bold]"))
    assert "[bold]" in printed(replace(result, title="[bold]"))


def test_a_single_unit_has_a_value_without_an_interval():
    dataset = make_dataset("cs", "target", None, 0.5)
    alone = make_result(replace(dataset, changes=[replace(dataset.changes[0], after_interval=None)]))
    row = next(line for line in printed(alone).splitlines() if "0.5000" in line)
    assert row.split() == ["target:", "cs", "nDCG@10", "0.5000", "–"]
    assert "nDCG@10 0.500. There is no baseline" in printed(alone)
    assert "0.5000" in render_page(alone)
