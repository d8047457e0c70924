"""Which of a data set's languages are taken, and whether its sentence pairs can be compared."""

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Int

from adiabat.core.errors import ConfigError, DataError, several
from adiabat.data.columns import RowError, id_value, parsed_rows, text_value
from adiabat.data.examples import LABELS
from adiabat.data.records import LanguageGridSet, invented_id
from adiabat.data.row_filters import quoted
from adiabat.data.table_headers import COLUMN_ALIASES
from adiabat.data.table_rows import FileFaults, Row, read_rows, table_name

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


def select_languages(grid: LanguageGridSet, languages: Sequence[str]) -> LanguageGridSet:
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


_UNIQUE = "rename one of each two, or leave it out"


@dataclass(frozen=True, slots=True)
class QuestionGridSet:
    """Questions in several languages, and the paragraphs of which one answers each.

    Attributes:
        name: For tables and reports.
        languages: Codes, in the order of every inner mapping.
        ids: Of the questions, each once.
        questions: Each in every language.
        paragraphs: Each in every language.
        answers: Position of the paragraph that answers each question.
        notes: What was left out.
    """

    name: str
    languages: tuple[str, ...]
    ids: Sequence[str]
    questions: Sequence[Mapping[str, str]] = field(repr=False)
    paragraphs: Sequence[Mapping[str, str]] = field(repr=False)
    answers: Int[np.ndarray, " n"] = field(repr=False)
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class _Texts:
    """One row: what it is called, which paragraph it belongs to, and its text in every language."""

    location: str
    row_id: str
    key: str
    texts: Mapping[str, str]


def read_question_grid(
    data: str | Path, corpus: str | Path, *, key: str = "para", languages: Sequence[str] = (), name: str | None = None
) -> QuestionGridSet:
    """Read questions and paragraphs: tables with a column for each language, and one that says which paragraph answers a question.

    Args:
        languages: Columns to take; empty takes those of both tables that are called like the code of a language, sorted.
        name: For tables and reports; None takes that of `data`.
    """
    faults = FileFaults()
    asked, told = (list(read_rows(source, faults=faults)) for source in (data, corpus))
    for source, rows in ((data, asked), (corpus, told)):
        if not rows:
            faults.raise_if_any()
            raise DataError(f"{source} must hold at least one row, got none; check that it was written to its end")
    taken, notes = _languages(asked, told, languages, key, (str(data), str(corpus)))
    parse = partial(_parse, key=key, languages=taken)
    questions, paragraphs = (list(parsed_rows(rows, faults, parse)) for rows in (asked, told))
    row_of = _numbered(paragraphs, key, faults)
    _refuse_repeated(questions, faults)
    if not faults.count:  # A paragraph that is at fault itself would be reported once more for each of its questions.
        faults.extend(_lonely(paragraphs, taken, corpus))
        _refuse_unanswered(questions, row_of, key, corpus, faults)
    faults.raise_if_any()
    return QuestionGridSet(
        name or table_name(data),
        taken,
        tuple(one.row_id for one in questions),
        tuple(one.texts for one in questions),
        tuple(one.texts for one in paragraphs),
        np.array([row_of[one.key] for one in questions], dtype=np.int64),
        notes,
    )


def _languages(
    asked: Iterable[Row], told: Iterable[Row], wanted: Sequence[str], key: str, sources: tuple[str, str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The languages to take, and a sentence on those that only one of the tables has."""
    first, second = ({name for row in rows for name in row.values if name != key} for rows in (asked, told))
    if wanted:
        return chosen_languages(wanted, first & second, source=f"both {sources[0]} and {sources[1]}"), ()
    first, second = ({name for name in names if names_language(name)} for names in (first, second))
    if not first & second:
        found = f"{', '.join(sorted(first)) or 'none'} and {', '.join(sorted(second)) or 'none'}"
        raise DataError(
            f"{sources[0]} and {sources[1]} must share columns named by the code of a language, got {found}; name them in languages"
        )
    lost = [
        f"{', '.join(sorted(mine - other))} left out: only {source} has them"
        for mine, other, source in ((first, second, sources[0]), (second, first, sources[1]))
        if mine - other
    ]
    return tuple(sorted(first & second)), tuple(lost)


def _parse(number: int, row: Row, *, key: str, languages: Sequence[str]) -> _Texts:
    if key not in row.values:
        raise RowError(
            f'{row.location} must have the column "{key}", got {quoted(row.values) or "none"}',
            advice="set key to the column that names a paragraph in both tables",
        )
    if absent := [language for language in languages if row.values.get(language) is None]:
        raise RowError(
            f"{row.location}: a text must be there in every language, got none in {', '.join(absent)}",
            advice="complete these rows, or name fewer languages",
        )
    texts = {language: text_value(row.values[language], language, row.location) for language in languages}
    column = next((name for name in COLUMN_ALIASES["query_id"] if name in row.values and name not in languages and name != key), None)
    row_id = invented_id(number, texts[languages[0]]) if column is None else id_value(row.values[column], column, row.location)
    return _Texts(row.location, row_id, id_value(row.values[key], key, row.location), texts)


def _numbered(paragraphs: Sequence[_Texts], key: str, faults: FileFaults) -> dict[str, int]:
    """Position of each paragraph by its name."""
    row_of: dict[str, int] = {}
    for row, one in enumerate(paragraphs):
        if row_of.setdefault(one.key, row) != row:
            faults.add(f'{one.location}: "{key}" must be unique, got "{one.key}" again, first at {paragraphs[row_of[one.key]].location}')
            faults.advise(_UNIQUE)
    return row_of


def _refuse_repeated(questions: Sequence[_Texts], faults: FileFaults) -> None:
    locations: dict[str, str] = {}
    for one in questions:
        if (first := locations.setdefault(one.row_id, one.location)) != one.location:
            faults.add(f'{one.location}: the name of a question must be unique, got "{one.row_id}" again, first at {first}')
            faults.advise(_UNIQUE)


def _lonely(paragraphs: Sequence[_Texts], languages: Sequence[str], corpus: str | Path) -> Iterator[str]:
    """A phrase for each language in which all paragraphs are the same: a question must have something to choose from."""
    for language in languages:
        if len({one.texts[language] for one in paragraphs}) < 2:
            yield f"{corpus} must hold at least two different paragraphs in {language}, got one; add others, or leave the language out"


def _refuse_unanswered(questions: Sequence[_Texts], row_of: Mapping[str, int], key: str, corpus: str | Path, faults: FileFaults) -> None:
    for one in questions:
        if one.key not in row_of:
            faults.add(f'{one.location}: "{key}" must name a paragraph of {corpus}, got unknown "{one.key}"')
            faults.advise("add the paragraphs, or leave these questions out")
