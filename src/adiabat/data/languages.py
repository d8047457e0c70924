"""Which of a data set's languages are taken, and whether its sentence pairs can be compared."""

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from adiabat.data.column_names import COLUMN_ALIASES
from adiabat.data.examples import LABELS
from adiabat.data.records import LanguageGridSet
from adiabat.errors import ConfigError, DataError, several

CODE = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{1,8})*")
"""How a language is written (BCP 47), with either dash: ``de``, ``pt-BR``, ``zh_Hans``."""

_IDS = frozenset(COLUMN_ALIASES["query_id"]) | frozenset(COLUMN_ALIASES["doc_id"])
"""Columns that name a row. ``id`` is also the code of Indonesian: where that is meant, `languages` says so."""

_COLUMN = re.compile(r"[a-z]{2,3}([-_]([A-Za-z]{2}|[A-Z][a-z]{3}|[0-9]{3}))*")
_NO_LANGUAGE = re.compile("csv|doc|idx|key|len|num|pos|raw|row|seg|set|sid|src|tag|tgt|tok|tsv|txt|uid|url")


def names_language(column: str) -> bool:
    """Whether a column, or the ending of a file, is named as a language is."""
    if column in _IDS:
        return False
    first, *others = re.split("[-_]", column)
    return _COLUMN.fullmatch(column) is not None and _NO_LANGUAGE.fullmatch(first) is None and "id" not in (first, *others)


def chosen_languages(
    wanted: Sequence[str], present: Collection[str], *, source: str, incomplete: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Check the languages that are asked for.

    Args:
        wanted: Asked for; empty takes all, sorted.
        incomplete: Languages that some rows have and some have not, and in what rows they are missing; None means that there are none.
    """
    if absent := [language for language in dict.fromkeys(wanted) if language not in present]:
        every = ", ".join(sorted(present))
        missing = incomplete or {}
        phrases = (
            f"{language} (missing in {missing[language]})" if language in missing else f"{language}{_near(language, present)}"
            for language in absent
        )
        advice = f"{'complete these rows, ' if missing.keys() & absent else ''}name others, or none to take all"
        raise ConfigError(f"languages must be of {source} ({every}), got {several(phrases, of='others')}; {advice}")
    return tuple(dict.fromkeys(wanted)) or tuple(sorted(present))


def in_languages(grid: LanguageGridSet, languages: Sequence[str]) -> LanguageGridSet:
    """Leave languages out of a grid of sentence pairs.

    Args:
        languages: To be kept; empty keeps all.
    """
    source = f"{grid.name}, in which every sentence pair is"
    kept = chosen_languages(languages, grid.languages, source=source, incomplete=grid.incomplete)
    premises, hypotheses = (
        tuple({language: texts[language] for language in kept} for texts in side) for side in (grid.premises, grid.hypotheses)
    )
    incomplete = {} if languages else grid.incomplete
    return replace(grid, languages=kept, premises=premises, hypotheses=hypotheses, incomplete=incomplete)


def require_every_label(grid: LanguageGridSet, *, source: str | Path) -> None:
    """Check that there are sentence pairs to be compared, before a model computes anything."""
    if absent := [label for label in LABELS if label not in grid.labels]:
        raise DataError(
            f"{source} must have sentence pairs of every label ({', '.join(LABELS)}), got none of {' and '.join(absent)}; "
            "add some, or name a grid that has all three"
        )


def _near(language: str, present: Collection[str]) -> str:
    # Codes have two letters: one in common is near enough to be worth a hint.
    near = difflib.get_close_matches(language, sorted(present), n=2, cutoff=0.5)
    return f" (did you mean {' or '.join(near)}?)" if near else ""
