import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from functools import cache

import matplotlib
import numpy as np
import pytest

from adiabat.report import evaluation_plots as plots
from tests.report.sample_results import make_dataset, make_grid, make_tuning

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return ["".join(node.itertext()).strip() for node in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def heatmap(dataset, name="grid"):
    return plots.heatmap(dataset.languages, dataset.grid[0], name=name)


def all_pictures() -> list[str]:
    datasets = [make_dataset("cs", "target", 0.6, 0.7), make_dataset("maths", "retain", 0.5, 0.5)]
    tuning = make_tuning()
    pictures = [plots.forest(datasets), plots.forest(datasets, name="narrow", narrow=True), heatmap(make_grid(["en", "de"]))]
    return [picture for picture in [*pictures, *plots.curves(tuning), plots.layer_bars(tuning.layers)] if picture]


@cache
def pictures_once() -> list[str]:
    """Drawn once for all tests that only read them."""
    return all_pictures()


def test_pictures_are_well_formed_and_refer_to_nothing_outside():
    pictures = pictures_once()
    assert len(pictures) == 6
    for picture in pictures:
        assert ElementTree.fromstring(picture).tag == f"{SVG}svg"
        assert re.findall(r"https?://[^\"' ]*", picture) == ["http://www.w3.org/2000/svg"]
        assert "<style" not in picture
        assert "<image" not in picture


def test_every_reference_inside_a_picture_is_to_one_of_its_own_ids():
    for picture in pictures_once():
        ids = re.findall(r' id="([^"]*)"', picture)
        assert len(ids) == len(set(ids))
        assert set(re.findall(r'(?:href="#|url\(#)([^")]*)', picture)) <= set(ids)


def test_the_same_data_give_the_same_bytes():
    assert all_pictures() == pictures_once()


def test_drawing_leaves_the_settings_of_matplotlib_alone():
    before = dict(matplotlib.rcParams)
    plots.layer_bars(make_tuning().layers)
    assert dict(matplotlib.rcParams) == before


def test_a_forest_plot_names_each_data_set_and_its_interval():
    shown = texts(plots.forest([make_dataset("cs", "target", 0.612, 0.661), make_dataset("maths", "retain", 0.5, 0.5)]))
    assert {"cs · nDCG@10", "maths · nDCG@10", "+8.0\xa0% [+4.7,\xa0+11.3]", "0.0\xa0% [−4.0,\xa0+4.0]"} <= set(shown)


def test_there_is_no_forest_plot_without_a_baseline_or_with_a_baseline_of_zero():
    assert plots.forest([make_dataset("cs", "target", None, 0.6)]) is None
    assert plots.forest([make_dataset("cs", "target", 0.0, 0.6)]) is None


@pytest.mark.parametrize(
    "name", ["</text><script>alert(1)</script>", "$x^2$ & more", "مجموعة", "数据集 ✓", "a\x00b\nc", 'href="#x" url(#y)', "x" * 100_000]
)
def test_names_of_any_kind_are_drawn_as_text(name):
    svg = plots.forest([make_dataset(name, "target", 0.5, 0.6)])
    assert svg is not None
    assert [node.tag for node in ElementTree.fromstring(svg).iter() if "script" in node.tag] == []
    assert any(text[:5] == name[:5].replace("\x00", "�").replace("\n", " ") for text in texts(svg))


@pytest.mark.parametrize("side", [1, 2, 15])
def test_a_heat_map_prints_every_cell_and_both_rows_of_languages(side):
    dataset = make_grid([f"l{number}" for number in range(side)])
    shown = texts(heatmap(dataset))
    assert shown.count("+6.2") == 1
    assert shown.count("−4.0") == int(side > 1)
    assert shown.count("+1.5") == side**2 - (1 if side == 1 else 3)
    assert shown.count("–") == int(side > 1)
    assert all(shown.count(language) == 2 for language in dataset.languages)


def test_a_heat_map_dots_exactly_the_cells_with_a_verdict():
    marked = heatmap(make_grid(["en", "de", "fr"]))
    assert marked.count("<use") == 2
    grid = make_grid(["en", "de", "fr"]).grid[0]
    assert plots.heatmap(["en", "de", "fr"], replace(grid, verdicts=None), name="grid").count("<use") == 0


def test_a_heat_map_without_a_baseline_shows_the_discrepancy_itself():
    shown = texts(heatmap(make_grid(["en", "de"], compared=False)))
    assert {".200", ".201", ".210", ".211", "PND (lower is better)"} <= set(shown)


def test_curves_mark_the_kept_epoch_and_count_the_pairs():
    loss, errors = plots.curves(make_tuning())
    assert {"Loss", "training", "validation", "kept: epoch 2", "epoch"} <= set(texts(loss))
    assert {"Validation errors of 4,000 pairs", "kept: epoch 2"} <= set(texts(errors))
    assert "start kept" in texts(plots.curves(make_tuning(best_epoch=0))[0])


def test_curves_leave_out_what_was_not_logged():
    tuning = make_tuning()
    assert plots.curves(replace(tuning, loss=[], validation_loss=[], validation_errors=[])) == []
    (only_loss,) = plots.curves(replace(tuning, validation_loss=[], validation_errors=[], epochs=0))
    assert "step" in texts(only_loss)


def test_thinning_averages_runs_of_neighbours_and_keeps_the_mean():
    points = np.array([[step, float(step % 7)] for step in range(6000)])
    steps, losses = plots._thinned(points)
    assert len(steps) == plots._MOST_POINTS
    assert steps[0] == np.mean(np.arange(20))
    assert losses.mean() == pytest.approx(points[:, 1].mean())
    assert plots._thinned(points[:5])[0].tolist() == [0, 1, 2, 3, 4]


def test_layer_bars_leave_out_tensors_that_were_zero():
    layers = make_tuning().layers[:3]
    shown = texts(plots.layer_bars(layers))
    assert "encoder.layer.0.weight" not in shown
    assert {"encoder.layer.1.weight", "0.100", "encoder.layer.2.weight", "0.200"} <= set(shown)
    assert plots.layer_bars(layers[:1]) is None
