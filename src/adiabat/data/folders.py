"""Where the rows of a source are: one file, the files of a folder by split, or a data set of the ``datasets``
library.

A split is named as that library finds it: by a word in the name of a file or its folder (``train``, ``dev``,
``eval`` ...), by the name of shards (``NAME-00000-of-00002.parquet``), or by ``configs`` in a ``README.md``.
Several splits are never read as one set, but in a corpus.
"""

import difflib
import glob
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from adiabat.core.errors import ConfigError, DataError
from adiabat.core.files import LARGEST_CONFIGURATION, is_there, read_plain, reading, require_plain
from adiabat.core.text import cut
from adiabat.data.lines import CODECS, HUB_PREFIX
from adiabat.data.sources import Source

Form = Literal["json", "csv", "tsv", "parquet", "documents", "saved", "hub"]
"""Format of a source: text lines, Parquet, a text file for each document, ``Dataset.save_to_disk``, or a name
on the hub."""

FORMS: Mapping[str, Form] = {
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}
SPLIT_WORDS: Mapping[str, str] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
"""Words in names of files that say which split of a data set they hold, and the split that each means."""

_SPLIT_WORD = re.compile(rf"(?:^|[-._ 0-9])({'|'.join(SPLIT_WORDS)})(?=[-._ 0-9]|$)")
_SHARD = re.compile(r"(.+?)[-.]\d{5}-of-(\d{5})")
_ABOUT = ("readme", "license", "licence")
"""Beginnings of names of files about a folder."""
_DESCRIPTIONS = ("dataset_info", "dataset_dict", "state.json")
"""Beginnings of names of files that describe the data set of a folder."""
_PARTS = frozenset(("corpus", "queries", "qrels"))
"""Files and folders of a judged data set that are no examples."""

Files = dict[str, list[Path]]
"""Files by split, "" for those that name none."""


@dataclass(frozen=True, slots=True)
class Place:
    """A format and the files to read; of a data set of the library its name, split (None for the only one)
    and configuration.

    `note` says which splits are read together, or which files are left out; `whole` reads all splits of a
    data set of the library as one.
    """

    form: Form
    path: str
    files: Sequence[Path] = ()
    split: str | None = None
    config: str | None = None
    note: str = ""
    whole: bool = False


def place_of(address: str | Path, split: str | None = None, *, whole: bool = False) -> Place:
    """Find the rows of a source; `whole` reads all splits where none is named, as a corpus is read."""
    source = Source.of(address)
    split = source.split_or(split)
    if source.is_hub:
        return Place("hub", source.path, split=split, config=source.config, whole=whole)
    path = Path(source.path)
    require_path(path)
    if path.is_dir():
        return _place_in(path, split, source.config, whole=whole)
    named = source.config if split is None else split
    if named is not None:
        raise _without_splits(source.path, named)
    return Place(_file_form(path), source.path, [path])


def _without_splits(source: object, named: str) -> ConfigError:
    """The error for a split or a configuration of a source that has none."""
    return ConfigError(
        f'split must be left out for {source}, which has no splits, got "{named}"; leave it out'
    )


def require_there(address: str) -> None:
    """Check that the file or folder of an address exists, and that a file has a format that can be read."""
    source = Source.of(address)
    if not source.is_hub:
        require_path(Path(source.path))
        if Path(source.path).is_file():
            _file_form(Path(source.path))


def _place_in(folder: Path, split: str | None, config: str | None, *, whole: bool) -> Place:
    """Find the rows of a folder: a saved data set, text files, or tables by configuration and split."""
    described = described_files(folder)
    if config is not None and config not in described:
        if not (folder / config).is_dir():
            named = ", ".join(described) or "none"
            raise DataError(
                f'{folder} must have the configuration "{config}", got {named}; choose one of them'
            )
        # mteb keeps each configuration in a folder of its own.
        folder, config = folder / config, None
        described = described_files(folder)
    if is_saved(folder):
        return Place("saved", str(folder), split=split, whole=whole)
    files = _configured(described, config, folder) if described else files_by_split(folder)
    if documents := _documents_in(folder):
        if split is not None:
            raise ConfigError(
                f"split must be left out for {folder}, each of whose text files is "
                f'a document, got "{split}"; leave it out'
            )
        return Place("documents", str(folder), documents)
    # Text files of which none names a split may be anything.
    if not files or (files.keys() == {""} and not _are_rows(files[""])):
        raise DataError(_no_rows(folder))
    chosen, note = _chosen(files, split, folder, whole=whole)
    _require_one_table(chosen, folder)
    notes = filter(None, [note, _missing_shards(chosen, folder)])
    return Place(_file_form(chosen[0]), str(folder), chosen, note="; ".join(notes))


