"""Tables of the terminal for pages that are not yet made of sections."""

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

NAME_LENGTH = 48
"""Characters of a name that the table shows."""

NARROWEST = 15
"""Characters of the column of names at the least."""


def empty_table(title: str, first: str, *, caption: str = "", narrowest: bool = True) -> Table:
    """A table as all reports draw them in the terminal, with the column of names.

    Args:
        title: Above it; none where it is empty.
    """
    table = Table(
        title=Text(title) if title else None,
        caption=Text(caption) if caption else None,
        caption_justify="left",
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    table.add_column(first, overflow="fold", min_width=NARROWEST if narrowest else None)
    return table
