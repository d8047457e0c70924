"""Texts in several languages: sentence pairs with a label (XNLI), questions with paragraphs, and the choice
of their languages.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Int

from adiabat.core.errors import ConfigError, DataError, several
from adiabat.core.text import numbered, shown
from adiabat.data.columns import Columns, Table, first_row, id_of, parsed_rows, quoted, text_of, text_value
from adiabat.data.folders import table_name
from adiabat.data.lines import COLUMN_ALIASES
from adiabat.data.records import LABELS, LanguageGridSet, invented_id
from adiabat.data.table_rows import FileFaults, Row, RowError, UniqueNames, read_rows, value_kind

CODE = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{1,8})*")
"""Code of a language (BCP 47), with either dash: ``de``, ``pt-BR``, ``zh_Hans``."""

_IDS = frozenset(COLUMN_ALIASES["query_id"]) | frozenset(COLUMN_ALIASES["doc_id"])
"""Columns of ids. ``id`` is also the code of Indonesian; settings must name it as a language explicitly."""

_LANGUAGE_COLUMN = re.compile(r"[a-z]{2,3}([-_]([A-Za-z]{2}|[A-Z][a-z]{3}|[0-9]{3}))*")
_NO_LANGUAGE = re.compile("csv|doc|idx|key|len|num|pos|raw|row|seg|set|sid|src|tag|tgt|tok|tsv|txt|uid|url")
"""Words of three letters that name columns far more often than languages."""


def names_language(column: str) -> bool:
    """Whether the name of a column, or the suffix of a file, is a language code."""
    if column in _IDS:
        return False
    first, *others = re.split("[-_]", column)
    return (
        _LANGUAGE_COLUMN.fullmatch(column) is not None
        and _NO_LANGUAGE.fullmatch(first) is None
        and "id" not in (first, *others)
    )


def chosen_languages(
    wanted: Sequence[str],
    present: Collection[str],
    *,
    source: str,
    incomplete: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Check the requested languages; empty takes all, sorted.

    `incomplete` maps languages to the locations of rows that lack them.
    """
    distinct, locations = tuple(dict.fromkeys(wanted)), incomplete or {}
    absent = [language for language in distinct if language not in present]
    if absent:
        phrases = []
        for language in absent:
            missing = f" (missing in {locations[language]})" if language in locations else ""
            phrases.append(f"{language}{missing}")
        known = ", ".join(sorted(present))
        raise ConfigError(
            f"languages must be of {source} ({known}), got {several(phrases, of='others')}; "
            "name others, complete these rows, or name none to take all"
        )
    return distinct or tuple(sorted(present))


def select_languages(grid: LanguageGridSet, languages: Sequence[str]) -> LanguageGridSet:
    """A grid of sentence pairs in some of its languages; empty takes all."""
    source = f"{grid.name}, in which every sentence pair is"
    chosen = chosen_languages(languages, grid.languages, source=source, incomplete=grid.incomplete)
    return replace(
        grid,
        languages=chosen,
        premises=_in_languages(grid.premises, chosen),
        hypotheses=_in_languages(grid.hypotheses, chosen),
        incomplete={} if languages else grid.incomplete,
    )


def _in_languages(
    rows: Iterable[Mapping[str, str]], languages: Sequence[str]
) -> tuple[Mapping[str, str], ...]:
    """Texts by language, of some languages only."""
    chosen = []
    for texts in rows:
        chosen.append({language: texts[language] for language in languages})
    return tuple(chosen)


def require_every_label(grid: LanguageGridSet, *, source: str | Path) -> None:
    """Check that there are sentence pairs of every label, before a model computes anything."""
    if absent := [label for label in LABELS if label not in grid.labels]:
        raise DataError(
            f"{source} must have sentence pairs of every label ({', '.join(LABELS)}), got none of "
            f"{' and '.join(absent)}; add some, or name a grid that has all three"
        )


@dataclass(frozen=True, slots=True)
class GridRow:
    """One sentence pair in several languages."""

    location: str
    label: str
    premise: Mapping[str, str]
    hypothesis: Mapping[str, str]


