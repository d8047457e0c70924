"""Text as Markdown and LaTeX show it, for the tables that are written beside a page."""

import re
from collections.abc import Sequence

from adiabat.core.text import DASH, MINUS, NO_BREAK
from adiabat.report.format import EVEN, VERDICT_MARKS

NAME_LENGTH = 200
"""Characters of a name that a table holds."""

_LATEX = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}"},
    # At the start of a row these would be read as an option of the line end before it.
    **{"[": "{[}", "]": "{]}", "*": "{*}"},
    **{MINUS: "$-$", NO_BREAK: "~", DASH: "--", EVEN: r"$\approx$", "|": r"\textbar{}", "\N{REPLACEMENT CHARACTER}": "?"},
    # Straight quotes as they are; the double one of the usual fonts is a curved one, and that of \textquotedbl takes a package.
    **{"`": r"\textasciigrave{}", "'": r"\textquotesingle{}", '"': r"\textquotesingle\textquotesingle{}"},
    **dict(zip(VERDICT_MARKS.values(), (r"$\uparrow$", r"$\downarrow$", r"$\circ$"), strict=True)),
}
# Two of one of them would be set as a dash, or as a quote.
_JOINED = "-,"


def markdown_row(cells: Sequence[str]) -> str:
    """A row of a table of Markdown."""
    return f"| {' | '.join(cells)} |"


def markdown(text: str) -> str:
    """Text of one line as Markdown that shows it as it is."""
    flat = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]#|~!$])", r"\\\1", flat)


def latex(text: str) -> str:
    """Text of one line as LaTeX that sets it as it is."""
    neighbours = zip(text, [*text[1:], ""], strict=False)
    return "".join(_LATEX.get(one, one) + "{}" * (one == other and one in _JOINED) for one, other in neighbours)
