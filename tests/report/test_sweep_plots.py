"""The figures of a sweep."""

import re
import xml.etree.ElementTree as ElementTree
from functools import cache, partial

import pytest
from matplotlib.colors import to_hex

from adiabat.report import sweep_plots as plots
from adiabat.report.chart_style import BAD, PAPER, drawing, saved
from adiabat.report.sweep_cases import overview_of
from tests.report.html_page import NASTY, texts
from tests.report.sample_sweeps import (
    ARABIC,
    RATE,
    RATES,
    drift_at,
    even_sweep,
    failed_sweep,
    full_sweep,
    grid_of,
    make_run,
    make_sweep,
    simple_sweep,
    sweep_with_a_gap,
)


def pictures_of(result) -> list[plots.Picture]:
    return plots.pictures(overview_of(result))


def axes_of(picture: plots.Picture):
    with drawing():
        return plots.figure_of(picture).axes


def markers_of(axes):
    """Place, height and face of each marker of a run."""
    lines = [line for line in axes.lines if line.get_marker() not in ("None", "", "x") and line.get_gid() is None]
    return {(x, y): to_hex(line.get_markerfacecolor()) for line in lines for x, y in zip(*line.get_data(), strict=True)}


@cache
def drawn_once() -> dict[str, str]:
    """For all tests that only read them."""
    return {picture.name: plots.inlined(picture) for picture in pictures_of(full_sweep())}


def test_each_setting_has_its_figures() -> None:
    kinds = ("improvement", "pairs", "drift", "validation")
    assert list(drawn_once()) == [*(f"{kind}-learning-rate" for kind in kinds), "trade"]
    assert [picture.kind for picture in pictures_of(simple_sweep())] == ["improvement", "validation", "trade"]
    assert pictures_of(make_sweep([])) == []
    assert pictures_of(failed_sweep(*RATES)) == []


def test_two_settings_have_figures_of_their_own_names() -> None:
    names = [picture.name for picture in pictures_of(grid_of(learning_rate=RATES, margin=[0.1, 0.2]))]
    assert names == ["improvement-learning-rate", "validation-learning-rate", "improvement-margin", "validation-margin"]


def test_several_combinations_make_a_figure_for_each_comparison_of_a_grid() -> None:
    pictures = [picture for picture in pictures_of(full_sweep(freezes=(["embeddings"], []))) if picture.kind == "pairs"]
    assert [picture.name for picture in pictures] == ["pairs-learning-rate-1", "pairs-learning-rate-2"]
    assert [panel.title for panel in pictures[0].panels] == ["freeze embeddings", "freeze none"]
    assert "entailment-neutral, cosine" in pictures[0].title


def test_pictures_are_well_formed_and_their_ids_their_own() -> None:
    for name, svg in drawn_once().items():
        ElementTree.fromstring(svg)
        ids = re.findall(r' id="([^"]*)"', svg)
        assert len(ids) == len(set(ids))
        assert all(one.startswith(f"{name}-") for one in ids)
        assert set(re.findall(r'(?:href="#|url\(#)([^")]*)', svg)) <= set(ids)


def test_the_same_data_give_the_same_bytes() -> None:
    first, again = (saved(partial(plots.figure_of, pictures_of(simple_sweep())[0])) for _ in range(2))
    assert first == again
    assert ElementTree.fromstring(first).tag.endswith("svg")
    assert "var(--" not in first


def test_the_legend_names_targets_first_and_says_what_marks_mean() -> None:
    shown = texts(drawn_once()["improvement-learning-rate"])
    assert {"msmarco (target)", "arxiv", "title", "xnli", "open: no evidence", "a run failed", "learning rate"} <= set(shown)
    with drawing():
        (legend,) = plots.figure_of(pictures_of(simple_sweep())[0]).legends
    assert [text.get_text() for text in legend.get_texts()] == ["msmarco (target)", "arxiv", "open: no evidence"]
    assert {"improved", "worsened", "by the z-test"} <= set(texts(drawn_once()["pairs-learning-rate"]))


def test_a_legend_of_two_lines_is_read_from_left_to_right() -> None:
    tasks = [f"a rather long name of task {place}" for place in range(4)]
    with drawing():
        (legend,) = plots.figure_of(pictures_of(even_sweep(tasks, targets=()))[0]).legends
    assert legend._ncols == 2
    # Matplotlib fills the first column before the second.
    assert [text.get_text() for text in legend.get_texts()] == [tasks[0], tasks[2], tasks[1], tasks[3]]


def test_only_what_is_evidence_is_filled() -> None:
    (axes,) = axes_of(pictures_of(simple_sweep())[0])
    faces = markers_of(axes)
    assert len(faces) == 8
    hollow = {place for place, face in faces.items() if face == PAPER}
    assert hollow == {(1e-8, 0.5), (1e-8, 0.2), (5e-8, 0.4)}


