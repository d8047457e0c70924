"""Colours of heat maps, and the cells of those that are tables of the page itself.

A language grid of a dozen models is a dozen maps of some 200 cells: as tables they take a fifth of the room that drawings take, and they
can be read aloud and copied.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
from jaxtyping import Bool, Float
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize, TwoSlopeNorm, to_hex

from adiabat.core.text import DASH
from adiabat.report.svg import MUTED
from adiabat.report.wording import signed

_DIVERGING = LinearSegmentedColormap.from_list(
    "worse-better", ["#9c3d02", "#e08a4a", "#f6d9c0", "#f5f5f4", "#c6dbef", "#5b9bd0", "#12508a"], N=61
)

LEAST_REACH = 1.0
"""Percent, or points, at which a heat map's colours are full, at least, so that changes of nearly nothing look like nothing."""


@dataclass(frozen=True, slots=True)
class HeatCell:
    """One cell of a map: its text, background and letters as CSS colours, and whether it is marked."""

    text: str
    background: str
    ink: str
    marked: bool


def colours(cells: Float[np.ndarray, "..."], *, compared: bool) -> tuple[Colormap, Normalize]:
    """How numbers become colours.

    Args:
        cells: All that share the scale; NaN where there is no value.
    """
    finite = cells[np.isfinite(cells)]
    if compared:
        reach = max(float(np.abs(finite).max(initial=0.0)), LEAST_REACH)
        return _DIVERGING, TwoSlopeNorm(0, -reach, reach)
    low, high = float(finite.min(initial=1.0)), float(finite.max(initial=0.0))
    return matplotlib.colormaps["cividis"].resampled(61), Normalize(low, high if high > low else low + 0.01)


def legible(value: float, colour_map: Colormap, scale: Normalize) -> str:
    """Black or white, whichever contrasts more with the cell (cells keep their colours in the dark scheme)."""
    if not np.isfinite(value):
        return MUTED
    red, green, blue, _ = (
        channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4 for channel in colour_map(scale(value))
    )
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    # The contrasts 1.05 / (luminance + 0.05) and (luminance + 0.05) / 0.05 meet at 0.179; both are above 4.5 there.
    return "#ffffff" if luminance < 0.179 else "#000000"


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
