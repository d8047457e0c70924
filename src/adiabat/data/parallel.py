"""Texts with their translations: tables with a column or an entry for each language, and pairs of files that go line by line."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from adiabat.core.errors import ConfigError, DataError, several
from adiabat.core.text import shown
from adiabat.data.columns import RowError, first_row, parsed_rows, text_value
from adiabat.data.language_grids import CODE, names_language
from adiabat.data.lines import CODECS, Cursor, text_lines
from adiabat.data.skipped_rows import Remarks
from adiabat.data.table_rows import FileFaults, Row, read_rows, require_path

LANGUAGE_COLUMNS = ("lang", "language")
TRANSLATION_COLUMNS = ("x", "translation", "target", "text")
"""Of rows with one translation each, which say its language."""


@dataclass(frozen=True, slots=True)
class Translation:
    """A text and what it is in another language.

    Attributes:
        source: In the language that the teacher knows.
        text: The translation.
        language: Of the translation.
        location: ``file:line``.
        begins: Whether what this language has before it in the file, if anything, is no neighbour: a gap lies between.
    """

    source: str
    text: str
    language: str
    location: str
    begins: bool = False


@dataclass(frozen=True, slots=True)
class ParallelSource:
    """Where texts and translations stand.

    Attributes:
        path: A table; or, with `translation`, a text file with one sentence on each line.
        translation: A text file whose lines are translations of those of `path`; its name ends in its language, unless `languages` has one.
        source: The language that the teacher knows.
        languages: Those that are taken; empty takes all.
    """

    path: str
    translation: str | None = None
    source: str = "en"
    languages: tuple[str, ...] = ()


def read_parallel(source: ParallelSource) -> Iterator[Translation]:
    """Iterate over translations, in file order, as often as it is called.

    A table has rows with a text for each language (``{"en": ..., "de": ...}``, or a column whose value is such an object, of which there
    may be several), or rows with one translation, whose language a column ``lang`` names (``{"lang": "de", "en": ..., "x": ...}``). A
    language that a row leaves empty is passed over; so are columns that are named as no language is, unless they are asked for. The source
    and its first row are checked at the call.
    """
    if source.translation is not None:
        return _by_lines(source, source.translation)
    faults = FileFaults()
    first, rows = first_row(read_rows(source.path, faults=faults), faults, source.path)
    _require_languages(first, source)
    borders = partial(_Borders, together=not _says_its_language(first))

    def translations() -> Iterator[Translation]:
        marked, remarks = borders(), Remarks()

        def parse(number: int, row: Row) -> list[Translation]:
            del number
            found = _translations(row, source)
            remarks.add_unread(row, _read_columns(row, source))
            return found

        for found in parsed_rows(rows, faults, parse):
            yield from marked.of_row(found)
        faults.raise_if_any()
        remarks.warn(source.path)

    return translations()


@dataclass(slots=True)
class _Borders:
    """Where a language begins anew.

    Attributes:
        together: Whether a row holds all languages, so that one that it lacks has a gap there; else each row has one language.
        before: Languages whose last sentence is a neighbour of what comes.
    """

    together: bool
    before: frozenset[str] = frozenset()

    def of_row(self, found: Sequence[Translation]) -> Iterator[Translation]:
        here = set[str]()
        for one in found:
            yield one if one.language in self.before | here else replace(one, begins=True)
            here.add(one.language)
        self.before = frozenset(here) if self.together else self.before | here


def _translations(row: Row, source: ParallelSource) -> list[Translation]:
    """Those of one row."""
    found = []
    for texts in _groups(row, source):
        own = text_value(texts[source.source], source.source, row.location)
        for language, text in texts.items():
            wanted = language in source.languages if source.languages else language != source.source
            if wanted and text is not None and (not isinstance(text, str) or text.strip()):
                _require_code(language, row)
                found.append(Translation(own, text_value(text, language, row.location), language, row.location))
    return found


def _require_code(language: str, row: Row) -> None:
    if CODE.fullmatch(language) is None:
        raise RowError(f"{row.location}: a language must be a code such as de or pt-BR, got {shown(language)}", advice="write its code")


def _groups(row: Row, source: ParallelSource) -> list[Mapping[str, Any]]:
    """Texts of a row that say the same, by language."""
    values = row.values
    told = next((column for column in LANGUAGE_COLUMNS if column in values), None)
    if told is not None and source.source in values:
        column = next((column for column in TRANSLATION_COLUMNS if column in values), None)
        if column is None:
            raise RowError(f"{row.location}: a row that says its language must have {' or '.join(TRANSLATION_COLUMNS)}, got none of them")
        return [{source.source: values[source.source], text_value(values[told], told, row.location): values[column]}]
    nested = [value for value in values.values() if isinstance(value, Mapping) and source.source in value]
    flat = {name: value for name, value in values.items() if _is_language(name, source) and not isinstance(value, Mapping)}
    groups = [flat, *nested] if source.source in flat else nested
    if not groups:
        raise RowError(
            f'{row.location}: must have a text in "{source.source}", the source language, got {_named(values)}',
            advice="name the language that the teacher knows (--source)",
        )
    return groups


def _read_columns(row: Row, source: ParallelSource) -> set[str]:
    """Columns of texts and of what tells their language; all that are called like a language count, whether they are wanted or not."""
    if _says_its_language(row) and source.source in row.values:
        told = next(column for column in LANGUAGE_COLUMNS if column in row.values)
        return {source.source, told, *[column for column in TRANSLATION_COLUMNS if column in row.values][:1]}
    nested = {name for name, value in row.values.items() if isinstance(value, Mapping) and source.source in value}
    return nested | {name for name in row.values if _is_language(name, source)}


def _is_language(name: str, source: ParallelSource) -> bool:
    return name in (source.source, *source.languages) or names_language(name)


def _says_its_language(row: Row) -> bool:
    return any(column in row.values for column in LANGUAGE_COLUMNS)


def _require_languages(first: Row, source: ParallelSource) -> None:
    """Refuse a table of another layout, by its first row; rows of one translation each are judged one by one."""
    if _says_its_language(first):
        return
    try:
        present = {language for texts in _groups(first, source) for language in texts} - {source.source}
    except RowError as fault:
        raise DataError(f"{fault}; {fault.advice}") from fault
    if not present:
        raise DataError(f"{first.location}: must have a translation beside {source.source}, got {_named(first.values)}; add one")


def _named(values: Mapping[str, Any]) -> str:
    return ", ".join(values) or "nothing"


def _by_lines(source: ParallelSource, translation: str) -> Iterator[Translation]:
    """Of two text files; a line that is blank in either is passed over."""
    one, other = Path(source.path), Path(translation)
    for path in (one, other):
        require_path(path)
    language = _language_of(other, source.languages)
    if source.languages and language not in source.languages:
        return iter(())

    def translations() -> Iterator[Translation]:
        faults, count, begins = FileFaults(), 0, True
        for number, (own, its) in enumerate(zip_longest(_lines(one, faults), _lines(other, faults)), start=1):
            if own is None or its is None:
                raise DataError(_uneven(one, other))
            if whole := bool(own.strip() and its.strip()):
                count += 1
                yield Translation(own.strip(), its.strip(), language, f"{other}:{number}", begins)
            begins = not whole
        faults.raise_if_any()
        if not count:
            raise DataError(
                f"{one} and {other} must hold a sentence and its translation, got none; check that they were written to the end"
            )

    return translations()


def _lines(path: Path, faults: FileFaults) -> Iterator[str]:
    return (line for _, line, _ in text_lines(path, faults, Cursor()))


def _uneven(one: Path, other: Path) -> str:
    counts = [sum(1 for _ in _lines(path, FileFaults())) for path in (one, other)]
    return (
        f"{other} must have as many lines as {one}, one for each sentence, got {counts[1]:,} beside {counts[0]:,}; "
        "lines were lost or added in one of them: get both anew"
    )


def _language_of(path: Path, languages: Sequence[str]) -> str:
    """The language that a name ends in, as in ``corpus.de`` or ``corpus.de.tok.gz``; else the only one that is taken."""
    for ending in reversed(path.suffixes):
        if names_language(language := ending.removeprefix(".")) and ending not in CODECS:
            return language
    if len(languages) == 1:
        return languages[0]
    raise DataError(
        f"{path} must end in the code of its language, as corpus.de does, got none; rename it, or name the only language that is learned "
        "(--languages de)"
    )


def parallel_sources(told: Sequence[str], *, source: str, languages: Sequence[str] = ()) -> list[ParallelSource]:
    """What ``--parallel`` names.

    Args:
        languages: Those that are taken; empty takes all.
    """
    if strange := [shown(one) for one in (source, *languages) if CODE.fullmatch(one) is None]:
        raise ConfigError(f"a language must be a code such as de or pt-BR, got {several(strange)}; write its code")
    found = []
    for one in told:
        path, _, translation = (one, "", "") if Path(one).exists() else one.partition(",")
        found.append(ParallelSource(path, translation or None, source, tuple(languages)))
    return found
