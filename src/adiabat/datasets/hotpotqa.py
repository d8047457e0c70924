"""HotpotQA: the paragraphs that support an answer, among distractors (Vasilyev et al. 2024, appendix D).

Made from the publisher's own files, ``hotpot_train_v1.1.json`` and ``hotpot_dev_distractor_v1.json``, each one JSON array that is read
an element at a time::

    [{"_id": ..., "question": ..., "level": "hard", "supporting_facts": [[TITLE, SENTENCE], ...],
      "context": [[TITLE, [SENTENCE, SENTENCE, ...]], ...]}, ...]

A paragraph is a positive where a supporting fact names its title, and a negative otherwise. Questions without a positive or without a
negative are left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adiabat.config.dataset_settings import HotpotqaSection, HotpotqaSettings
from adiabat.core.progress import SILENT, Watch
from adiabat.data.columns import RowError, id_value, text_value, value_kind
from adiabat.data.records import text_id
from adiabat.data.table_rows import FileFaults
from adiabat.datasets.json_streams import json_elements, split_files
from adiabat.datasets.writer import Made, Output, Seen, Tally, writing

SPLITS = {"train": "hotpot_train_v*.json*", "dev": "hotpot_dev_distractor_v*.json*"}
LEVELS = ("easy", "medium", "hard")


@dataclass(frozen=True, slots=True)
class Passage:
    """One paragraph of a question.

    Attributes:
        title: Of its article; how supporting facts name it.
        text: Its sentences, joined as the publisher spaces them.
    """

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Question:
    """One element of the publisher's array.

    Attributes:
        query_id: The publisher's.
        query: The question.
        level: One of `LEVELS`.
        passages: Positives and negatives, in the publisher's order.
        supporting: Titles of the positives.
    """

    query_id: str
    query: str
    level: str
    passages: tuple[Passage, ...]
    supporting: frozenset[str]


def make_hotpotqa(source: Path, out: Path, settings: HotpotqaSettings, *, watch: Watch = SILENT) -> Made:
    """Make examples of questions and paragraphs.

    Written are a file for each split of the source, and of all splits together ``easy``, ``medium`` and ``hard``: the questions of that
    level with at least `HotpotqaSection.min_passages` paragraphs, as the source measures on.

    Args:
        out: A new or empty directory.
    """
    paths = split_files(source, SPLITS)
    faults, tally, seen, short = FileFaults(), Tally("questions"), Seen(), 0
    with writing(out, maker="hotpotqa", source=source, settings=settings, documents=settings.hotpotqa.documents) as output:
        for split, path in paths.items():
            for number, element in json_elements(path, watch=watch):
                try:
                    question = parse_question(element, f"{path}: element {number}")
                except RowError as fault:
                    faults.add(str(fault))
                    continue
                tally.take()
                if not seen.add(question.query_id):
                    faults.add(f'{path}: element {number}: question id must be unique, got "{question.query_id}" again')
                short += len(question.passages) < settings.hotpotqa.min_passages
                _write(output, split, question, settings.hotpotqa, tally)
        faults.raise_if_any()
        tally.tell(output)
        if short:
            output.note(f"{short:,} questions have fewer than {settings.hotpotqa.min_passages} passages and are in no level's file")
    return output.made


def parse_question(element: Any, place: str) -> Question:
    """One element of the array."""
    if not isinstance(element, Mapping):
        raise RowError(f"{place} must be an object, got {value_kind(element)}")
    level = element.get("level")
    if level not in LEVELS:
        raise RowError(f'{place}: "level" must be {", ".join(LEVELS)}, got {level!r}')
    return Question(
        id_value(element.get("_id"), "_id", place),
        text_value(element.get("question"), "question", place).strip(),
        level,
        tuple(_passage(pair, place) for pair in _pairs(element, "context", place)),
        frozenset(text_value(pair[0], "supporting_facts", place) for pair in _pairs(element, "supporting_facts", place)),
    )


def _pairs(element: Mapping[str, Any], name: str, place: str) -> list[list[Any]]:
    pairs = element.get(name)
    if not isinstance(pairs, list) or any(not isinstance(pair, list) or len(pair) != 2 for pair in pairs):
        raise RowError(f'{place}: "{name}" must be a list of pairs, got {value_kind(pairs)}')
    return pairs


def _passage(pair: list[Any], place: str) -> Passage:
    title, parts = pair
    if not isinstance(parts, list) or any(not isinstance(part, str) for part in parts):
        raise RowError(f'{place}: a passage of "context" must be a title and a list of sentences, got {value_kind(parts)}')
    title = text_value(title, "context", place)
    text = "".join(parts).strip()
    return Passage(title, text_value(text, "context", place) if text else "")


def _write(output: Output, split: str, question: Question, settings: HotpotqaSection, tally: Tally) -> None:
    sides: tuple[dict[str, Passage], dict[str, Passage]] = ({}, {})
    for passage in question.passages:
        sides[passage.title not in question.supporting][text_id(f"{passage.title} {passage.text}".strip())] = passage
    positives, negatives = sides
    if not positives:
        tally.drop("none of its passages supports the answer")
    elif not negatives:
        tally.drop("every passage supports the answer")
    else:
        good, bad = ([output.document(doc_id, one.text, title=one.title) for doc_id, one in side.items()] for side in sides)
        enough = len(question.passages) >= settings.min_passages
        for stem in (split, *([question.level] if enough else [])):
            output.triplet(stem, question.query_id, question.query, positives=good, negatives=bad)
