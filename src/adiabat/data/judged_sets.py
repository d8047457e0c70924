"""Judged data sets: a corpus, queries and judgements, as BEIR and mteb lay them out in a folder, in saved
data sets, or on the hub.

Each part is a file (``corpus.jsonl``), a folder of files (``queries/``, ``qrels/``), a data set that
``save_to_disk`` wrote, or a configuration that a ``README.md`` or the hub lists (``corpus``, ``queries``, and
``qrels`` or ``default`` for the judgements).
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from adiabat.core.errors import ConfigError, DataError, reraise_unrelated
from adiabat.core.files import LARGEST_CONFIGURATION, is_there, read_plain, reading
from adiabat.data.folders import (
    FORMS,
    compressed_path,
    described_files,
    files_by_split,
    is_saved,
    named_split,
    one_split,
    rows_in,
    split_of,
    stem_of,
)
from adiabat.data.lines import HUB_PREFIX
from adiabat.data.sources import Source
from adiabat.data.table_rows import FileFaults, read_rows

JUDGEMENT_COLUMNS = (("query-id", "query_id"), ("corpus-id", "corpus_id", "doc_id"), ("score", "relevance"))
"""Names of the query, the document and the grade in judgements; the first of each are BEIR's."""

Tables = Mapping[str, tuple[str, ...]]
"""Split to the tables of its judgements."""


@dataclass(frozen=True, slots=True)
class JudgedSet:
    """A judged data set; each table is an address. `split` is the one that the address of the whole names."""

    address: str
    name: str
    split: str | None
    queries: str
    judgements: Tables

    def chosen_split(self, split: str | None, usual_split: str) -> str:
        """The split to read: the named one, the only one, or the usual one."""
        names = list(self.judgements)
        if not names:
            raise DataError(
                f"{Path(self.address) / 'qrels'} must hold judgements named "
                "SPLIT.tsv, got none; check the folder"
            )
        split = Source(self.address, self.split).split_or(split)
        # With one split alone, that one is read, whatever its name.
        split = split or named_split(names, usual_split)
        return one_split(names, split, self.address, example=f"{self.address}?split={names[0]}")

    def queries_of(self, split: str) -> str:
        """The table of the queries, of that split if it has several."""
        source = Source.of(self.queries)
        return str(replace(source, split=split)) if split in splits_of(source) else self.queries


def is_judged(address: str | Path) -> bool:
    """Whether a source has queries with judgements."""
    return judged_set(address) is not None


def judged_set(address: str | Path) -> JudgedSet | None:
    """The parts of a judged data set; None for any other source."""
    source = Source.of(address)
    if source.is_hub:
        return _hub_set(source)
    folder = Path(source.path)
    if not folder.is_dir() or (queries := _part(folder, "queries", source.config)) is None:
        return None
    judgements = _judgements(folder, source.config)
    if judgements is None:
        return None
    return JudgedSet(source.path, folder.resolve().name, source.split, queries, judgements)


def corpus_part(address: str | Path) -> str | None:
    """The corpus of a folder or of a judged set on the hub; None where the source is its own corpus."""
    source = Source.of(address)
    if source.is_hub:
        base, _, roles = _hub_roles(source)
        return str(Source(base, config=roles["corpus"])) if roles else None
    folder = Path(source.path)
    return _part(folder, "corpus", source.config) if folder.is_dir() else None


def splits_of(source: Source) -> list[str]:
    """The splits that a folder, a saved data set or a data set of the hub names."""
    if source.is_hub:
        return _hub_splits(source.path, source.config)
    folder = Path(source.path)
    if not folder.is_dir():
        return []
    if source.config is not None:
        return [*described_files(folder).get(source.config, ())]
    return _saved_splits(folder) or [name for name in files_by_split(folder) if name]


def judges(values: Collection[str]) -> bool:
    """Whether columns are those of judgements."""
    return not any(set(names).isdisjoint(values) for names in JUDGEMENT_COLUMNS)


def _part(folder: Path, role: str, config: str | None) -> str | None:
    """The corpus or the queries of a folder."""
    roles = _roles(described_files(folder), config, folder)
    if role in roles:
        return str(Source(str(folder), config=roles[role]))
    for name in _labels(role, config):
        for ending in FORMS:
            if file := compressed_path(folder / f"{name}{ending}"):
                return str(file)
        if _holds_rows(folder / name):
            return str(folder / name)
    return None


def _labels(role: str, config: str | None) -> Sequence[str]:
    """Names of a part: of mteb those with the language or subset before or after them."""
    names = [role] if config is None else [f"{config}-{role}", f"{role}-{config}"]
    # mteb keeps judgements under the name of the subset alone, too.
    return [*names, config or "default"] if role == "qrels" else names