def _are_rows(files: Sequence[Path]) -> bool:
    """Whether files that name no split hold rows: Parquet files, or the parts of one table, which their names
    count from 0 or 1 on; sets of several years do not.
    """
    if all(form_of(path.name) == "parquet" for path in files):
        return True
    tables, numbers = set[Path](), list[int]()
    for path in files:
        name = re.fullmatch(r"(.*?)(\d+)", stem_of(path.name))
        if name is None:
            return False
        tables.add(path.parent / name[1])
        numbers.append(int(name[2]))
    counted = [number - min(numbers) for number in sorted(numbers)]
    return len(tables) == 1 < len(files) and min(numbers) < 2 and counted == [*range(len(files))]


def _documents_in(folder: Path) -> list[Path]:
    """The text files of a folder that holds nothing else but files about it; none if it does, such as the
    vocabulary of a model.
    """
    documents = []
    for path in sorted(folder.rglob("*")):
        is_about = path.name.lower().startswith(_ABOUT)
        if path.is_dir() or is_about or _is_hidden(path.relative_to(folder)):
            continue
        if not _is_document(path):
            return []
        documents.append(path)
    return documents


def _is_document(path: Path) -> bool:
    """Whether a file of a folder is a text."""
    return is_there(path) and _unpacked(path.name).lower().endswith(".txt")


def _is_hidden(inside: Path) -> bool:
    """Whether file managers and notebooks made a file, by its path in the folder."""
    return any(part.startswith((".", "__")) for part in inside.parts)


def _configured(described: Mapping[str, Files], config: str | None, folder: Path) -> Files:
    """The files of a configuration; None takes the only one, or the one named ``default``."""
    only = next(iter(described))
    if config is None:
        config = only if len(described) == 1 else "default"
    if config in described:
        return described[config]
    if "queries" in described:
        raise DataError(_no_rows(folder))
    raise DataError(
        f"{folder} must be read with a configuration, got {', '.join(described)}; "
        f"name one as {Source(str(folder), config=only)}"
    )


def _chosen(files: Files, split: str | None, folder: Path, *, whole: bool) -> tuple[list[Path], str]:
    """The files of one split, or of all, with a note if others are left out or read with them."""
    names = sorted(files)
    if names == [""] and split is not None:
        raise _without_splits(folder, split)
    if names == [""] or (whole and split is None):
        note = read_whole(str(folder), names) if len(names) > 1 else ""
        return sorted(chain.from_iterable(files.values())), note
    name = one_split(names, split, str(folder), example=f"{folder}?split=NAME")
    unnamed = ", ".join(path.name for path in files.get("", ())[:3])
    note = f"{folder}: files that name no split are left out of {name}: {unnamed}" if unnamed else ""
    return files[name], note


def _missing_shards(files: Sequence[Path], folder: Path) -> str:
    """A note if some of the parts that the names of files count are not there."""
    # The table of a part, its name, and the number of parts that it should have.
    present: Counter[tuple[Path, str, int]] = Counter()
    for path in files:
        if shard := _SHARD.fullmatch(stem_of(path.name)):
            present[path.parent, shard[1], int(shard[2])] += 1
    short = [
        f"{there} of {all_:,} parts of {name}" for (_, name, all_), there in present.items() if there < all_
    ]
    return f"{folder}: only {' and '.join(short)} are there" if short else ""


def read_whole(source: str, names: Sequence[str]) -> str:
    """The note on a corpus of several splits."""
    return f"{source}: all of its splits are read as one corpus ({_told(names)}); ?split=NAME reads one"


