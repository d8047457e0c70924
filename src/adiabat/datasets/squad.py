"""SQuAD: the sentences of a paragraph that answer a question (Vasilyev et al. 2024, appendix C).

Made from the publisher's own files, ``train-v1.1.json`` and ``dev-v1.1.json`` (or v2.0, whose questions
without an answer are skipped)::

    {"data": [{"title": ..., "paragraphs": [{"context": ..., "qas": [
        {"id": ..., "question": ..., "answers": [{"text": ..., "answer_start": 515}]}]}]}]}

The sentences that contain an answer are positives, two where it runs across their border.
`SquadSection.repeats` decides on those that only repeat its words. All others of the paragraph are negatives.
Questions without a positive or without a negative are skipped.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adiabat.config.dataset_settings import Repeats, SquadSection, SquadSettings
from adiabat.core.errors import DataError
from adiabat.core.progress import SILENT, Watch
from adiabat.data.columns import id_value, text_value
from adiabat.data.table_rows import FileFaults, RowError, UniqueNames, value_kind
from adiabat.datasets.arxiv import sentence_spans
from adiabat.datasets.json_streams import read_json, split_files
from adiabat.datasets.writer import DatasetSummary, DatasetWriter, SkipCounts, create_dataset

SPLITS = {"train": "train-v*.json*", "dev": "dev-v*.json*"}
ALL = "all"

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that an annotator marked, and the position of its first letter in the paragraph."""

    start: int
    text: str


@dataclass(frozen=True, slots=True)
class _Question:
    """A question about a paragraph (`context`), whose sentences are `spans` of it."""

    query_id: str
    query: str
    answers: tuple[Answer, ...]
    context: str
    spans: Sequence[Span]
    location: str


def make_squad(source: Path, out: Path, settings: SquadSettings, *, watch: Watch = SILENT) -> DatasetSummary:
    """Make examples of questions and sentences.

    Writes a file for each split of the source, ``all`` of them together, as the source measures on, and its
    subset ``all-min5`` (see `SquadSection.min_sentences`).
    """
    section, faults, skipped = settings.squad, FileFaults(), SkipCounts("questions")
    ids = UniqueNames("question id", faults)
    paths = split_files(source, SPLITS)
    with create_dataset(
        out, maker="squad", source=source, settings=settings, documents=section.documents
    ) as writer:
        # A file is one JSON value, and is read whole.
        for split, path in paths.items():
            articles = _articles(path)
            for number, article in enumerate(articles):
                watch.progress(f"articles of {path.name}", number, len(articles))
                for question in _questions(article, f"{path}: data[{number}]", faults):
                    ids.add(question.query_id, question.location)
                    skipped.count()
                    _write(writer, split, question, section, skipped)
        faults.raise_if_any()
        skipped.write_notes(writer)
    return writer.summary


def _write(
    writer: DatasetWriter, split: str, question: _Question, section: SquadSection, skipped: SkipCounts
) -> None:
    """Write a question that has both positives and negatives, equal sentences once."""
    context, spans = question.context, question.spans
    roles = sentence_roles(context, spans, question.answers, repeats=section.repeats)
    positives, negatives = (dict.fromkeys(context[slice(*spans[i])] for i in numbers) for numbers in roles)
    # The same sentence may stand twice in a paragraph.
    negatives = {text: None for text in negatives if text not in positives}
    if not question.answers:
        skipped.skip("without an answer")
    elif not positives:
        skipped.skip("the answer is not in the paragraph")
    elif not negatives:
        skipped.skip("no sentence of the paragraph is left as a negative")
    else:
        stems = [split, ALL]
        if len(positives) + len(negatives) >= section.min_sentences:
            stems.append(f"{ALL}-min{section.min_sentences}")
        pos, neg = writer.texts(positives), writer.texts(negatives)
        writer.triplet(stems, question.query_id, question.query, positives=pos, negatives=neg)


def sentence_roles(
    context: str, spans: Sequence[Span], answers: Sequence[Answer], *, repeats: Repeats
) -> tuple[list[int], list[int]]:
    """Numbers of the sentences that answer and of those that do not, ascending.

    A sentence answers if it overlaps the marked position of an answer. Both lists are empty if no answer was
    located; with ``repeats = drop`` a sentence that only repeats an answer is in neither.
    """
    marked, texts = set[int](), list[str]()
    for answer in answers:
        start = _locate(context, answer)
        if start is not None:
            end = start + len(answer.text)
            marked.update(i for i, (first, last) in enumerate(spans) if first < end and start < last)
            texts.append(re.escape(answer.text))
    if not marked:
        return [], []
    # Whole words only: the answer "art" is not in "party".
    words = re.compile(rf"(?<!\w)(?:{'|'.join(texts)})(?!\w)")
    repeated = {i for i, (first, last) in enumerate(spans) if words.search(context[first:last])} - marked
    positives = marked | repeated if repeats == "positive" else marked
    dropped = positives | repeated if repeats == "drop" else positives
    return sorted(positives), [i for i in range(len(spans)) if i not in dropped]


def _locate(context: str, answer: Answer) -> int | None:
    """The actual position of an answer: some offsets of the published files are off by a few letters."""
    if not answer.text.strip():
        return None
    if context.startswith(answer.text, answer.start):
        return answer.start
    # The nearest occurrence to the offset that the file states.
    starts = [match.start() for match in re.finditer(re.escape(answer.text), context)]
    return min(starts, key=lambda start: abs(start - answer.start), default=None)


def _questions(article: Any, location: str, faults: FileFaults) -> Iterator[_Question]:
    """Each valid question of an article; faults are noted."""
    with faults.collected():
        for number, paragraph in enumerate(_list_value(article, "paragraphs", location)):
            where = f"{location}.paragraphs[{number}]"
            with faults.collected():
                entries = _list_value(paragraph, "qas", where)
                context = text_value(paragraph.get("context"), "context", where)
                spans = sentence_spans(context)
                for position, entry in enumerate(entries):
                    with faults.collected():
                        yield _question(entry, context, spans, f"{where}.qas[{position}]")


def _question(entry: Any, context: str, spans: Sequence[Span], location: str) -> _Question:
    """Read a question about a paragraph; one without an answer has none."""
    is_impossible = isinstance(entry, Mapping) and entry.get("is_impossible") is True
    answers = [] if is_impossible else _list_value(entry, "answers", location)
    return _Question(
        id_value(entry.get("id"), "id", location),
        text_value(entry.get("question"), "question", location).strip(),
        tuple(dict.fromkeys(_answer(answer, location) for answer in answers)),
        context,
        spans,
        location,
    )


def _answer(answer: Any, location: str) -> Answer:
    """Read an answer and its position."""
    start = answer.get("answer_start") if isinstance(answer, Mapping) else None
    if not isinstance(start, int) or isinstance(start, bool) or start < 0:
        raise RowError(
            f'{location}: an answer must have a whole number "answer_start" >= 0, got {value_kind(start)}'
        )
    return Answer(start, text_value(answer.get("text"), "text", location))


def _articles(path: Path) -> list[Any]:
    """The articles of a file of SQuAD."""
    try:
        return _list_value(read_json(path), "data", str(path))
    except RowError as fault:
        raise DataError(f"{fault}; check that it is a file of SQuAD") from fault


def _list_value(value: Any, name: str, location: str) -> list[Any]:
    """A list in an object of the file."""
    if not isinstance(value, Mapping):
        raise RowError(f"{location} must be an object, got {value_kind(value)}")
    entries = value.get(name)
    if not isinstance(entries, list):
        raise RowError(f'{location} must hold a list "{name}", got {value_kind(entries)}')
    return entries
