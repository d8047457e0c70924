"""Where the sentences of a text begin and end.

A sentence ends behind ``. ! ?`` (or the like of another script) and the quotes and brackets that close there, if white space follows and
the next letter is not a small one; behind the full stops of Chinese and Japanese in any case; and at an empty line. A full stop ends none
behind an initial (``J. Smith``), letters with full stops between (``U.S.``, ``i.e.``), or a word that a name follows (``Dr.``, ``et al.``),
nor behind ``No.``, ``Fig.`` and the like where a number follows. Signs without a letter go with the next sentence, or with the last.
It errs towards long sentences.
"""

import re
from itertools import pairwise

_END = re.compile(r"""(?P<mark>[.!?…؟۔।॥]+)[)\]}"'”’»]*(?=\s)|[。！？｡]+[」』”’）]*|\n[^\S\n]*\n""")
_OPENERS = re.compile(r"""[\s(\[{"'“‘«„¿¡]*""")
_LETTER = re.compile(r"\w")
_LAST_WORD = re.compile(r"[^\W\d_]+(?:\.[^\W\d_]+)*$")
_WORD_CHARACTERS = 40
"""Looked at before a full stop: longer than any word of the two lists."""
_BEFORE_NAMES = re.compile(
    r"(?:mr|mrs|ms|mx|dr|prof|rev|hon|gen|gov|sen|rep|pres|lt|col|maj|capt|cmdr|adm|sgt|cpl|st|mt|ft|messrs|mme|mlle|al|cf|v|vs|viz|ca"
    r"|approx)",
    re.IGNORECASE,
)
_BEFORE_NUMBERS = re.compile(
    r"(?:c|no|nos|nr|fig|figs|eq|eqs|ref|refs|sec|ch|vol|p|pp|jan|feb|mar|apr|jun|jul|aug|sep|sept|oct|nov|dec)",
    re.IGNORECASE,
)


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Cut a text into sentences."""
    bounds = [0]
    for match in _END.finditer(text):
        if _ends(text, match) and _LETTER.search(text, bounds[-1], match.end()):
            bounds.append(match.end())
    if len(bounds) > 1 and not _LETTER.search(text, bounds[-1]):
        bounds.pop()  # A dot that stands alone at the end goes with the last sentence.
    spans = [_trimmed(text, *span) for span in pairwise([*bounds, len(text)])]
    return [(start, end) for start, end in spans if start < end]


def _ends(text: str, match: re.Match[str]) -> bool:
    mark = match["mark"]
    if mark is None:
        return True
    opened = _OPENERS.match(text, match.end())
    following = text[opened.end() : opened.end() + 1] if opened else ""
    return not following.islower() and (mark != "." or not _is_short(text, match.start(), following))


def _is_short(text: str, end: int, following: str) -> bool:
    """Whether the full stop at `end` marks a word that is cut short."""
    found = _LAST_WORD.search(text[max(0, end - _WORD_CHARACTERS) : end])
    if found is None:
        return False
    word = found[0]
    if "." in word or (len(word) == 1 and word.isupper()):
        return True
    return bool(_BEFORE_NAMES.fullmatch(word) or (following.isdigit() and _BEFORE_NUMBERS.fullmatch(word)))


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    part = text[start:end]
    return end - len(part.lstrip()), start + len(part.rstrip())
