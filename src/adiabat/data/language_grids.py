"""Texts in several languages: sentence pairs with a label (XNLI), questions with paragraphs, and the choice
of their languages.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Int

from adiabat.core.errors import ConfigError, DataError, several
from adiabat.core.text import shown
from adiabat.data.columns import Columns, Table, id_value, parsed_rows, quoted, text_value
from adiabat.data.folders import table_name
from adiabat.data.lines import COLUMN_ALIASES
from adiabat.data.records import LABELS, LanguageGridSet, invented_id
from adiabat.data.table_rows import FileFaults, Row, RowError, read_rows, value_kind

CODE = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{1,8})*")
"""Code of a language (BCP 47), with either dash: ``de``, ``pt-BR``, ``zh_Hans``."""

_IDS = frozenset(COLUMN_ALIASES["query_id"]) | frozenset(COLUMN_ALIASES["doc_id"])
"""Columns of ids. ``id`` is also the code of Indonesian; settings must name it as a language explicitly."""

_LANGUAGE_COLUMN = re.compile(r"[a-z]{2,3}([-_]([A-Za-z]{2}|[A-Z][a-z]{3}|[0-9]{3}))*")
_NO_LANGUAGE = re.compile("csv|doc|idx|key|len|num|pos|raw|row|seg|set|sid|src|tag|tgt|tok|tsv|txt|uid|url")


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
    if absent := [language for language in dict.fromkeys(wanted) if language not in present]:
        locations = incomplete or {}
        phrases = (
            f"{language} (missing in {locations[language]})"
            if language in locations
            else f"{language}{_suggestion(language, present)}"
            for language in absent
        )
        advice = (
            f"{'complete these rows, ' if locations.keys() & absent else ''}name others, or none to take all"
        )
        known = ", ".join(sorted(present))
        raise ConfigError(
            f"languages must be of {source} ({known}), got {several(phrases, of='others')}; {advice}"
        )
    return tuple(dict.fromkeys(wanted)) or tuple(sorted(present))


def _suggestion(language: str, present: Collection[str]) -> str:
    # Codes have two letters, so one shared letter suffices for a hint.
    near = difflib.get_close_matches(language, sorted(present), n=2, cutoff=0.5)
    return f" (did you mean {' or '.join(near)}?)" if near else ""


def select_languages(grid: LanguageGridSet, languages: Sequence[str]) -> LanguageGridSet:
    """A grid of sentence pairs in some of its languages; empty takes all."""
    source = f"{grid.name}, in which every sentence pair is"
    chosen = chosen_languages(languages, grid.languages, source=source, incomplete=grid.incomplete)
    premises, hypotheses = (
        tuple({language: texts[language] for language in chosen} for texts in side)
        for side in (grid.premises, grid.hypotheses)
    )
    incomplete = {} if languages else grid.incomplete
    return replace(grid, languages=chosen, premises=premises, hypotheses=hypotheses, incomplete=incomplete)


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
    label_column = columns.find("label", row)
    if label_column is None:
        raise RowError(
            f'{row.location}: expected "label" beside premise and hypothesis, '
            "found none; map it with data.columns.label"
        )
    columns.note_unread(row, "grid")
    label = row.values[label_column]
    if isinstance(label, int) and not isinstance(label, bool) and 0 <= label < len(LABELS):
        label = LABELS[label]
    if label not in LABELS:
        raise RowError(
            f'{row.location}: "{label_column}" must be {", ".join(LABELS)} or 0, 1, 2, got {shown(label)}'
        )
    return GridRow(
        row.location, label, _by_language("premise", row, columns), _by_language("hypothesis", row, columns)
    )


def _by_language(name: str, row: Row, columns: Columns) -> dict[str, str]:
    column = columns.require(name, row, "grid")
    value = row.values[column]
    if not isinstance(value, Mapping):
        raise RowError(f'{row.location}: "{column}" must be an object by language')
    if set(value) == {"language", "translation"}:
        value = _from_parallel_lists(value["language"], value["translation"], column, row.location)
    texts = {language: text for language, text in value.items() if text is not None}
    if not texts:
        raise RowError(f'{row.location}: "{column}" must hold at least one language, got none')
    return {
        language: text_value(texts[language], f"{column}.{language}", row.location)
        for language in sorted(texts)
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
    if invalid := [language for language in languages if not isinstance(language, str)]:
        raise RowError(
            f'{location}: "{column}" must name every language by a text, got {value_kind(invalid[0])}'
        )
    return dict(zip(languages, texts, strict=True))


def read_grid(table: Table, *, name: str) -> LanguageGridSet:
    """Read sentence pairs in the languages that all of them have."""
    pairs = list(table.parsed(parse_grid_row))
    table.finish()
    common = set.intersection(*(set(side) for pair in pairs for side in (pair.premise, pair.hypothesis)))
    if not common:
        raise DataError(
            f"{table.source} must have a language that every premise and hypothesis "
            "is in, got none; drop incomplete rows"
        )
    languages = tuple(sorted(common))
    return LanguageGridSet(
        name,
        languages,
        tuple(pair.label for pair in pairs),
        tuple({language: pair.premise[language] for language in languages} for pair in pairs),
        tuple({language: pair.hypothesis[language] for language in languages} for pair in pairs),
        _incomplete(pairs, common),
    )


def _incomplete(pairs: Sequence[GridRow], common: Collection[str]) -> dict[str, str]:
    """Locations of the rows that lack a language, for each language that some pairs lack on either side."""
    known = set[str]().union(*(side.keys() for pair in pairs for side in (pair.premise, pair.hypothesis)))
    incomplete = {}
    for language in sorted(known.difference(common)):
        lacking = [
            pair.location for pair in pairs if language not in pair.premise or language not in pair.hypothesis
        ]
        more = len(lacking) - 1
        incomplete[language] = lacking[0] + (
            f" and {more:,} more row{'' if more == 1 else 's'}" if more else ""
        )
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


_NAMING = "its columns are languages, which tasks.languages names, and the one that tasks.key names"


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
    question_rows, paragraph_rows = (
        list(read_rows(source, faults=faults, naming=_NAMING)) for source in (data, corpus)
    )
    for source, rows in ((data, question_rows), (corpus, paragraph_rows)):
        if not rows:
            faults.raise_if_any()
            raise DataError(f"{source} must hold at least one row, got none; check that the file is complete")
    question_columns, paragraph_columns = (
        {column for row in rows for column in row.values if column != key}
        for rows in (question_rows, paragraph_rows)
    )
    chosen, notes = _common_languages(question_columns, paragraph_columns, languages, str(data), str(corpus))
    parse = partial(_parse_texts, key=key, languages=chosen)
    questions, paragraphs = (
        list(parsed_rows(rows, faults, parse)) for rows in (question_rows, paragraph_rows)
    )
    row_of = {paragraph.key: row for row, paragraph in enumerate(paragraphs)}
    _require_unique(f'"{key}"', ((paragraph.key, paragraph.location) for paragraph in paragraphs), faults)
    _require_unique(
        "the name of a question", ((question.row_id, question.location) for question in questions), faults
    )
    if (
        not faults.count
    ):  # A paragraph that is at fault itself would be reported once more for each of its questions.
        for language in chosen:
            if len({paragraph.texts[language] for paragraph in paragraphs}) < 2:
                fault = f"{corpus} must hold at least two different paragraphs in {language}, got one"
                faults.add(f"{fault}; add others, or leave the language out")
        for question in (question for question in questions if question.key not in row_of):
            fault = (
                f'{question.location}: "{key}" must name a paragraph of {corpus}, '
                f'got unknown "{question.key}"'
            )
            faults.add(fault, "add the paragraphs, or leave these questions out")
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


def _common_languages(
    questions: set[str], paragraphs: set[str], wanted: Sequence[str], data: str, corpus: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The languages to read, and remarks on those that only one of the tables has."""
    if wanted:
        return chosen_languages(wanted, questions & paragraphs, source=f"both {data} and {corpus}"), ()
    first, second = (
        {column for column in columns if names_language(column)} for columns in (questions, paragraphs)
    )
    if not first & second:
        present = f"{', '.join(sorted(first)) or 'none'} and {', '.join(sorted(second)) or 'none'}"
        raise DataError(
            f"{data} and {corpus} must share columns named by the code of a language, "
            f"got {present}; name them in languages"
        )
    sides = ((first - second, data), (second - first, corpus))
    notes = tuple(
        f"{', '.join(sorted(unshared))} left out: only {source} has them"
        for unshared, source in sides
        if unshared
    )
    return tuple(sorted(first & second)), notes


def _parse_texts(row: Row, *, key: str, languages: Sequence[str]) -> _TextRow:
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
    column = next(
        (
            name
            for name in COLUMN_ALIASES["query_id"]
            if name in row.values and name not in languages and name != key
        ),
        None,
    )
    row_id = (
        invented_id(row.number, texts[languages[0]])
        if column is None
        else id_value(row.values[column], column, row.location)
    )
    return _TextRow(row.location, row_id, id_value(row.values[key], key, row.location), texts)


def _require_unique(name: str, located: Iterable[tuple[str, str]], faults: FileFaults) -> None:
    locations: dict[str, str] = {}
    for value, location in located:
        if (first := locations.setdefault(value, location)) != location:
            fault = f'{location}: {name} must be unique, got "{value}" again, first at {first}'
            faults.add(fault, "rename or remove the duplicates")
