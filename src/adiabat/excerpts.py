"""Beginnings of texts that are too long, or too strange, to be shown whole: in messages, on pages, in tables."""

import re

ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"

# Controls (line ends and tabs apart), lone surrogates and non-characters cannot stand in an HTML or SVG text. What overrides the direction
# of the text behind it, marks of annotations and tags, which nobody sees, make a page or a terminal show other words than are there;
# joiners and the marks of direction that right-to-left texts need do not, nor does an isolate that is closed and holds none of these.
_MISLEADING = (
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff\u202a-\u202e\u2066-\u206f\ufff9-\ufffb\U000e0000-\U000e007f"
)
_UNPRINTABLE = re.compile(f"(\u2068[^{_MISLEADING}]*\u2069)|[{_MISLEADING}]")


def printable(text: str) -> str:
    """The text with every character that a page cannot hold, or that makes it show other words, replaced by U+FFFD."""
    return _UNPRINTABLE.sub(lambda match: match[1] or "\N{REPLACEMENT CHARACTER}", text)


def cut(text: str, *, limit: int) -> str:
    """The beginning of a text, with an ellipsis where something was left out."""
    # A huge text is not worth normalising whole: no more than the first part can show.
    flat = " ".join(printable(text[: 8 * limit]).split())
    if len(flat) <= limit and len(text) <= 8 * limit:
        return flat
    return flat[: limit - 1].rstrip() + ELLIPSIS