def test_targets_are_thick_and_no_two_curves_look_alike() -> None:
    tasks = [f"task {place}" for place in range(16)]
    with drawing():
        (legend,) = plots.figure_of(pictures_of(even_sweep(tasks, targets=tasks[:2]))[0]).legends
    handles = [handle for handle in legend.legend_handles if handle is not None]
    assert len({(handle.get_color(), handle.get_marker()) for handle in handles}) == 16
    widths = {handle.get_label(): handle.get_linewidth() for handle in handles}
    assert [label for label, width in widths.items() if width > 2] == ["task 0 (target)", "task 1 (target)"]


def test_a_failed_run_is_a_cross_at_the_lower_edge() -> None:
    for picture in pictures_of(sweep_with_a_gap()):
        for axes in axes_of(picture):
            (cross,) = [line for line in axes.lines if line.get_gid() == "failed"]
            assert (cross.get_xdata()[0], cross.get_ydata()[0], cross.get_marker(), cross.get_color()) == (2e-8, 0, "x", BAD)
            assert cross.get_transform() == axes.get_xaxis_transform()


def test_rates_and_drift_have_logarithmic_axes_and_counts_have_not() -> None:
    scales = {picture.kind: [(axes.get_xscale(), axes.get_yscale()) for axes in axes_of(picture)] for picture in pictures_of(full_sweep())}
    assert scales == {
        "improvement": [("log", "linear")],
        "pairs": [("log", "linear")] * 2,
        "drift": [("log", "log")] * 3,
        "validation": [("log", "linear")] * 2,
        "trade": [("linear", "linear")] * 4,
    }


def test_no_drift_at_all_stands_at_the_edge_of_a_logarithmic_axis() -> None:
    drifts = [drift_at(rate) for rate in RATES]
    drifts[0].means["turn"] = 0.0
    result = make_sweep([make_run({RATE: rate}, drift=drift) for rate, drift in zip(RATES, drifts, strict=True)])
    (picture,) = [one for one in pictures_of(result) if one.kind == "drift"]
    turn = axes_of(picture)[2]
    (mark,) = [line for line in turn.lines if line.get_gid() == "zero"]
    assert mark.get_xdata()[0] == 1e-8
    assert "0 or below" in texts(plots.inlined(picture))
    for drift in drifts:
        drift.means.update(dict.fromkeys(drift.means, 0.0))
    (picture,) = [one for one in pictures_of(result) if one.kind == "drift"]
    assert {axes.get_yscale() for axes in axes_of(picture)} == {"linear"}


def test_labels_stand_at_values_that_were_tried() -> None:
    rates = [place * 1e-8 for place in range(1, 31)]
    (axes,) = axes_of(pictures_of(simple_sweep({rate: (2.0, 1.0) for rate in rates}))[0])
    labelled = axes.xaxis.get_majorticklocs()
    assert {1e-8, 30 * 1e-8} <= set(labelled)
    assert set(labelled) <= set(rates)
    assert 4 < len(labelled) < 15


@pytest.mark.parametrize(
    ("places", "kept"),
    [
        ([0.0], [0]),
        ([0.0, 0.1], [0, 1]),
        ([0.0, 0.4, 1.0, 2.0, 3.0], [0, 2, 3, 4]),
        ([0.0, 1.0, 1.5, 2.0, 2.9, 3.0], [0, 1, 3, 5]),
    ],
)
def test_labels_keep_their_distance_and_both_ends(places, kept) -> None:
    assert plots.spread(places, room=1.0) == kept


@pytest.mark.parametrize("name", [NASTY[:28], ARABIC, "$x^2$", "日本語", "a\x00b\ud800"])
def test_names_of_any_kind_are_drawn_as_text(name) -> None:
    picture = pictures_of(even_sweep([name], rates=RATES[:2], targets=[name]))[0]
    svg = plots.inlined(picture)
    assert [node.tag for node in ElementTree.fromstring(svg).iter() if "script" in node.tag] == []
    assert any(text.startswith(name[:1]) and text.endswith("(target)") for text in texts(svg))
    assert texts(saved(partial(plots.figure_of, picture))) == texts(svg)


def test_a_long_label_of_a_combination_is_cut_in_the_middle() -> None:
    freezes = [[f"blocks[{place}].attention" for place in range(9)], ["embeddings"]]
    result = full_sweep(freezes=freezes, seeds=(0,))
    svg = plots.inlined(next(picture for picture in pictures_of(result) if picture.kind == "improvement"))
    title = next(text for text in texts(svg) if text.startswith("freeze blocks"))
    assert len(title) < 40
    assert "\N{HORIZONTAL ELLIPSIS}" in title
