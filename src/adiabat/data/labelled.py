"""Texts on an equal footing with what people said of them: pairs with a score or a label, single texts with a label, parallel sentences.

Any table that `adiabat.data.table_rows.read_rows` reads will do; columns go by the names that the task gives, and `where` takes some rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float

from adiabat.core.errors import DataError, several
from adiabat.core.text import number_of, shown
from adiabat.data.columns import RowError, text_value, value_kind
from adiabat.data.row_filters import counted, plain_value, quoted, selected_rows
from adiabat.data.table_rows import Row, table_name

_NUMBERS = "give every pair a number, or name the column of numbers with score"
_LABELS = "give every row a text or a number, or name another column"

LEAST_PAIRS = 3
"""Of a set: two pairs correlate by 1 or -1 whatever a model does, and so does every resample of them."""


@dataclass(frozen=True, slots=True)
class TextPairs:
    """Pairs of texts.

    Attributes:
        name: After the file and the rows that were taken.
        a: One text of each pair.
        b: The other; where the two are of two languages, its translation.
    """

    name: str
    a: Sequence[str]
    b: Sequence[str]

    def __len__(self) -> int:
        return len(self.a)


@dataclass(frozen=True, slots=True)
class ScoredPairs(TextPairs):
    """Pairs of texts with a similarity that people gave.

    Attributes:
        scores: Of each pair, finite; in every set there are `LEAST_PAIRS` at least, and two different ones among them.
        sets: What set each pair belongs to; "" throughout where they are not told apart.
    """

    scores: Float[np.ndarray, " n"]
    sets: Sequence[str]


@dataclass(frozen=True, slots=True)
class LabelledPairs(TextPairs):
    """Pairs of texts that belong together, or do not.

    Attributes:
        together: Whether they belong together; there are pairs of both kinds.
    """

    together: Bool[np.ndarray, " n"]


@dataclass(frozen=True, slots=True)
class LabelledTexts:
    """Texts with a label each.

    Attributes:
        name: After the file and the rows that were taken.
        texts: In file order.
        labels: Of each text.
    """

    name: str
    texts: Sequence[str]
    labels: Sequence[str]

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def distinct(self) -> list[str]:
        """The labels, each once, sorted."""
        return sorted(set(self.labels))


@dataclass(frozen=True, slots=True)
class ParallelTexts(TextPairs):
    """Sentences with their translations; each side has two different ones at least.

    Attributes:
        columns: Where the file has them, such as ``en`` and ``de``.
    """

    columns: tuple[str, str]


def read_scored_pairs(
    source: str | Path,
    *,
    a: str = "a",
    b: str = "b",
    score: str = "score",
    sets: str | None = None,
    split: str | None = None,
    where: Mapping[str, str] | None = None,
) -> ScoredPairs:
    """Read pairs of texts, or of words, with a similarity that people gave.

    Args:
        sets: Column that tells sets apart; None means one set.
        where: Column to value: rows that have others are passed over. None takes all.
    """
    columns = {"a": a, "b": b, "score": score} | ({} if sets is None else {"set": sets})

    def parse(row: Row) -> tuple[str, str, float, str]:
        return _text(row, a), _text(row, b), _number(row, score), "" if sets is None else _label(row, sets)

    rows = selected_rows(source, columns, parse, split=split, where=where or {})
    first, second, scores, of = map(list, zip(*rows, strict=True))
    pairs = ScoredPairs(_name(source, split, where), first, second, np.array(scores), of)
    _require_rankable(pairs, source, score)
    return pairs


def read_labelled_pairs(
    source: str | Path,
    *,
    a: str = "a",
    b: str = "b",
    label: str = "label",
    positive: str = "1",
    split: str | None = None,
    where: Mapping[str, str] | None = None,
) -> LabelledPairs:
    """Read pairs of texts that belong together, or do not."""

    def parse(row: Row) -> tuple[str, str, str]:
        return _text(row, a), _text(row, b), _label(row, label)

    rows = selected_rows(source, {"a": a, "b": b, "label": label}, parse, split=split, where=where or {})
    first, second, labels = map(list, zip(*rows, strict=True))
    together = np.array([one == positive for one in labels])
    if together.all() or not together.any():
        raise DataError(
            f'{source} must have pairs whose "{label}" is "{positive}" and pairs where it is another, '
            f"got {counted(labels)}; set positive to the label of pairs that belong together"
        )
    return LabelledPairs(_name(source, split, where), first, second, together)


def read_labelled_texts(
    source: str | Path, *, text: str = "text", label: str = "label", split: str | None = None, where: Mapping[str, str] | None = None
) -> LabelledTexts:
    """Read texts with a label each."""

    def parse(row: Row) -> tuple[str, str]:
        return _text(row, text), _label(row, label)

    rows = selected_rows(source, {"text": text, "label": label}, parse, split=split, where=where or {})
    texts, labels = map(list, zip(*rows, strict=True))
    return LabelledTexts(_name(source, split, where), texts, labels)


def read_parallel_texts(
    source: str | Path, *, a: str, b: str, split: str | None = None, where: Mapping[str, str] | None = None
) -> ParallelTexts:
    """Read sentences with their translations."""

    def parse(row: Row) -> tuple[str, str]:
        return _text(row, a), _text(row, b)

    rows = selected_rows(source, {"a": a, "b": b}, parse, split=split, where=where or {})
    first, second = map(list, zip(*rows, strict=True))
    if alike := [column for column, texts in ((a, first), (b, second)) if len(set(texts)) < 2]:
        raise DataError(
            f"{source} must have two different sentences in each column, got {len(rows)} row{'' if len(rows) == 1 else 's'} "
            f"with the same in {quoted(alike)}; there is nothing that a translation could be confused with"
        )
    return ParallelTexts(_name(source, split, where), first, second, (a, b))


def require_separable(training: LabelledTexts, test: LabelledTexts | None = None) -> None:
    """Check that there are labels to tell apart, before a model computes anything.

    Args:
        test: What it is tried on; None where there is no such thing.
    """
    known = training.distinct
    if len(known) < 2:
        raise DataError(f"{training.name} must have texts of at least two labels, got only {quoted(known)}; name the column of labels")
    missing = set(test.labels if test else ()).difference(known)
    unknown = [label for label in (test.labels if test else ()) if label in missing]
    if unknown:
        raise DataError(
            f"{training.name} must have texts of every label of the test, got none for {counted(unknown)}; "
            "leave those out of the test, or train on data that has them"
        )


def _require_rankable(pairs: ScoredPairs, source: str | Path, column: str) -> None:
    scores_of: dict[str, list[float]] = {}
    for name, score in zip(pairs.sets, pairs.scores.tolist(), strict=True):
        scores_of.setdefault(name, []).append(score)
    faults = [
        f"{source} must have at least {LEAST_PAIRS} pairs{f' for {shown(name)}' if name else ''}, got {len(scores)}; "
        "add some, or leave the set out: fewer correlate by 1 or -1, or not at all"
        for name, scores in scores_of.items()
        if len(scores) < LEAST_PAIRS
    ]
    faults += [
        f'{source} must have two different scores in "{column}"{f" for {shown(name)}" if name else ""}, got {scores[0]:g} alone, '
        f"{len(scores)} times; a rank correlation has nothing to rank"
        for name, scores in scores_of.items()
        if len(scores) >= LEAST_PAIRS and len(set(scores)) < 2
    ]
    if faults:
        raise DataError(several(faults))


def _text(row: Row, column: str) -> str:
    return text_value(row.values[column], column, row.location)


def _label(row: Row, column: str) -> str:
    """A label or the name of a set."""
    value = row.values[column]
    if not isinstance(value, str | int | float | None):
        raise RowError(f'{row.location}: "{column}" must be a text or a number, got {value_kind(value)}', advice=_LABELS)
    return text_value(plain_value(value), column, row.location)


def _number(row: Row, column: str) -> float:
    """A finite number; CSV and TSV have it as a text."""
    value = row.values[column]
    if value is None or value == "":
        raise RowError(f'{row.location}: "{column}" must be a finite number, got none', advice=_NUMBERS)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise RowError(f'{row.location}: "{column}" must be a finite number, got {value_kind(value)}', advice=_NUMBERS)
    number = number_of(value)
    if number is None:
        raise RowError(f'{row.location}: "{column}" must be a finite number, got {shown(value)}', advice=_NUMBERS)
    return number


def _name(source: str | Path, split: str | None, where: Mapping[str, str] | None) -> str:
    return "/".join([table_name(source), *([split] if split else []), *(where or {}).values()])
