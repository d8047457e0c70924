"""Texts with their translations: tables with a column or an entry for each language, and pairs of files with
parallel lines.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from adiabat.core.errors import ConfigError, DataError, several
from adiabat.core.text import shown
from adiabat.core.wording import option
from adiabat.data.columns import Remarks, first_row, optional_text, parsed_rows, text_of, text_value
from adiabat.data.folders import require_path
from adiabat.data.language_grids import CODE, names_language
from adiabat.data.lines import CODECS, Cursor, text_lines
from adiabat.data.table_rows import FileFaults, Row, RowError, read_rows

LANGUAGE_COLUMNS = ("lang", "language")
TRANSLATION_COLUMNS = ("x", "translation", "target", "text")
"""Columns of the text in rows with one translation, whose language a column names."""


@dataclass(frozen=True, slots=True)
class Translation:
    """A text and its translation; `begins` marks a gap before it, so that it does not continue the previous
    sentence.
    """

    source: str
    text: str
    language: str
    location: str
    begins: bool = False


@dataclass(frozen=True, slots=True)
class ParallelSource:
    """A table of texts and translations; or two text files whose lines are translations of each other.

    The file name of the translation ends in its language, unless `languages` has one.
    """

    path: str
    translation: str | None = None
    source: str = "en"
    languages: tuple[str, ...] = ()


def parallel_sources(
    names: Sequence[str], *, source: str, languages: Sequence[str] = ()
) -> list[ParallelSource]:
    """The sources of ``--parallel``: a table, or two files with a comma between them."""
    if invalid := [shown(code) for code in (source, *languages) if CODE.fullmatch(code) is None]:
        raise ConfigError(
            f"a language must be a code such as de or pt-BR, got {several(invalid)}; write its code"
        )
    sources = []
    for name in names:
        path, _, translation = (name, "", "") if Path(name).exists() else name.partition(",")
        sources.append(ParallelSource(path, translation or None, source, tuple(languages)))
    return sources


def read_parallel(source: ParallelSource) -> Iterator[Translation]:
    """Iterate over translations, in file order.

    A table has rows with a text for each language (``{"en": ..., "de": ...}``, or columns whose values are
    such objects), or rows with one translation, whose language a column ``lang`` names (``{"lang": "de",
    "en": ..., "x": ...}``). Empty languages of a row are skipped, and so are columns whose name is not a
    language, unless settings name them. The source and its first row are checked at the call.
    """
    if source.translation is not None:
        return _parallel_lines(source, source.translation)
    faults = FileFaults()
    first, rows = first_row(read_rows(source.path, faults=faults), faults, source.path)
    _require_languages(first, source)

    def translations() -> Iterator[Translation]:
        """The translations of all rows; a language that the row before lacks begins anew."""
        remarks, neighbours = Remarks(), frozenset[str]()
        has_all_languages = not _names_its_language(first)

        def parse(row: Row) -> list[Translation]:
            """Read a row, and note its columns that are no texts."""
            groups, used = _groups(row, source)
            parsed = _translations(groups, row, source)
            remarks.add_unread(row, used)
            return parsed

        for row_translations in parsed_rows(rows, faults, parse):
            languages = set[str]()
            for translation in row_translations:
                follows = translation.language in neighbours | languages
                yield translation if follows else replace(translation, begins=True)
                languages.add(translation.language)
            # A language missing from a row of all languages has a gap there.
            neighbours = frozenset(languages) if has_all_languages else neighbours | languages
        faults.raise_if_any()
        remarks.warn(source.path)

    return translations()


def _translations(groups: Sequence[Mapping[str, Any]], row: Row, source: ParallelSource) -> list[Translation]:
    """The translations of a row into the wanted languages, blank ones left out."""
    translations = []
    for texts in groups:
        source_text = text_value(texts[source.source], source.source, row.location)
        for language, value in texts.items():
            is_wanted = language in source.languages if source.languages else language != source.source
            text = optional_text(value, language, row.location) if is_wanted else ""
            if not text:
                continue
            if CODE.fullmatch(language) is None:
                fault = (
                    f"{row.location}: a language must be a code such as de or pt-BR, got {shown(language)}"
                )
                raise RowError(fault, advice="write its code")
            translations.append(Translation(source_text, text, language, row.location))
    return translations


def _groups(row: Row, source: ParallelSource) -> tuple[list[Mapping[str, Any]], set[str]]:
    """Texts of a row with the same meaning, by language; and the columns of texts with their language,
    including unrequested ones.
    """
    values = row.values
    language_column = _first_of(LANGUAGE_COLUMNS, values)
    if language_column is not None and source.source in values:
        column = _first_of(TRANSLATION_COLUMNS, values)
        if column is None:
            raise RowError(
                f"{row.location}: a row with a language must have "
                f"{' or '.join(TRANSLATION_COLUMNS)}, got none of them"
            )
        texts = {source.source: values[source.source], text_of(row, language_column): values[column]}
        return [texts], {source.source, language_column, column}
    nested, flat = dict[str, Mapping[str, Any]](), dict[str, Any]()
    for name, value in values.items():
        if not isinstance(value, Mapping):
            if _is_language(name, source):
                flat[name] = value
        elif source.source in value:
            nested[name] = value
    groups = [*([flat] if source.source in flat else []), *nested.values()]
    if not groups:
        raise RowError(
            f'{row.location}: must have a text in "{source.source}", the '
            f"source language, got {_names(values)}",
            advice=f"name the language that the teacher knows ({option('source')})",
        )
    return groups, {*nested, *flat}


def _first_of(columns: Sequence[str], values: Mapping[str, Any]) -> str | None:
    """The first of some columns that a row has."""
    return next((column for column in columns if column in values), None)


def _is_language(name: str, source: ParallelSource) -> bool:
    """Whether a column holds texts of a language: settings name it, or its name is a code."""
    return name in (source.source, *source.languages) or names_language(name)


def _names_its_language(row: Row) -> bool:
    """Whether a row holds one translation, whose language it names in a column."""
    return _first_of(LANGUAGE_COLUMNS, row.values) is not None


def _require_languages(first: Row, source: ParallelSource) -> None:
    """Refuse a table of another layout, by its first row; rows of one translation are checked one by one."""
    if _names_its_language(first):
        return
    try:
        languages = {language for texts in _groups(first, source)[0] for language in texts} - {source.source}
    except RowError as fault:
        raise DataError(f"{fault}; {fault.advice}") from fault
    if not languages:
        raise DataError(
            f"{first.location}: must have a translation beside {source.source}, "
            f"got {_names(first.values)}; add one"
        )


def _names(values: Mapping[str, Any]) -> str:
    """The columns of a row, for messages."""
    return ", ".join(values) or "nothing"


def _parallel_lines(source: ParallelSource, translation: str) -> Iterator[Translation]:
    """Translations of two text files; lines that are blank in either are skipped."""
    source_path, translation_path = Path(source.path), Path(translation)
    for path in (source_path, translation_path):
        require_path(path)
    language = _language_of(translation_path, source.languages)
    if source.languages and language not in source.languages:
        return iter(())

    def translations() -> Iterator[Translation]:
        """The pairs of lines; one behind a blank line begins anew."""
        faults, count, begins = FileFaults(), 0, True
        # A file that ends first is at fault, and shows only there.
        lines = zip_longest(_lines(source_path, faults), _lines(translation_path, faults))
        for number, (text, translated) in enumerate(lines, start=1):
            if text is None or translated is None:
                raise DataError(_unequal_lengths(source_path, translation_path))
            if is_pair := bool(text.strip() and translated.strip()):
                count += 1
                yield Translation(
                    text.strip(), translated.strip(), language, f"{translation_path}:{number}", begins
                )
            begins = not is_pair
        faults.raise_if_any()
        if not count:
            raise DataError(
                f"{source_path} and {translation_path} must hold a sentence and its translation, got none; "
                "check that both files are complete"
            )

    return translations()


def _lines(path: Path, faults: FileFaults) -> Iterator[str]:
    """Lines of a text file; faulty ones are noted."""
    return (line for _, line, _ in text_lines(path, faults, Cursor()))


def _unequal_lengths(source_path: Path, translation_path: Path) -> str:
    """The phrase for two files of different numbers of lines, which are counted to their ends."""
    counts = [sum(1 for _ in _lines(path, FileFaults())) for path in (source_path, translation_path)]
    return (
        f"{translation_path} must have as many lines as {source_path}, one for each sentence, got "
        f"{counts[1]:,} beside {counts[0]:,}; one of them lost or gained lines: get both again"
    )


def _language_of(path: Path, languages: Sequence[str]) -> str:
    """The language at the end of a name, as in ``corpus.de`` or ``corpus.de.tok.gz``; otherwise the only one
    to read.
    """
    for ending in reversed(path.suffixes):
        if names_language(language := ending.removeprefix(".")) and ending not in CODECS:
            return language
    if len(languages) == 1:
        return languages[0]
    raise DataError(
        f"{path} must end in the code of its language, as corpus.de does, got none; rename it, or name the "
        f"only language that is learned ({option('languages')})"
    )
