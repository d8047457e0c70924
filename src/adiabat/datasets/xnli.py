"""XNLI: sentence pairs with a label, each in fifteen languages (Vasilyev et al. 2024, appendix F).

Made from the publisher's own files, ``xnli.dev.tsv`` and ``xnli.test.tsv``: one row per pair and language,
under a header of which ``language``, ``gold_label``, ``sentence1`` (the premise), ``sentence2`` (the
hypothesis) and ``pairID`` are used. Rows of one ``pairID``
form one pair, written with all its languages: ``{"pair_id", "label", "premise": {...}, "hypothesis":
{...}}``.
"""

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from adiabat.config.dataset_settings import XnliSection, XnliSettings
from adiabat.core.errors import DataError
from adiabat.core.progress import SILENT, Watch
from adiabat.data.columns import first_row, id_value, parsed_rows, text_value
from adiabat.data.records import LABELS
from adiabat.data.table_rows import FileFaults, Row, RowError, read_rows
from adiabat.datasets.json_streams import split_files
from adiabat.datasets.writer import DatasetSummary, DatasetWriter, SkipCounts, create_dataset

SPLITS = {"dev": "xnli.dev.tsv*", "test": "xnli.test.tsv*"}
COLUMNS = ("language", "gold_label", "sentence1", "sentence2", "pairID")
NO_LABEL = "-"
"""NLI corpora write this where the annotators did not agree."""


@dataclass(slots=True)
class _Pair:
    """A sentence pair, its texts by language, and where it was first seen."""

    label: str
    location: str
    premise: dict[str, str] = field(default_factory=dict)
    hypothesis: dict[str, str] = field(default_factory=dict)


def make_xnli(source: Path, out: Path, settings: XnliSettings, *, watch: Watch = SILENT) -> DatasetSummary:
    """Make a language grid of each split."""
    paths = split_files(source, SPLITS)
    with create_dataset(out, maker="xnli", source=source, settings=settings) as writer:
        for number, (split, path) in enumerate(paths.items()):
            watch.progress("splits", number, len(paths))
            _make_split(path, split, writer, settings.xnli)
    return writer.summary


def _make_split(path: Path, split: str, writer: DatasetWriter, section: XnliSection) -> None:
    """Write the pairs of a split that are in every language."""
    faults, skipped = FileFaults(), SkipCounts(f"pairs of {split}")
    pairs = _read_pairs(path, section, faults)
    present = {language for pair in pairs.values() for language in pair.premise}
    # Languages of any pair, unless settings name some.
    languages = sorted(present if section.languages is None else section.languages)
    for pair_id, pair in pairs.items():
        skipped.count()
        missing = [language for language in languages if language not in pair.premise]
        if pair.label == NO_LABEL:
            skipped.skip("the annotators agreed on no label")
        elif not missing:
            sides = {"premise": pair.premise, "hypothesis": pair.hypothesis}
            texts = {
                name: {language: side[language] for language in languages} for name, side in sides.items()
            }
            writer.example(split, {"pair_id": pair_id, "label": pair.label, **texts})
        elif section.incomplete == "drop":
            skipped.skip("in fewer languages than others")
        else:
            fault = (
                f'{pair.location}: pair "{pair_id}" must be in every language, '
                f"got none in {', '.join(missing)}"
            )
            faults.add(fault, "set xnli.incomplete = drop, or name the languages to keep with xnli.languages")
    faults.raise_if_any()
    skipped.write_notes(writer)


def _read_pairs(path: Path, section: XnliSection, faults: FileFaults) -> dict[str, _Pair]:
    """Pair id to pair, in order of first appearance."""
    first, rows = first_row(read_rows(path, faults=faults), faults, path)
    if missing := [name for name in COLUMNS if name not in first.values]:
        columns = ", ".join(first.values)
        raise DataError(
            f"{path} must have the columns {', '.join(missing)}, got {columns}; "
            "check that it is XNLI's own file"
        )
    pairs: dict[str, _Pair] = {}

    def add(row: Row) -> None:
        """Add a row of a wanted language."""
        language = text_value(_cell(row, "language"), "language", row.location)
        if section.languages is None or language in section.languages:
            _add(pairs, language, row)

    deque(parsed_rows(rows, faults, add), maxlen=0)
    return pairs


def _add(pairs: dict[str, _Pair], language: str, row: Row) -> None:
    """Add a row to the pair that it belongs to, which must agree with it."""
    pair_id = id_value(_cell(row, "pairID"), "pairID", row.location)
    label = _cell(row, "gold_label")
    if label not in (*LABELS, NO_LABEL):
        raise RowError(
            f'{row.location}: "gold_label" must be {", ".join(LABELS)} or '
            f"{NO_LABEL}, got {label or 'nothing'}"
        )
    premise, hypothesis = (
        text_value(_cell(row, name), name, row.location) for name in ("sentence1", "sentence2")
    )
    pair = pairs.setdefault(pair_id, _Pair(label, row.location))
    # Rows of one pair are the same sentences, so that their labels must agree.
    if pair.label != label:
        raise RowError(
            f'{row.location}: pair "{pair_id}" must have one label, got {label}, '
            f"and {pair.label} at {pair.location}"
        )
    if language in pair.premise:
        raise RowError(f'{row.location}: pair "{pair_id}" must be in {language} once, got it again')
    pair.premise[language], pair.hypothesis[language] = premise, hypothesis


def _cell(row: Row, name: str) -> str | None:
    """The text of a cell, None if it is empty."""
    value = row.values.get(name)
    return value if value is None else str(value)