def _roles(configs: Collection[str], config: str | None, address: object) -> dict[str, str]:
    """The configuration of each part that there is."""
    roles: dict[str, str] = {}
    for role in ("corpus", "queries", "qrels"):
        present = [name for name in _labels(role, config) if name in configs]
        if present:
            roles[role] = present[0]
    if config is None and "queries" not in roles:
        named = [name for name in configs if "queries" in name.split("-")]
        subsets = [name.removesuffix("-queries").removeprefix("queries-") for name in named]
        if subsets:
            raise ConfigError(
                f"{address} must be read with one of its subsets, got {', '.join(subsets)}; "
                f"name one as {address}?config={subsets[0]}"
            )
    return roles


def _holds_rows(folder: Path) -> bool:
    """Whether a part of a judged set is a folder with rows."""
    return folder.is_dir() and (is_saved(folder) or next(rows_in(folder), None) is not None)


def _judgements(folder: Path, config: str | None) -> Tables | None:
    """The judgements of a folder by split; None if it has none."""
    described = described_files(folder)
    label = _roles(described, config, folder).get("qrels")
    if label is not None:
        return {split: (str(Source(str(folder), split, label)),) for split in described[label]}
    for name in _labels("qrels", config):
        part = folder / name
        if is_saved(part):
            splits = {split: (str(Source(str(part), split=split)),) for split in _saved_splits(part)}
            return splits or {name: (str(part),)}
        # A folder of that name may hold something else.
        if part.is_dir() and (name != "default" or _holds_rows(part)):
            return _named_files(part)
    judgements: dict[str, tuple[str, ...]] = {}
    for split in _saved_splits(folder):
        if split not in ("corpus", "queries"):
            judgements[split] = (str(folder / split),)
    if judgements:
        return judgements
    for split, files in files_by_split(folder).items():
        if split and _are_judgements(files[0]):
            judgements[split] = tuple(map(str, files))
    return judgements or None


def _are_judgements(file: Path) -> bool:
    """Whether the first row of a file has the columns of judgements."""
    first = next(read_rows(file, faults=FileFaults()), None)
    return first is not None and judges(first.values)


def _named_files(folder: Path) -> Tables:
    """Judgements by the names of their files, or of their folders and shards."""
    files: dict[str, tuple[str, ...]] = {}
    for path in rows_in(folder):
        inside = path.relative_to(folder)
        # Shards are named by their split and their number.
        is_plain = len(inside.parts) == 1 and "-of-" not in inside.name
        split = stem_of(inside.name) if is_plain else split_of(inside)
        files[split] = (*files.get(split, ()), str(path))
    return files


def _saved_splits(folder: Path) -> list[str]:
    """The splits that ``save_to_disk`` lists in a folder; none for a folder without such a list."""
    listed = folder / "dataset_dict.json"
    if not is_there(listed):
        return []
    with reading(listed, remedy="save or copy the data set again"):
        content = read_plain(listed, limit=LARGEST_CONFIGURATION)
        return [str(split) for split in json.loads(content)["splits"]]


@cache
def _hub_configs(base: str) -> tuple[str, ...]:
    """The configurations of a data set of the hub; none if it cannot be reached, which its reader reports."""
    import datasets

    try:
        return tuple(datasets.get_dataset_config_names(base.removeprefix(HUB_PREFIX)))
    except Exception as error:
        reraise_unrelated(error)
        return ()


@cache
def _hub_splits(base: str, config: str | None) -> list[str]:
    """The splits of a configuration; none if it cannot be reached, which its reader reports."""
    import datasets

    try:
        return list(datasets.get_dataset_split_names(base.removeprefix(HUB_PREFIX), config))
    except Exception as error:
        reraise_unrelated(error)
        return []


def _hub_roles(source: Source) -> tuple[str, str | None, dict[str, str]]:
    """The name of a data set of the hub alone, the split that stands behind a colon, and the configuration
    of each part; none if it is no judged set, or if it is one table, as with a configuration between colons.
    """
    name, *fields = source.path.removeprefix(HUB_PREFIX).split(":")
    base, split = f"{HUB_PREFIX}{name}", fields[-1] if fields else None
    roles = _roles(_hub_configs(base), source.config, base) if len(fields) < 2 else {}
    return base, split, roles if {"corpus", "queries"} <= roles.keys() else {}


def _hub_set(source: Source) -> JudgedSet | None:
    """A judged set on the hub; a name with a configuration is one table."""
    base, named_split, roles = _hub_roles(source)
    if not roles:
        return None
    # BEIR keeps the judgements of NAME in NAME-qrels.
    judged = Source(base, config=roles["qrels"]) if "qrels" in roles else Source(f"{base}-qrels")
    splits = _hub_splits(judged.path, judged.config)
    if not splits:
        raise DataError(
            f"{source.path} must have judgements, got none in {judged}; name a data set that has them"
        )
    tables = {split: (str(replace(judged, split=split)),) for split in splits}
    queries, name = str(Source(base, config=roles["queries"])), base.removeprefix(HUB_PREFIX)
    return JudgedSet(source.path, name, source.split or named_split, queries, tables)