def parse_grid_row(row: Row, columns: Columns) -> GridRow:
    """Read a row of a language grid, with languages sorted; a label may be its number, as in XNLI on the
    hub.
    """
    column = columns.find("label", row)
    if column is None:
        raise RowError(
            f'{row.location}: expected "label" beside premise and hypothesis, '
            "found none; map it with data.columns.label"
        )
    columns.note_unread(row, "grid")
    label = row.values[column]
    if isinstance(label, int) and not isinstance(label, bool) and 0 <= label < len(LABELS):
        label = LABELS[label]
    if label not in LABELS:
        raise RowError(
            f'{row.location}: "{column}" must be {", ".join(LABELS)} or 0, 1, 2, got {shown(label)}'
        )
    premise, hypothesis = (_by_language(name, row, columns) for name in ("premise", "hypothesis"))
    return GridRow(row.location, label, premise, hypothesis)


def _by_language(name: str, row: Row, columns: Columns) -> dict[str, str]:
    """Texts by language, sorted, from an object of texts or from two parallel lists."""
    column = columns.require(name, row, "grid")
    value = row.values[column]
    if not isinstance(value, Mapping):
        raise RowError(f'{row.location}: "{column}" must be an object by language')
    # XNLI on the hub.
    if set(value) == {"language", "translation"}:
        value = _from_parallel_lists(value["language"], value["translation"], column, row.location)
    languages = sorted(language for language, text in value.items() if text is not None)
    if not languages:
        raise RowError(f'{row.location}: "{column}" must hold at least one language, got none')
    return {
        language: text_value(value[language], f"{column}.{language}", row.location) for language in languages
    }


def _from_parallel_lists(languages: object, texts: object, column: str, location: str) -> dict[str, object]:
    """Convert the two parallel lists of hypotheses of XNLI on the hub."""
    if not isinstance(languages, list | tuple) or not isinstance(texts, list | tuple):
        raise RowError(
            f'{location}: "{column}" must hold lists of languages and translations, got {value_kind(texts)}'
        )
    if len(languages) != len(texts):
        raise RowError(
            f'{location}: "{column}" must hold as many translations as languages, '
            f"got {len(texts)} for {len(languages)}"
        )
    for language in languages:
        if not isinstance(language, str):
            raise RowError(
                f'{location}: "{column}" must name every language by a text, got {value_kind(language)}'
            )
    return dict(zip(languages, texts, strict=True))


def read_grid(table: Table) -> LanguageGridSet:
    """Read sentence pairs in the languages that all of them have."""
    pairs = list(table.parsed(parse_grid_row))
    table.finish()
    premises, hypotheses = [pair.premise for pair in pairs], [pair.hypothesis for pair in pairs]
    sides = [set(texts) for texts in (*premises, *hypotheses)]
    # Languages of every premise and every hypothesis.
    common = set.intersection(*sides)
    if not common:
        raise DataError(
            f"{table.source} must have a language that every premise and hypothesis "
            "is in, got none; drop incomplete rows"
        )
    languages = tuple(sorted(common))
    return LanguageGridSet(
        table.name,
        languages,
        tuple(pair.label for pair in pairs),
        _in_languages(premises, languages),
        _in_languages(hypotheses, languages),
        _incomplete(pairs, set.union(*sides) - common),
    )


def _incomplete(pairs: Sequence[GridRow], languages: Collection[str]) -> dict[str, str]:
    """Locations of the rows that lack a language on either side, for each of some languages."""
    incomplete = {}
    for language in sorted(languages):
        first, *others = [
            pair.location for pair in pairs if language not in pair.premise or language not in pair.hypothesis
        ]
        more = f" and {len(others):,} more {numbered('row', len(others))}" if others else ""
        incomplete[language] = first + more
    return incomplete


@dataclass(frozen=True, slots=True)
class QuestionGridSet:
    """Questions in several languages, and the paragraphs that answer them."""

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
class _TextRow:
    """One question or paragraph: its id, the key of its paragraph, and its text in every language."""

    location: str
    row_id: str
    key: str
    texts: Mapping[str, str]


