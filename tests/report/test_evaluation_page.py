"""Rows and figures of the page of an evaluation, and its table for the terminal."""

import re
from dataclasses import replace

import pytest

from adiabat.report import pages
from adiabat.report.evaluation_page import EXAMPLES_SHOWN
from adiabat.results.evaluation_result import Hit, Result
from tests.report.html_page import Page, printed
from tests.report.sample_results import full_result, make_change, make_dataset, make_example, make_grid, make_result, make_tuning


def page(result: Result) -> Page:
    return Page(pages.files(result)["report.html"]())


def test_an_evaluation_without_a_baseline_shows_values_alone() -> None:
    shown = page(make_result(make_dataset("cs", "target", None, 0.652), make_grid(["en", "de"], compared=False), baseline=None))
    assert "What was measured" in shown.text
    assert "0.6520 [0.6420, 0.6620]" in shown.text
    assert shown.with_class("badge") == shown.tags("svg") == []
    assert not {"training", "layers", "settings", "examples"} & set(shown.ids())


@pytest.mark.parametrize("retained", [0, 1, 3])
def test_each_data_set_has_a_row_and_a_badge(retained: int) -> None:
    datasets = [make_dataset(f"retained {number}", "retain", 0.5, 0.45) for number in range(retained)]
    shown = page(make_result(make_dataset("cs", "target", 0.5, 0.6), *datasets))
    # Once in the main table, once among all measures.
    assert len([one for one in shown.with_class("badge") if "better" in (one["class"] or "").split()]) == 2
    assert len([one for one in shown.with_class("badge") if "worse" in (one["class"] or "").split()]) == 2 * retained


def test_z_stands_among_all_measures_and_not_beside_the_main_one() -> None:
    dataset = make_dataset("cs", "target", 0.5, 0.4, measure="PND")
    shown = page(make_result(replace(dataset, changes=[*dataset.changes, make_change(0.5, 0.4, measure="PND pooled", z=-3.214)])))
    assert not [cell for cell in shown.tags("td") if cell.get("data-label") == "z"]
    assert shown.text.count("−3.21") == 1


@pytest.mark.parametrize("side", [1, 2, 15])
def test_grids_of_any_size_state_both_counts_and_mark_cells(side: int) -> None:
    shown = page(make_result(make_grid([f"l{number}" for number in range(side)])))
    worse = int(side > 1)
    assert f"paired: 1 better, {worse} worse, {side**2 - 1 - worse} no evidence, of {side**2} z-test: 7 better, {worse} worse" in shown.text
    assert shown.text.count("•") == 1 + worse
    assert "+6.2" in shown.text


def test_examples_say_in_words_what_moved_and_what_is_relevant() -> None:
    shown = page(make_result(make_dataset("cs", "target", 0.5, 0.6), examples=[make_example()]))
    assert "first relevant: rank 3 → rank 1" in shown.text
    for words in ("↑ from 3", "↓ from 1", "+ moved in", "× moved out", "→ now 2", "→ now 1"):
        assert shown.text.count(words) == 1, words
    assert len(shown.with_class("relevant")) == 2


def test_a_relevant_hit_far_down_is_shown_and_the_irrelevant_ones_before_it_are_not() -> None:
    hits = [Hit(f"d{rank}", "", 1.0 / rank, rank == 9) for rank in range(1, 11)]
    shown = page(make_result(examples=[replace(make_example(), before=hits, after=hits[::-1])]))
    assert "first relevant: rank 9 → rank 2" in shown.text
    # d6 is sixth before and fifth after; d7 is seventh and fourth.
    assert shown.text.count(" d6") == shown.text.count(" d5") == 1


def test_the_first_examples_are_shown_and_the_rest_counted() -> None:
    shown = page(full_result())
    assert len(shown.with_class("example")) == EXAMPLES_SHOWN
    assert "2 more are in result.json" in shown.text
    huge = "word " * 20_000
    assert "cut from 100,000 characters" in page(make_result(examples=[make_example(huge)])).text


def test_layers_are_ranked_by_either_figure_and_zero_tensors_counted() -> None:
    shown = page(make_result(training=make_tuning()))
    assert "1 tensor had only zeros before" in shown.text
    by_relative, by_largest = shown.text.split("By relative change")[1].split("By change of the largest weight")
    assert by_relative.index("layer.19.weight") < by_relative.index("layer.18.weight")
    assert by_largest.index("layer.0.weight") < by_largest.index("layer.1.weight")
    assert by_relative.count("encoder.layer") == by_largest.count("encoder.layer") == 15


def test_settings_stand_under_dotted_keys_beside_seed_versions_and_command() -> None:
    inputs = {"target": {"data": "cs.jsonl", "store": "stores/cs", "store_sha256": "ab12"}}
    text = page(replace(full_result(), settings={"measure": {"depth": 77}}, inputs=inputs)).text
    for words in (
        *(
            "schedule.kind constant",
            "learning_rate 5e-08",
            'freeze ["embeddings"]',
            "seed 7",
            "adiabat 0.1.0",
            "adiabat evaluate job store",
        ),
        *("target.data cs.jsonl", "target.store_sha256 ab12", "measure.depth 77"),
    ):
        assert words in text, words


def test_notes_stand_once_behind_the_names_that_they_are_about() -> None:
    sets = [
        replace(make_dataset(name, "retain", 0.5, 0.6), notes=notes) for name, notes in (("a", ["x", "y"]), ("b", ["y", "x"]), ("c", ["y"]))
    ]
    tuning = replace(make_tuning(), notes=("5 of 5 validation queries are also trained on",))
    text = page(make_result(*sets, training=tuning)).text
    assert "Notes a, b: x all data sets: y" in text
    assert "note 5 of 5 validation queries are also trained on" in text


def test_the_terminal_has_a_row_for_each_data_set_and_fits_80_columns() -> None:
    text = printed(make_result(make_dataset("arxiv-cs-test", "target", 0.612, 0.661), make_grid(["en"])), width=80)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "arxiv-cs-test" in text
    assert re.search(r"0\.6120 +0\.6610 +\+8\.0 % \[\+4\.7, \+11\.3\] +▲ better", text)
    assert "The target arxiv-cs-test got better" in text


def test_the_terminal_without_a_baseline_has_values_and_of_training_the_validation() -> None:
    text = printed(make_result(make_dataset("cs", "target", None, 0.652), baseline=None), width=200)
    assert "[0.6420, 0.6620]" in text
    assert "verdict" not in text
    text = printed(make_result(training=make_tuning()), width=200)
    assert "kept (epoch 2)" in text
    assert re.search(r"errors of 4,000 pairs +2,000 +1,500", text)
