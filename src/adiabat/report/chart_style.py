"""From a matplotlib figure to SVG text for a page, in the page's colours.

Text stays text, so that the reader's fonts draw any script. Colours are drawn as fixed values and then
replaced by the page's CSS variables
with the fixed value as the fallback: the picture follows light and dark, and also works alone. The drawing
code keeps no pyplot state between calls, and the same figure gives the same bytes. matplotlib is imported
only for drawing; terminal tables do not need it.
"""

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from adiabat.core.text import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, MUTED, RULE, PAPER = "#1c2127", "#5d6773", "#d8dde3", "#fefefd"
GOOD, BAD, ACCENT = "#1f6fb4", "#ad4605", "#6a5196"
"""Blue and vermilion also differ in lightness, and stay distinct under common colour-vision deficiencies."""

_VARIABLES = {
    INK: "ink",
    MUTED: "muted",
    RULE: "rule",
    PAPER: "card",
    GOOD: "good",
    BAD: "bad",
    ACCENT: "accent",
}

_LARGEST_SCALE = 1.5
"""Maximum CSS pixels per point: the 9 points of most labels become 13.5 pixels."""


@contextmanager
def drawing() -> Iterator[None]:
    """The project's drawing settings; glyphs missing from the layout's font do not matter, since the reader's
    fonts draw the text.
    """
    import matplotlib

    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "adiabat",
        "text.parse_math": False,
        "font.size": 9,
        "font.family": "DejaVu Sans",
        "text.color": INK,
        "axes.edgecolor": RULE,
        "axes.labelcolor": MUTED,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 9.5,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.unicode_minus": True,
    }
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font", category=UserWarning)
        warnings.filterwarnings(
            "ignore", message=r"Matplotlib currently does not support .* natively", category=UserWarning
        )
        yield


def svg_file(figure: "Figure") -> str:
    """A figure as a standalone file, with its own colours and fonts."""
    return _svg(figure, Date=None)


def inline_svg(figure: "Figure", *, name: str) -> str:
    """The figure as an inline SVG element: no prolog, no style sheet, unique ids, the page's fonts and
    colours.
    """
    for patch in (figure.patch, *(axes.patch for axes in figure.axes)):
        patch.set_visible(False)
    svg = _svg(figure, Date=None, Creator=None, Format=None, Type=None)
    text = printable(svg[svg.index("<svg") :])
    text = re.sub(r"<defs>\s*<style[^>]*>.*?</style>\s*</defs>\s*|<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', _opening, text, count=1, flags=re.DOTALL)
    # Only inside tags, which hold no text of the user's.
    return re.sub(r"<[^<>]*>", partial(_inlined_tag, name=name), text).strip()


def _svg(figure: "Figure", **metadata: None) -> str:
    """The figure as matplotlib writes it, without metadata that differ from run to run."""
    text = io.StringIO()
    figure.savefig(text, format="svg", facecolor=PAPER, metadata=metadata)
    return text.getvalue()


def _opening(tag: re.Match[str]) -> str:
    """The outer element: as wide as its container, but never so wide that its text becomes larger than the
    page's.
    """
    widest = round(_LARGEST_SCALE * float(tag[1].split()[2]))
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{tag[1]}" style="max-width: {widest}px">'


def _inlined_tag(found: re.Match[str], name: str) -> str:
    """A tag with ids that are unique on the page, the fonts and colours of the page, and fewer digits."""
    tag = found[0]
    if tag.startswith("<g "):
        tag = re.sub(r' id="[^"]*"', "", tag)
    tag = tag.replace(' id="', f' id="{name}-')
    # Nothing in a drawing refers to anything outside it.
    tag = re.sub(r'(?:xlink:)?href="#', f'href="#{name}-', tag)
    tag = tag.replace("url(#", f"url(#{name}-")
    tag = re.sub(r' transform="rotate\(-?0 [^"]*"', "", tag)
    tag = tag.replace("'DejaVu Sans'", "var(--sans, sans-serif)")
    # A hundredth of a point is less than a pixel of any screen.
    tag = re.sub(r"(\.\d\d)\d+", r"\1", tag)
    for colour, variable in _VARIABLES.items():
        tag = tag.replace(f": {colour}", f": var(--{variable}, {colour})")
    return tag


LEAST_REACH = 1.0
"""Minimum percent, or points, at which a heat map's colours are full, so that tiny changes look small."""


def heat_colours(shades: Float[np.ndarray, "..."], *, compared: bool) -> Callable[[float], tuple[str, str]]:
    """A function from a number to the colours of its heat-map cell and text; for changes, 0 is in the
    middle.
    """
    import matplotlib
    from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize, TwoSlopeNorm, to_hex

    finite = shades[np.isfinite(shades)]
    palette: Colormap
    norm: Normalize
    if compared:
        reach = max(float(np.abs(finite).max(initial=0.0)), LEAST_REACH)
        colours = ["#9c3d02", "#e08a4a", "#f6d9c0", "#f5f5f4", "#c6dbef", "#5b9bd0", "#12508a"]
        palette, norm = (
            LinearSegmentedColormap.from_list("worse-better", colours, N=61),
            TwoSlopeNorm(0, -reach, reach),
        )
    else:
        low, high = float(finite.min(initial=1.0)), float(finite.max(initial=0.0))
        palette, norm = (
            matplotlib.colormaps["cividis"].resampled(61),
            Normalize(low, high if high > low else low + 0.01),
        )

    def colours_of(value: float) -> tuple[str, str]:
        """Background and ink for one number."""
        if not np.isfinite(value):
            return "transparent", MUTED
        colour = palette(norm(value))
        linear = [
            channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4
            for channel in colour[:3]
        ]
        # Black or white, whichever contrasts more: (luminance + 0.05) / 0.05 and 1.05 / (luminance + 0.05)
        # meet at 0.179, above 4.5.
        return to_hex(colour), "#ffffff" if np.dot(linear, (0.2126, 0.7152, 0.0722)) < 0.179 else "#000000"

    return colours_of


_SHADES = np.array([[0x3F, 0x95, 0xDC], [0x80, 0x71, 0xC4], [0xB0, 0x50, 0x8F], [0xB0, 0x48, 0x1F]])


def shade(share: float) -> str:
    """Colour of a curve among many, from the smallest (0) to the largest (1), visible on light and dark pages
    alike.
    """
    channels = [round(float(np.interp(3 * share, range(4), _SHADES[:, channel]))) for channel in range(3)]
    return f"#{channels[0]:02x}{channels[1]:02x}{channels[2]:02x}"
