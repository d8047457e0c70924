"""Queries of several tenants: rows with a column that names the tenant, or a folder with a data set each."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from adiabat.core.errors import ConfigError, DataError
from adiabat.core.files import is_there
from adiabat.core.wording import call_of, option
from adiabat.data.examples import read_examples
from adiabat.data.folders import stem_of
from adiabat.data.judged_sets import is_judged
from adiabat.data.records import Example, ExampleSet, LanguageGridSet
from adiabat.data.sources import Source

FILE = "file"
"""In place of a column: each file of a folder is a tenant."""


def read_tenants(
    source: str, by: str, *, columns: Mapping[str, str], split: str | None = None
) -> dict[str, ExampleSet]:
    """Read the queries of each tenant, by name, in alphabetical order.

    Args:
        source: A file, or a folder with a file or BEIR folder for each tenant.
        by: Column with the tenant of a row; `FILE` takes the names of the files.
        columns: Names of the other columns.
        split: Split of each data set.

    Raises:
        DataError: If a row names no tenant, or all name one.
    """
    files = tenant_files(source) if by == FILE else []
    named = _by_file(files, columns, split) if files else _by_column(source, by, columns, split)
    if len(named) < 2:
        raise DataError(
            f"{source} must hold queries of at least two tenants, got {', '.join(named)} alone; tune it by "
            f"{call_of('tune')}"
        )
    return dict(sorted(named.items()))


def _by_column(source: str, by: str, columns: Mapping[str, str], split: str | None) -> dict[str, ExampleSet]:
    """The tenants of a data set, whose column is read as the topic of a row."""
    everything = _queries(source, {**columns, "topic": by}, split)
    queries: dict[str, list[Example]] = {}
    for example in everything.examples:
        if not example.topic:
            raise DataError(
                f'{example.location or source}: "{by}" must name the tenant of the query, got nothing; '
                "name it, or leave the row out"
            )
        queries.setdefault(example.topic, []).append(replace(example, topic=""))
    return {name: replace(everything, name=name, examples=tuple(rows)) for name, rows in queries.items()}


def tenant_files(source: str) -> list[Path]:
    """The data sets of a folder, in the order of their names: files, or BEIR folders."""
    folder = Path(Source.of(source).path)
    if not folder.is_dir() or is_judged(source):
        raise ConfigError(
            f"{option('by', FILE)} must go with a folder that has a file for each tenant, got {source}; name "
            "the column with the tenant of a row"
        )
    files = []
    for entry in sorted(folder.iterdir()):
        if not entry.name.startswith(".") and (entry.is_dir() or is_there(entry)):
            files.append(entry)
    if not files:
        raise DataError(f"{source} must hold a file for each tenant, got none; add them")
    return files


def _by_file(files: Sequence[Path], columns: Mapping[str, str], split: str | None) -> dict[str, ExampleSet]:
    """The tenants of a folder, each with the name of its file or BEIR folder."""
    named: dict[str, ExampleSet] = {}
    for path in files:
        name = stem_of(path.name) if path.is_file() else path.name
        if name in named:
            raise DataError(f"{path} must be the only data set named {name}, got two; rename one of them")
        named[name] = replace(_queries(str(path), columns, split), name=name)
    return named


def _queries(source: str, columns: Mapping[str, str], split: str | None) -> ExampleSet:
    """The queries of one data set."""
    examples = read_examples(source, columns=columns, split=split, usual_split="train")
    if isinstance(examples, LanguageGridSet):
        raise DataError(
            f"{source} must hold queries with positives, got a language grid; use it with "
            f"{call_of('evaluate')}"
        )
    return examples