def read_question_grid(
    data: str | Path,
    corpus: str | Path,
    *,
    key: str = "para",
    languages: Sequence[str] = (),
    name: str | None = None,
) -> QuestionGridSet:
    """Read questions and paragraphs: tables with a column for each language, and one (`key`) that names the
    paragraph of a question.

    Args:
        languages: Columns to read; empty takes those of both tables that are named by the code of a language,
            sorted.
    """
    faults = FileFaults()
    question_rows, paragraph_rows = _all_rows(data, faults), _all_rows(corpus, faults)
    columns, corpus_columns = (
        set[str]().union(*(row.values for row in rows)) - {key} for rows in (question_rows, paragraph_rows)
    )
    chosen, notes = _common_languages(columns, corpus_columns, languages, str(data), str(corpus))
    parse = partial(_parse_texts, key=key, languages=chosen)
    questions = list(parsed_rows(question_rows, faults, parse))
    paragraphs = list(parsed_rows(paragraph_rows, faults, parse))
    keys, ids = (
        UniqueNames(noun, faults, "rename or remove the duplicates")
        for noun in (f'"{key}"', "the name of a question")
    )
    row_of: dict[str, int] = {}
    for row, paragraph in enumerate(paragraphs):
        keys.add(paragraph.key, paragraph.location)
        # Keys are unique, or the reading ends with faults.
        row_of[paragraph.key] = row
    for question in questions:
        ids.add(question.row_id, question.location)
    # A paragraph that is at fault itself would be reported once more for each of its questions.
    if not faults.count:
        for language in chosen:
            if len({paragraph.texts[language] for paragraph in paragraphs}) < 2:
                fault = f"{corpus} must hold at least two different paragraphs in {language}, got one"
                faults.add(f"{fault}; add others, or leave the language out")
        for question in questions:
            if question.key not in row_of:
                must = f'"{key}" must name a paragraph of {corpus}, got unknown "{question.key}"'
                advice = "add the paragraphs, or leave these questions out"
                faults.add(f"{question.location}: {must}", advice)
    faults.raise_if_any()
    return QuestionGridSet(
        name or table_name(data),
        chosen,
        tuple(question.row_id for question in questions),
        tuple(question.texts for question in questions),
        tuple(paragraph.texts for paragraph in paragraphs),
        np.array([row_of[question.key] for question in questions], dtype=np.int64),
        notes,
    )


def _all_rows(source: str | Path, faults: FileFaults) -> list[Row]:
    """The rows of a table whose columns are languages."""
    return list(first_row(read_rows(source, faults=faults), faults, source)[1])


def _common_languages(
    questions: set[str], paragraphs: set[str], wanted: Sequence[str], data: str, corpus: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The languages to read, and remarks on those that only one of the tables has."""
    if wanted:
        return chosen_languages(wanted, questions & paragraphs, source=f"both {data} and {corpus}"), ()
    first, second = set(filter(names_language, questions)), set(filter(names_language, paragraphs))
    if not first & second:
        present = " and ".join(", ".join(sorted(side)) or "none" for side in (first, second))
        raise DataError(
            f"{data} and {corpus} must share columns named by the code of a language, "
            f"got {present}; name them in languages"
        )
    notes = []
    for unshared, source in ((first - second, data), (second - first, corpus)):
        if unshared:
            notes.append(f"{', '.join(sorted(unshared))} left out: only {source} has them")
    return tuple(sorted(first & second)), tuple(notes)


def _parse_texts(row: Row, *, key: str, languages: Sequence[str]) -> _TextRow:
    """Read a question or a paragraph, which must have a text in every language that is read."""
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
    texts = {language: text_of(row, language) for language in languages}
    row_id = invented_id(row.number, texts[languages[0]])
    for column in COLUMN_ALIASES["query_id"]:
        if column in row.values and column not in (key, *languages):
            row_id = id_of(row, column)
            break
    return _TextRow(row.location, row_id, id_of(row, key), texts)
