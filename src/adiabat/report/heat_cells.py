"""Colours of heat maps, and the cells of those that are tables of the page itself.

A language grid of a dozen models is a dozen maps of some 200 cells: as tables they take a fifth of the room that drawings take, and they
can be read aloud and copied.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.colors import Colormap, Normalize, to_hex

from adiabat.core.text import DASH
from adiabat.report.chart_style import LEAST_REACH as LEAST_REACH
from adiabat.report.chart_style import colours as colours
from adiabat.report.chart_style import legible as legible
from adiabat.report.format import signed


@dataclass(frozen=True, slots=True)
class HeatCell:
    """One cell of a map: its text, background and letters as CSS colours, and whether it is marked."""

    text: str
    background: str
    ink: str
    marked: bool


def value_cells(values: Float[np.ndarray, "q d"], *, among: Float[np.ndarray, "..."]) -> list[list[HeatCell]]:
    """A map of values in [0, 1], times 100.

    Args:
        values: One row for each row of the map; NaN where there is no value.
    """
    colour_map, scale = colours(among, compared=False)
    texts = [[f"{100 * value:.1f}" if np.isfinite(value) else DASH for value in row] for row in values]
    return _cells(texts, values, np.zeros(values.shape, dtype=np.bool_), colour_map, scale)


def change_cells(
    changes: Float[np.ndarray, "q d"], marked: Bool[np.ndarray, "q d"], *, among: Float[np.ndarray, "..."], lower_is_better: bool
) -> list[list[HeatCell]]:
    """A map of differences of values, times 100; blue is better.

    Args:
        changes: One row for each row of the map; NaN where there is no value.
    """
    colour_map, scale = colours(100 * among, compared=True)
    texts = [[signed(100 * change, decimals=1) if np.isfinite(change) else DASH for change in row] for row in changes]
    return _cells(texts, (-100 if lower_is_better else 100) * changes, marked, colour_map, scale)


def _cells(
    texts: Sequence[Sequence[str]],
    values: Float[np.ndarray, "q d"],
    marked: Bool[np.ndarray, "q d"],
    colour_map: Colormap,
    scale: Normalize,
) -> list[list[HeatCell]]:
    return [
        [_cell(text, value, mark, colour_map, scale) for text, value, mark in zip(*row, strict=True)]
        for row in zip(texts, values.tolist(), marked.tolist(), strict=True)
    ]


def _cell(text: str, value: float, marked: bool, colour_map: Colormap, scale: Normalize) -> HeatCell:
    background = to_hex(colour_map(scale(value))) if np.isfinite(value) else "transparent"
    return HeatCell(text, background, legible(value, colour_map, scale), marked)