def one_split(names: Sequence[str], split: str | None, source: str, *, example: str) -> str:
    """The split to read: the one that is named, by any of its usual names, or the only one."""
    if split is None and len(names) == 1:
        return names[0]
    name = None if split is None else named_split(names, split)
    if name is None:
        raise DataError(
            f"{source} must be read with one of its splits ({_told(names)}), got {split or 'none'}; "
            f"set data.split, or name one as {example}"
        )
    return name


def _told(splits: Sequence[str]) -> str:
    """Splits in words; "" are files that name none."""
    return ", ".join(split or "files that name none" for split in splits)


def named_split(names: Sequence[str], split: str) -> str | None:
    """The split of a name, or the only one whose name means the same, as dev and validation do."""
    if split in names:
        return split
    # Such as validation for dev.
    alike = [name for name in names if SPLIT_WORDS.get(name, name) == SPLIT_WORDS.get(split)]
    return alike[0] if len(alike) == 1 else None


def files_by_split(folder: Path) -> Files:
    """The files of a folder that hold rows, but for the corpus, the queries and the judgements of a judged
    set.
    """
    found = [path.relative_to(folder) for path in rows_in(folder)]
    parts = {stem_of(inside.parts[0]) for inside in found} & _PARTS
    others = [inside for inside in found if stem_of(inside.parts[0]) not in parts]
    # A folder with a corpus alone, say, is no judged set.
    if len(parts) == 1 and not others:
        others = found
    files: Files = {}
    for inside in others:
        split = split_of(inside)
        # Other JSON files in a folder are mostly settings and descriptions.
        if split or ".json" not in inside.suffixes:
            files.setdefault(split, []).append(folder / inside)
    return files


def rows_in(folder: Path) -> Iterator[Path]:
    """Files of a known format below a folder, in order; hidden ones are none, such as those of file managers
    and notebooks.
    """
    for path in sorted(folder.rglob("*")):
        is_described = path.name.startswith(_DESCRIPTIONS) or path.name.endswith(".stats.json")
        if is_described or form_of(path.name) is None or _is_hidden(path.relative_to(folder)):
            continue
        if is_there(path) and path.is_file():
            yield path


def split_of(inside: Path) -> str:
    """The split that the name of a file says, or else that of its folders from the nearest on, or of its
    shard; "" for none.
    """
    name = stem_of(inside.name)
    # The nearest name decides: ``train/dev.jsonl`` is of the split dev.
    for part in (name, *reversed(inside.parts[:-1])):
        if word := _SPLIT_WORD.search(part.lower()):
            return word[1]
    shard = _SHARD.fullmatch(name)
    return shard[1] if shard else ""


def described_files(folder: Path) -> dict[str, Files]:
    """Files by configuration and split, as the ``configs`` of a ``README.md`` say; empty without these."""
    card = folder / "README.md"
    if not is_there(card) or read_plain(card, limit=LARGEST_CONFIGURATION)[:3] != b"---":
        return {}
    # Loaded only for folders of the hub.
    from huggingface_hub import metadata_load

    described: dict[str, Files] = {}
    usual: Files | None = None
    with reading(card, remedy="correct the lines between --- at its beginning"):
        for config in (metadata_load(card) or {}).get("configs") or []:
            if "data_files" in config:
                files = described[str(config["config_name"])] = _described(config, folder)
                if config.get("default") and usual is None:
                    usual = files
        if usual is not None:
            described["default"] = usual
    return described


def _described(config: Mapping[str, Any], folder: Path) -> Files:
    """The files of a configuration by split: a pattern, several, or several with a split each."""
    entries = config["data_files"]
    base = folder / (config.get("data_dir") or "")
    files: Files = {}
    for entry in entries if isinstance(entries, list) else [entries]:
        # A pattern without a split is of the training split, as in the library.
        split, patterns = (entry["split"], entry["path"]) if isinstance(entry, Mapping) else ("train", entry)
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            if os.path.isabs(pattern) or ".." in Path(pattern).parts:
                raise ValueError(f"the pattern {pattern}, which leads out of the folder")
            for name in sorted(glob.glob(pattern, root_dir=base, recursive=True)):
                path = base / name
                if is_there(path) and path.is_file():
                    files.setdefault(str(split), []).append(path)
    return files


