"""Names at the ends of curves: each beside its own, where it covers as little as can be of the others."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox, BboxBase

from adiabat.report.svg import INK, MUTED, PAPER

_LINE = 11.0
"""Points from one line of names to the next."""

_MARKER = 5.0
"""Points around the middle of a marker that a name keeps free."""

_DISTANCE = 3
"""What each place farther down the list costs, in points of a curve that are covered."""

_Place = tuple[float, float, Literal["left", "center", "right"], Literal["bottom", "center", "top"]]

# Points from the end of the curve, and which side of the name stands there: beside it, above and below, then ever farther.
_BESIDE: tuple[_Place, ...] = tuple((8.0, lines * _LINE, "left", "center") for lines in (0, 1, -1, 2, -2, 3, -3, 4, -4))
_OVER: tuple[_Place, ...] = ((0.0, 8.0, "center", "bottom"), (0.0, -8.0, "center", "top"))
_PLACES: tuple[_Place, ...] = (*_BESIDE[:3], *_OVER, *_BESIDE[3:], (-8.0, 0.0, "right", "center"))


@dataclass(frozen=True, slots=True)
class Named:
    """A curve that bears its name.

    Attributes:
        name: To be shown; none where it is empty.
        points: Steps and heights, the last where the name belongs.
        bold: Whether it is set off.
    """

    name: str
    points: Float[np.ndarray, "n 2"]
    bold: bool = False


def name_ends(figure: Figure, axes: Axes, curves: Sequence[Named], *, others: Sequence[Float[np.ndarray, "n 2"]] = ()) -> None:
    """Write names at the ends of curves."""
    figure.draw_without_rendering()
    point = figure.dpi / 72
    drawn = [axes.transData.transform(curve.points) for curve in curves]
    markers = np.array([one[-1] for one in drawn])
    lines = np.concatenate([_dense(one, every=2 * point) for one in [*drawn, *map(axes.transData.transform, others)]])
    taken: list[Bbox] = []
    named = [(curve, end) for curve, end in zip(curves, markers, strict=True) if curve.name]
    for curve, end in sorted(named, key=lambda one: (not one[0].bold, -one[1][1], -one[1][0])):
        kept_free = markers[(markers != end).any(axis=1)]
        boxes = _boxes(_named(axes, curve, _PLACES[0]), end, point)
        costs = [
            10_000 * (not _holds(axes.bbox, box))
            + 1000 * box.count_overlaps(taken)
            + 100 * _inside(box.padded(_MARKER * point), kept_free)
            + _inside(box.padded(point), lines)
            + _DISTANCE * rank
            for rank, box in enumerate(boxes)
        ]
        best = int(np.argmin(costs))
        _named(axes, curve, _PLACES[best])
        taken.append(boxes[best])


def _boxes(measured: Annotation, end: Float[np.ndarray, "2"], point: float) -> list[Bbox]:
    """What a name covers at each of the places; the one that it is measured on goes away."""
    size = measured.get_window_extent()
    measured.remove()
    shift = {"left": 0.0, "bottom": 0.0, "center": -0.5, "right": -1.0, "top": -1.0}
    corners = [(x * point + shift[across] * size.width, y * point + shift[up] * size.height) for x, y, across, up in _PLACES]
    return [Bbox.from_bounds(end[0] + x, end[1] + y, size.width, size.height) for x, y in corners]


def _named(axes: Axes, curve: Named, place: _Place) -> Annotation:
    across, up, horizontal, vertical = place
    far = abs(up) > _LINE
    return axes.annotate(
        curve.name,
        tuple(curve.points[-1]),
        xytext=(across, up),
        textcoords="offset points",
        ha=horizontal,
        va=vertical,
        color=INK,
        fontsize=8.5,
        fontweight="bold" if curve.bold else "normal",
        arrowprops={"arrowstyle": "-", "color": MUTED, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 4} if far else None,
        bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 0.5},
        annotation_clip=False,
        in_layout=False,
        zorder=3.5,
    )


def _dense(points: Float[np.ndarray, "n 2"], *, every: float) -> Float[np.ndarray, "m 2"]:
    """Points along a curve, near enough to one another that none of it passes through a name unseen."""
    along = np.concatenate([[0.0], np.hypot(*np.diff(points, axis=0).T).cumsum()])
    at = np.linspace(0.0, along[-1], 1 + int(along[-1] / every))
    return np.stack([np.interp(at, along, points[:, axis]) for axis in (0, 1)], axis=1)


def _inside(box: Bbox, points: Float[np.ndarray, "n 2"]) -> int:
    return int(((points > [box.x0, box.y0]) & (points < [box.x1, box.y1])).all(axis=1).sum())


def _holds(outer: BboxBase, inner: Bbox) -> bool:
    return bool(outer.x0 <= inner.x0 and inner.x1 <= outer.x1 and outer.y0 <= inner.y0 and inner.y1 <= outer.y1)
