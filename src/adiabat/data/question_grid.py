"""Questions and the paragraphs that answer them, both in several languages (the layout of XQuAD in two tables)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Int

from adiabat.data.column_names import COLUMN_ALIASES
from adiabat.data.columns import RowError, id_value, parsed_rows, text_value
from adiabat.data.languages import chosen_languages, names_language
from adiabat.data.records import invented_id
from adiabat.data.selection import quoted
from adiabat.data.tables import FileFaults, Row, read_rows, table_name
from adiabat.errors import DataError

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

    place: str
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
            f'{row.place} must have the column "{key}", got {quoted(row.values) or "none"}',
            advice="set key to the column that names a paragraph in both tables",
        )
    if absent := [language for language in languages if row.values.get(language) is None]:
        raise RowError(
            f"{row.place}: a text must be there in every language, got none in {', '.join(absent)}",
            advice="complete these rows, or name fewer languages",
        )
    texts = {language: text_value(row.values[language], language, row.place) for language in languages}
    column = next((name for name in COLUMN_ALIASES["query_id"] if name in row.values and name not in languages and name != key), None)
    row_id = invented_id(number, texts[languages[0]]) if column is None else id_value(row.values[column], column, row.place)
    return _Texts(row.place, row_id, id_value(row.values[key], key, row.place), texts)


def _numbered(paragraphs: Sequence[_Texts], key: str, faults: FileFaults) -> dict[str, int]:
    """Position of each paragraph by its name."""
    row_of: dict[str, int] = {}
    for row, one in enumerate(paragraphs):
        if row_of.setdefault(one.key, row) != row:
            faults.add(f'{one.place}: "{key}" must be unique, got "{one.key}" again, first at {paragraphs[row_of[one.key]].place}')
            faults.advise(_UNIQUE)
    return row_of


def _refuse_repeated(questions: Sequence[_Texts], faults: FileFaults) -> None:
    places: dict[str, str] = {}
    for one in questions:
        if (first := places.setdefault(one.row_id, one.place)) != one.place:
            faults.add(f'{one.place}: the name of a question must be unique, got "{one.row_id}" again, first at {first}')
            faults.advise(_UNIQUE)


def _lonely(paragraphs: Sequence[_Texts], languages: Sequence[str], corpus: str | Path) -> Iterator[str]:
    """A phrase for each language in which all paragraphs are the same: a question must have something to choose from."""
    for language in languages:
        if len({one.texts[language] for one in paragraphs}) < 2:
            yield f"{corpus} must hold at least two different paragraphs in {language}, got one; add others, or leave the language out"


def _refuse_unanswered(questions: Sequence[_Texts], row_of: Mapping[str, int], key: str, corpus: str | Path, faults: FileFaults) -> None:
    for one in questions:
        if one.key not in row_of:
            faults.add(f'{one.place}: "{key}" must name a paragraph of {corpus}, got unknown "{one.key}"')
            faults.advise("add the paragraphs, or leave these questions out")
