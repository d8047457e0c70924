"""SQuAD: which sentence of its paragraph answers a question (Vasilyev et al. 2024, appendix C).

Made from the publisher's own files, ``train-v1.1.json`` and ``dev-v1.1.json`` (or v2.0, whose questions without an answer are left out)::

    {"data": [{"title": ..., "paragraphs": [{"context": ..., "qas": [
        {"id": ..., "question": ..., "answers": [{"text": ..., "answer_start": 515}]}]}]}]}

The sentences that an answer lies in are positives, two where it runs across their border; those that only repeat its words count as
`SquadSection.repeats` says. All others of the paragraph are negatives. Questions without a positive or without a negative are left out.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adiabat.config.dataset_settings import Repeats, SquadSection, SquadSettings
from adiabat.core.errors import DataError
from adiabat.core.progress import SILENT, Watch
from adiabat.data.columns import RowError, id_value, text_value, value_kind
from adiabat.data.records import text_id
from adiabat.data.table_rows import FileFaults
from adiabat.datasets.arxiv import sentence_spans
from adiabat.datasets.json_streams import read_json, split_files
from adiabat.datasets.writer import Made, Output, Seen, Tally, writing

SPLITS = {"train": "train-v*.json*", "dev": "dev-v*.json*"}
ALL = "all"

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Answer:
    """What an annotator marked.

    Attributes:
        start: Place of its first letter in the paragraph.
        text: Its letters.
    """

    start: int
    text: str


@dataclass(frozen=True, slots=True)
class _Question:
    query_id: str
    query: str
    answers: tuple[Answer, ...]
    place: str


@dataclass(frozen=True, slots=True)
class _Making:
    """What one run of the maker writes to and counts in."""

    output: Output
    settings: SquadSection
    faults: FileFaults
    tally: Tally = field(default_factory=lambda: Tally("questions"))
    seen: Seen = field(default_factory=Seen)


def make_squad(source: Path, out: Path, settings: SquadSettings, *, watch: Watch = SILENT) -> Made:
    """Make examples of questions and sentences.

    Written are a file for each split of the source, ``all`` of them together, as the source measures on, and of those the subset
    ``all-min5`` (by `SquadSection.min_sentences`).

    Args:
        out: A new or empty directory.
    """
    paths = split_files(source, SPLITS)
    faults = FileFaults()
    with writing(out, maker="squad", source=source, settings=settings, documents=settings.squad.documents) as output:
        making = _Making(output, settings.squad, faults)
        for split, path in paths.items():
            articles = _articles(path)
            for number, article in enumerate(articles):
                watch.progress(f"articles of {path.name}", number, len(articles))
                for context, questions in _paragraphs(article, f"{path}: data[{number}]", faults):
                    _write(making, split, context, questions)
        faults.raise_if_any()
        making.tally.tell(output)
    return output.made


def sentence_roles(context: str, spans: Sequence[Span], answers: Sequence[Answer], *, repeats: Repeats) -> tuple[list[int], list[int]]:
    """Tell sentences that answer from those that do not.

    Returns:
        Numbers of the positives and of the negatives, ascending; both are empty where no answer was found.
    """
    found = [(start, answer.text) for answer in answers if (start := _located(context, answer)) is not None]
    marked = {i for i, (start, end) in enumerate(spans) for at, text in found if start < at + len(text) and at < end}
    repeated = {i for i, (start, end) in enumerate(spans) for _, text in found if _holds(context[start:end], text)} - marked
    if not marked:
        return [], []
    positives = marked | repeated if repeats == "positive" else marked
    left_out = repeated if repeats == "drop" else set()
    return sorted(positives), [i for i in range(len(spans)) if i not in positives | left_out]


def _located(context: str, answer: Answer) -> int | None:
    """Where an answer really stands: some offsets of the published files are off by a few letters."""
    if not answer.text.strip():
        return None
    if context.startswith(answer.text, answer.start):
        return answer.start
    places = [match.start() for match in re.finditer(re.escape(answer.text), context)]
    return min(places, key=lambda place: abs(place - answer.start), default=None)


def _holds(sentence: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(text)}(?!\w)", sentence) is not None


def _write(making: _Making, split: str, context: str, questions: Sequence[_Question]) -> None:
    spans = sentence_spans(context)
    for question in questions:
        making.tally.take()
        if not making.seen.add(question.query_id):
            making.faults.add(f'{question.place}: question id must be unique, got "{question.query_id}" again')
        elif not question.answers:
            making.tally.drop("without an answer")
        else:
            roles = sentence_roles(context, spans, question.answers, repeats=making.settings.repeats)
            positives, negatives = ([context[slice(*spans[number])] for number in numbers] for numbers in roles)
            _write_question(making, split, question, list(dict.fromkeys(positives)), list(dict.fromkeys(negatives)))


def _write_question(making: _Making, split: str, question: _Question, positives: list[str], negatives: list[str]) -> None:
    negatives = [text for text in negatives if text not in positives]
    if not positives:
        making.tally.drop("the answer does not stand in the paragraph")
    elif not negatives:
        making.tally.drop("no sentence of the paragraph is left as a negative")
    else:
        good, bad = ([making.output.document(text_id(text), text) for text in texts] for texts in (positives, negatives))
        enough = len(good) + len(bad) >= making.settings.min_sentences
        for stem in (split, ALL, *([f"{ALL}-min{making.settings.min_sentences}"] if enough else [])):
            making.output.triplet(stem, question.query_id, question.query, positives=good, negatives=bad)


def _paragraphs(article: Any, place: str, faults: FileFaults) -> Iterator[tuple[str, list[_Question]]]:
    """Each paragraph with its sound questions; what is at fault has been noted."""
    try:
        paragraphs = _listed(article, "paragraphs", place)
    except RowError as fault:
        faults.add(str(fault))
        return
    for number, paragraph in enumerate(paragraphs):
        where = f"{place}.paragraphs[{number}]"
        try:
            entries = _listed(paragraph, "qas", where)
            context = text_value(paragraph.get("context"), "context", where)
        except RowError as fault:
            faults.add(str(fault))
            continue
        yield context, list(_questions(entries, where, faults))


def _questions(entries: Sequence[Any], place: str, faults: FileFaults) -> Iterator[_Question]:
    for number, entry in enumerate(entries):
        where = f"{place}.qas[{number}]"
        try:
            answers = [] if isinstance(entry, Mapping) and entry.get("is_impossible") is True else _listed(entry, "answers", where)
            yield _Question(
                id_value(entry.get("id"), "id", where),
                text_value(entry.get("question"), "question", where).strip(),
                tuple(dict.fromkeys(_answer(answer, where) for answer in answers)),
                where,
            )
        except RowError as fault:
            faults.add(str(fault))


def _answer(answer: Any, place: str) -> Answer:
    start = answer.get("answer_start") if isinstance(answer, Mapping) else None
    if not isinstance(start, int) or isinstance(start, bool) or start < 0:
        raise RowError(f'{place}: an answer must have a whole number "answer_start" >= 0, got {value_kind(start)}')
    return Answer(start, text_value(answer.get("text"), "text", place))


def _articles(path: Path) -> list[Any]:
    try:
        return _listed(read_json(path), "data", str(path))
    except RowError as fault:
        raise DataError(f"{fault}; check that it is a file of SQuAD") from fault


def _listed(value: Any, name: str, place: str) -> list[Any]:
    if not isinstance(value, Mapping):
        raise RowError(f"{place} must be an object, got {value_kind(value)}")
    entries = value.get(name)
    if not isinstance(entries, list):
        raise RowError(f'{place} must hold a list "{name}", got {value_kind(entries)}')
    return entries
