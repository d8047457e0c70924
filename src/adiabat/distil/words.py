"""Words and phrases out of a user's file, one per line."""

from pathlib import Path

from adiabat.data.lines import require_plain
from adiabat.distil.vocabulary import Word
from adiabat.errors import DataError, several


def read_words(path: Path) -> list[Word]:
    """Read words."""
    require_plain(path)
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as fault:
        raise DataError(f"static.vocabulary must be a readable file, got {path}: {fault.strerror}") from fault
    except UnicodeDecodeError as fault:
        raise DataError(f"{path} must be text in UTF-8, got a byte that is none at position {fault.start:,}; convert it") from fault
    words = [Word(line.strip(), f"{path}:{number}") for number, line in enumerate(lines, start=1)]
    if empty := [f"{word.place} is empty" for word in words if not word.text]:
        raise DataError(f"a file of words must have one on each line: {several(empty)}; remove the line")
    if not words:
        raise DataError(f"{path} must hold words, one per line, got none; add some, or leave --vocabulary out")
    return words
