"""HotpotQA: the paragraphs that support an answer, among distractors (Vasilyev et al. 2024, appendix D).

Made from the publisher's own files, ``hotpot_train_v1.1.json`` and ``hotpot_dev_distractor_v1.json``, each
one JSON array that is read an element at a time::

    [{"_id": ..., "question": ..., "level": "hard", "supporting_facts": [[TITLE, SENTENCE], ...],
      "context": [[TITLE, [SENTENCE, SENTENCE, ...]], ...]}, ...]

A paragraph is a positive where a supporting fact names its title, and a negative otherwise. Questions without
a positive or without a negative are skipped.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adiabat.config.dataset_settings import HotpotqaSection, HotpotqaSettings
from adiabat.core.progress import SILENT, Watch
from adiabat.data.columns import id_value, text_value
from adiabat.data.records import text_id
from adiabat.data.table_rows import FileFaults, RowError, value_kind
from adiabat.datasets.json_streams import json_elements, split_files
from adiabat.datasets.writer import DatasetSummary, DatasetWriter, HashSet, SkipCounts, create_dataset

SPLITS = {"train": "hotpot_train_v*.json*", "dev": "hotpot_dev_distractor_v*.json*"}
LEVELS = ("easy", "medium", "hard")


Passage = tuple[str, str]
"""One paragraph: the title of its article, by which supporting facts name it, and its sentences joined."""


@dataclass(frozen=True, slots=True)
class Question:
    """One element of the publisher's array; `supporting` holds the titles of the positives among
    `passages`.
    """

    query_id: str
    query: str
    level: str
    passages: tuple[Passage, ...]
    supporting: frozenset[str]


def make_hotpotqa(
    source: Path, out: Path, settings: HotpotqaSettings, *, watch: Watch = SILENT
) -> DatasetSummary:
    """Make examples of questions and paragraphs.

    Writes a file for each split of the source and, of all splits together, ``easy``, ``medium`` and ``hard``:
    the questions of that level with at least `HotpotqaSection.min_passages` paragraphs, as the source
    measures on.
    """
    section, paths = settings.hotpotqa, split_files(source, SPLITS)
    faults, skipped, ids, short = FileFaults(), SkipCounts("questions"), HashSet(), 0
    with create_dataset(
        out, maker="hotpotqa", source=source, settings=settings, documents=section.documents
    ) as writer:
        for split, path in paths.items():
            for number, element in json_elements(path, watch=watch):
                location = f"{path}: element {number}"
                with faults.collected():
                    question = _parse_question(element, location)
                    skipped.count()
                    if not ids.add(question.query_id):
                        faults.add(f'{location}: question id must be unique, got "{question.query_id}" again')
                    short += len(question.passages) < section.min_passages
                    _write(writer, split, question, section, skipped)
        faults.raise_if_any()
        skipped.write_notes(writer)
        if short:
            writer.note(
                f"{short:,} questions have fewer than {section.min_passages} "
                "passages and are in no level's file"
            )
    return writer.summary


def _parse_question(element: Any, location: str) -> Question:
    if not isinstance(element, Mapping):
        raise RowError(f"{location} must be an object, got {value_kind(element)}")
    level = element.get("level")
    if level not in LEVELS:
        raise RowError(f'{location}: "level" must be {", ".join(LEVELS)}, got {level!r}')
    return Question(
        id_value(element.get("_id"), "_id", location),
        text_value(element.get("question"), "question", location).strip(),
        level,
        tuple(_passage(pair, location) for pair in _pairs(element, "context", location)),
        frozenset(
            text_value(pair[0], "supporting_facts", location)
            for pair in _pairs(element, "supporting_facts", location)
        ),
    )


def _pairs(element: Mapping[str, Any], name: str, location: str) -> list[list[Any]]:
    pairs = element.get(name)
    if not isinstance(pairs, list) or any(not isinstance(pair, list) or len(pair) != 2 for pair in pairs):
        raise RowError(f'{location}: "{name}" must be a list of pairs, got {value_kind(pairs)}')
    return pairs


def _passage(pair: list[Any], location: str) -> Passage:
    title, sentences = pair
    if not isinstance(sentences, list) or any(not isinstance(sentence, str) for sentence in sentences):
        raise RowError(
            f'{location}: a passage of "context" must be a title and a list of '
            f"sentences, got {value_kind(sentences)}"
        )
    title = text_value(title, "context", location)
    text = "".join(sentences).strip()
    return title, text_value(text, "context", location) if text else ""


def _write(
    writer: DatasetWriter, split: str, question: Question, section: HotpotqaSection, skipped: SkipCounts
) -> None:
    positives: dict[str, Passage] = {}
    negatives: dict[str, Passage] = {}
    for title, text in question.passages:
        side = positives if title in question.supporting else negatives
        side[text_id(f"{title} {text}".strip())] = title, text
    if not positives:
        skipped.skip("none of its passages supports the answer")
    elif not negatives:
        skipped.skip("every passage supports the answer")
    else:
        pos, neg = (
            [writer.document(doc_id, text, title=title) for doc_id, (title, text) in side.items()]
            for side in (positives, negatives)
        )
        levels = [question.level] if len(question.passages) >= section.min_passages else []
        for stem in (split, *levels):
            writer.triplet(stem, question.query_id, question.query, positives=pos, negatives=neg)