def is_saved(folder: Path) -> bool:
    """Whether a folder was written by ``save_to_disk``."""
    return is_there(folder / "dataset_info.json") or is_there(folder / "dataset_dict.json")


def _require_one_table(files: Sequence[Path], folder: Path) -> None:
    """Refuse files of several formats, and one table in two formats, whose rows would count twice."""
    # Names without their endings: ``a.jsonl`` and ``a.csv`` are one table.
    stems: dict[Path, Path] = {}
    for path in files:
        first = stems.setdefault(path.with_name(stem_of(path.name)), path)
        if first != path:
            raise DataError(
                f"{folder} must hold each table once, got {first.name} and "
                f"{path.name}; name one of the two files"
            )
    forms = {_file_form(path): path.name for path in files}
    if len(forms) > 1:
        raise DataError(
            f"{folder} must hold files of one format, got {' and '.join(forms.values())}; "
            "name one of them, or a split"
        )


def _no_rows(folder: Path) -> str:
    """The phrase for a folder in which nothing can be read, with what it holds."""
    listed = cut(", ".join(sorted(os.listdir(folder))) or "an empty folder", limit=100)
    return (
        f"{folder} must hold Parquet files, numbered parts of a table, files named by split (train.jsonl, "
        "test.csv), text files alone (.txt, each a document), a saved data set (dataset_info.json or "
        "dataset_dict.json) or a BEIR layout (corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv), got "
        f"{listed}; name the file itself or another folder"
    )


def form_of(name: str) -> Form | None:
    """The format of a file by its name; None for one without rows."""
    bare = _unpacked(name)
    form = FORMS.get(os.path.splitext(bare)[1].lower())
    return None if bare != name and form == "parquet" else form


def stem_of(name: str) -> str:
    """The name of a file without the endings of its format and compression."""
    bare = _unpacked(name)
    stem, ending = os.path.splitext(bare)
    return stem if ending.lower() in FORMS else bare


def _unpacked(name: str) -> str:
    """The name of a file without the ending of its compression."""
    stem, ending = os.path.splitext(name)
    return stem if ending.lower() in CODECS else name


def _file_form(path: Path) -> Form:
    """The format of a file that must have one."""
    form = form_of(path.name)
    if form is not None:
        return form
    ending = f'"{"".join(path.suffixes[-2:]).lower()}"' if path.suffixes else "no ending"
    raise DataError(
        f"{path} must end in .jsonl, .csv, .tsv (each also .gz or .zst) or .parquet, got {ending}; rename "
        "it to match its content, or name the folder where each .txt file is a document"
    )


def compressed_path(path: Path) -> Path | None:
    """The file of that name, or its compressed version, or None."""
    for ending in ("", *CODECS):
        file = path.with_name(path.name + ending)
        if is_there(file) and file.is_file():
            return file
    return None


def require_path(path: Path) -> None:
    """Check that a file or folder exists."""
    require_plain(path)
    if is_there(path):
        return
    # Escapes of a string, such as the \t of "C:\texts".
    if re.search(r"[\t\n\r]", str(path)):
        raise DataError(
            f"{str(path)!r} must exist, got no such file; in TOML, write backslashes "
            "in single quotes, or double them"
        )
    names = sorted(os.listdir(path.parent)) if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, names, n=3, cutoff=0.6)
    paths = " or ".join(str(path.parent / name) for name in near)
    advice = f"did you mean {paths}?" if paths else "check the path"
    raise DataError(f"{path} must exist, got no such file; {advice}")


def table_name(address: str | Path) -> str:
    """Name for tables and reports: the file name without suffixes, after that of its folder if it says the
    split alone; or the hub name.
    """
    source = Source.of(address)
    if source.is_hub:
        return source.path.removeprefix(HUB_PREFIX)
    path = Path(source.path).resolve()
    name = stem_of(path.name)
    return f"{path.parent.name}/{name}" if name in SPLIT_WORDS and path.parent.name else name
