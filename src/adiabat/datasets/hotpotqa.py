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
from adiabat.data.columns import id_value, optional_text, text_value
from adiabat.data.records import text_id
from adiabat.data.table_rows import FileFaults, RowError, UniqueNames, value_kind
from adiabat.datasets.json_streams import json_elements, split_files
from adiabat.datasets.writer import DatasetSummary, DatasetWriter, SkipCounts, create_dataset

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
    section, faults, skipped, short = settings.hotpotqa, FileFaults(), SkipCounts("questions"), 0
    ids = UniqueNames("question id", faults)
    paths = split_files(source, SPLITS)
    with create_dataset(
        out, maker="hotpotqa", source=source, settings=settings, documents=section.documents
    ) as writer:
        for split, path in paths.items():
            for number, element in json_elements(path, watch=watch):
                location = f"{path}: element {number}"
                with faults.collected():
                    question = _parse_question(element, location)
                    # Over all splits, since their levels share files.
                    ids.add(question.query_id, location)
                    skipped.count()
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
    """Read an element of the publisher's array."""
    if not isinstance(element, Mapping):
        raise RowError(f"{location} must be an object, got {value_kind(element)}")
    level = element.get("level")
    if level not in LEVELS:
        raise RowError(f'{location}: "level" must be {", ".join(LEVELS)}, got {level!r}')
    # Both lists hold pairs that begin with a title.
    passages, supporting = _pairs(element, "context", location), _pairs(element, "supporting_facts", location)
    return Question(
        id_value(element.get("_id"), "_id", location),
        text_value(element.get("question"), "question", location).strip(),
        level,
        tuple(_passage(pair, location) for pair in passages),
        frozenset(text_value(title, "supporting_facts", location) for title, _ in supporting),
    )


def _pairs(element: Mapping[str, Any], name: str, location: str) -> list[list[Any]]:
    """A list of pairs in an element: passages, or supporting facts."""
    pairs = element.get(name)
    if not isinstance(pairs, list) or any(not isinstance(pair, list) or len(pair) != 2 for pair in pairs):
        raise RowError(f'{location}: "{name}" must be a list of pairs, got {value_kind(pairs)}')
    return pairs


def _passage(pair: list[Any], location: str) -> Passage:
    """Title and text of a paragraph, whose sentences hold their own spaces."""
    title, sentences = pair
    if not isinstance(sentences, list) or any(not isinstance(sentence, str) for sentence in sentences):
        raise RowError(
            f'{location}: a passage of "context" must be a title and a list of '
            f"sentences, got {value_kind(sentences)}"
        )
    title = text_value(title, "context", location)
    return title, optional_text("".join(sentences), "context", location).strip()


def _write(
    writer: DatasetWriter, split: str, question: Question, section: HotpotqaSection, skipped: SkipCounts
) -> None:
    """Write a question that has both positives and negatives, equal paragraphs once."""
    positives: dict[str, Passage] = {}
    negatives: dict[str, Passage] = {}
    for title, text in question.passages:
        side = positives if title in question.supporting else negatives
        # Equal paragraphs have one id, and are one document.
        side[text_id(f"{title} {text}".strip())] = title, text
    if not positives:
        skipped.skip("none of its passages supports the answer")
    elif not negatives:
        skipped.skip("every passage supports the answer")
    else:
        stems = [split]
        if len(question.passages) >= section.min_passages:
            stems.append(question.level)
        pos, neg = (_documents(side, writer) for side in (positives, negatives))
        writer.triplet(stems, question.query_id, question.query, positives=pos, negatives=neg)


def _documents(passages: Mapping[str, Passage], writer: DatasetWriter) -> list[str]:
    """Write passages by id; returns their names in examples."""
    return [writer.document(doc_id, text, title=title) for doc_id, (title, text) in passages.items()]
