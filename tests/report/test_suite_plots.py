"""Pictures and maps of a suite."""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest

from adiabat.report import suite_plots as plots
from adiabat.report.suite_analysis import overview_of
from adiabat.report.suite_grids import grids_of
from adiabat.results.suite_result import Pairing
from tests.report.sample_suites import full_suite, make_grid, make_pairing, make_suite, make_task
from tests.report.test_page import NASTY
from tests.report.test_plots import texts

RETRIEVAL, DISCREPANCY = make_task("x"), make_task("y", "triplets")
FIFTEEN = [f"l{place}" for place in range(15)]


def pairings_of(**values: float) -> list[Pairing]:
    return list(overview_of(make_suite({"x": values})).pairings.values())


def test_a_forest_names_every_model_and_whom_it_is_compared_with() -> None:
    svg = plots.forest(pairings_of(a=0.6, b=0.5, c=0.59), name="f")
    assert svg is not None
    assert {"b", "c", "nDCG@10 minus that of a (right is better)"} <= set(texts(svg))
    assert plots.forest(pairings_of(a=0.6, b=0.5, c=0.59), name="f") == svg


def test_only_findings_are_filled() -> None:
    svg = plots.forest(pairings_of(a=0.6, b=0.5, c=0.59), name="f")
    fills = re.findall(r"fill: (var\(--[a-z]+, #[0-9a-f]+\)); stroke: var\(--[a-z]+, #[0-9a-f]+\); stroke-width: 1.6", svg or "")
    assert sorted(fill.split(",")[0] for fill in fills if "bad" in fill or "card" in fill) == ["var(--bad", "var(--card"]


@pytest.mark.parametrize(("task", "value", "order"), [(RETRIEVAL, 0.8, 1), (DISCREPANCY, 0.2, -1)])
def test_right_is_better_whichever_way_the_measure_runs(task, value, order) -> None:
    svg = plots.forest([make_pairing(task, "a", "b", value, 0.5, half_width=0.35)], name="f")
    drawn = [(node, "".join(node.itertext()).strip()) for node in ElementTree.fromstring(svg or "").iter() if node.tag.endswith("}text")]
    ticks = [(node, text) for node, text in drawn if re.fullmatch(r"[+−]?[\d.]+", text)]
    numbers = [float(text.replace("−", "-")) for _, text in ticks]
    places = [float(re.findall(r"[\d.]+", node.get("x") or node.get("transform") or "")[0]) for node, _ in ticks]
    assert len(numbers) > 2
    assert numbers == sorted(numbers)
    assert places == sorted(places, reverse=order < 0)


def test_there_is_no_forest_without_comparisons() -> None:
    assert plots.forest([], name="f") is None


@pytest.mark.parametrize("name", [NASTY[:28], "مجموعة", "$x^2$"])
def test_names_of_any_kind_are_drawn_as_text(name) -> None:
    svg = plots.forest([make_pairing(RETRIEVAL, name, name, 0.6, 0.5)], name="f")
    assert [node.tag for node in ElementTree.fromstring(svg or "").iter() if "script" in node.tag] == []
    assert any(text[:5] == name[:5] for text in texts(svg or ""))


# --- Grids ---


def test_a_map_has_the_values_and_one_the_differences_of_each_cell() -> None:
    rows, columns = ["en", "de"], ["en", "de", "zh"]
    (entry,) = grids_of([make_grid(DISCREPANCY, "a", "b", rows=rows, columns=columns)])
    (model,) = entry["models"]
    assert [[cell.text for cell in row] for row in model["values"]] == [["20.0", "20.1", "20.2"], ["20.3", "20.4", "20.5"]]
    # PND: better is lower, so the first cell fell and the last rose.
    assert [[cell.text for cell in row] for row in model["changes"]] == [["−3.1", "−0.1", "−0.1"], ["−0.1", "−0.1", "+2.2"]]
    assert [[cell.marked for cell in row] for row in model["changes"]] == [[True, False, False], [False, False, True]]
    assert model["counts"] == {"improved": "1", "worsened": "1", "neither": "4", "cells": "6", "by_z": "by the z-test 7 better, 2 worse"}
    assert (entry["direction"], entry["range"], entry["reach"]) == ("lower is better", "20.0 to 20.5", "3.1")


@pytest.mark.parametrize("task", [RETRIEVAL, DISCREPANCY])
def test_blue_is_better_whichever_way_the_measure_runs(task) -> None:
    (entry,) = grids_of([make_grid(task, "a", "b", rows=["en", "de", "fr"])])
    changes = entry["models"][0]["changes"]

    def blue_over_red(cell) -> int:
        return int(cell.background[5:7], 16) - int(cell.background[1:3], 16)

    assert blue_over_red(changes[0][0]) > 60
    assert blue_over_red(changes[-1][-1]) < -60


def test_maps_of_one_comparison_share_their_colours_and_others_do_not() -> None:
    one = make_grid(RETRIEVAL, "a", None, rows=["en", "de"])
    high = replace(one, model="b", grid=replace(one.grid, after=(np.array(one.grid.after) + 0.5).tolist()))
    other = replace(one, grid=replace(one.grid, comparison="entailment-contradiction"))
    together, alone = grids_of([one, high, other])
    assert [len(entry["models"]) for entry in (together, alone)] == [2, 1]
    low_cell, high_cell = together["models"][0]["values"][1][1], together["models"][1]["values"][1][1]
    assert low_cell.background != high_cell.background
    assert alone["models"][0]["values"][1][1].background == high_cell.background


def test_the_model_that_others_are_compared_with_has_values_alone() -> None:
    entries = grids_of(full_suite().grids)
    assert [(model["name"], model["changes"] is None) for model in entries[0]["models"]] == [("small", False), ("large", True)]
    assert entries[0]["models"][1]["counts"] is None


def test_models_whose_cells_have_no_verdicts_are_named() -> None:
    """Where a model has several runs there are values, perhaps differences, and no verdict."""
    told = make_grid(RETRIEVAL, "b", "a", rows=["en", "de"])
    values = replace(told, model="c", against=None, grid=make_grid(RETRIEVAL, "c", None, rows=["en", "de"]).grid)
    differences = replace(told, model="d", grid=replace(told.grid, verdicts=None, improved=None, worsened=None))
    reference = replace(values, model="a")
    (entry,) = grids_of([reference, told, values, differences], against="a")
    assert entry["untold"] == ["c", "d"]
    assert [model["changes"] is None for model in entry["models"]] == [True, False, True, False]
    assert [model["counts"] is None for model in entry["models"]] == [True, False, True, True]
    assert not any(cell.marked for row in entry["models"][3]["changes"] for cell in row)
    assert grids_of([reference])[0]["untold"] == []


def test_a_large_grid_has_all_its_cells() -> None:
    (entry,) = grids_of([make_grid(RETRIEVAL, "a", "b", rows=FIFTEEN)])
    model = entry["models"][0]
    assert sum(len(row) for row in model["values"]) == sum(len(row) for row in model["changes"]) == 225
    assert sum(cell.marked for row in model["changes"] for cell in row) == 2
