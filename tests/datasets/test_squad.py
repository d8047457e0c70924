import json
import random
from pathlib import Path
from typing import Any

import pytest

from adiabat.config.dataset_settings import Repeats, SquadSettings
from adiabat.data.records import text_id
from adiabat.datasets.arxiv import sentence_spans
from adiabat.datasets.squad import Answer, make_squad, sentence_roles
from tests.data.files import write
from tests.datasets.making import corpus, fault, maker, names, rows, triplets
from tests.refused import require_facts

S = [
    "The mill was built by Dr. Ada Moor in 1801.",
    "It burnt down in 1850.",
    "Moor had left.",
    "Nobody rebuilt it!",
    "The river is quiet.",
]
CONTEXT = " ".join(S)


def qa(query_id: str, question: str, *answers: str, at: int | None = None, **more: Any) -> dict[str, Any]:
    listed = [{"text": text, "answer_start": CONTEXT.find(text) if at is None else at} for text in answers]
    return {"id": query_id, "question": question, "answers": listed, **more}


def squad(path: Path, *paragraphs: dict[str, Any]) -> Path:
    data = {"version": "1.1", "data": [{"title": "Mill", "paragraphs": list(paragraphs)}]}
    return write(path, data)


def paragraph(*questions: dict[str, Any], context: str = CONTEXT) -> dict[str, Any]:
    return {"context": context, "qas": list(questions)}


make = maker(make_squad, SquadSettings)


def test_the_sentence_of_the_answer_is_positive_and_the_others_are_negative(tmp_path: Path) -> None:
    source = squad(tmp_path / "train-v1.1.json", paragraph(qa("q1", " When did it burn? ", "1850")))
    make(source, tmp_path / "out")
    assert triplets(tmp_path / "out", "train") == [("When did it burn?", [S[1]], [S[0], *S[2:]])]
    assert rows(tmp_path / "out" / "train.jsonl.gz")[0]["query_id"] == "q1"


@pytest.mark.parametrize(
    ("repeats", "positives", "negatives"),
    [("positive", [0, 2], [1, 3, 4]), ("negative", [0], [1, 2, 3, 4]), ("drop", [0], [1, 3, 4])],
)
def test_a_sentence_that_repeats_the_answer_is_what_the_setting_says(
    tmp_path: Path, repeats: Repeats, positives: list[int], negatives: list[int]
) -> None:
    source = squad(tmp_path / "dev-v1.1.json", paragraph(qa("q1", "Who?", "Moor")))
    make(source, tmp_path / "out", f"squad.repeats={repeats}")
    wanted = ("Who?", [S[i] for i in positives], [S[i] for i in negatives])
    assert triplets(tmp_path / "out", "dev") == [wanted]


def test_a_part_of_a_word_is_no_repetition_and_an_offset_that_is_off_finds_the_nearest_place() -> None:
    context = "The art is old. Parts of it start late. An art."
    roles = sentence_roles(context, sentence_spans(context), [Answer(4, "art")], repeats="positive")
    assert roles == ([0, 2], [1])
    context = "Moor came. Then Moor left. Then nobody."
    spans = sentence_spans(context)
    assert sentence_roles(context, spans, [Answer(15, "Moor")], repeats="negative") == ([1], [0, 2])
    assert sentence_roles(context, spans, [Answer(2, "Moor")], repeats="negative") == ([0], [1, 2])
    assert sentence_roles(context, spans, [Answer(0, "Mill"), Answer(0, " ")], repeats="negative") == ([], [])


def test_roles_are_those_of_a_plain_loop_over_letters() -> None:
    draw = random.Random(0)
    words = ["One", "two.", "Three", "four!", "Five", "six.", "Seven"]
    for _ in range(300):
        context = " ".join(draw.choices(words, k=12))
        spans = sentence_spans(context)
        start = draw.randrange(len(context) - 1)
        text = context[start : start + draw.randrange(1, 12)]
        if not text.strip():
            continue
        owner = {place: number for number, span in enumerate(spans) for place in range(*span)}
        plain = sorted({owner[place] for place in range(start, start + len(text)) if place in owner})
        positives, negatives = sentence_roles(context, spans, [Answer(start, text)], repeats="negative")
        assert positives == plain
        assert sorted(positives + negatives) == list(range(len(spans)))
        more, fewer = sentence_roles(context, spans, [Answer(start, text)], repeats="positive")
        assert set(more) >= set(positives)
        assert set(fewer) <= set(negatives)


def test_both_splits_make_all_of_them_and_the_subset_with_enough_sentences(tmp_path: Path) -> None:
    folder = tmp_path / "squad"
    folder.mkdir()
    squad(folder / "train-v1.1.json.gz", paragraph(qa("q1", "When?", "1850")))
    short = "Water is wet. Fire is hot. Air is thin."
    squad(folder / "dev-v1.1.json", paragraph(qa("q2", "What is hot?", "Fire", at=14), context=short))
    record = make(folder, tmp_path / "out")
    counts = {"train": 1, "all": 2, "all-min5": 1, "dev": 1}
    assert record["examples"] == {f"{stem}.jsonl.gz": count for stem, count in counts.items()}
    assert [query for query, _, _ in triplets(tmp_path / "out", "all-min5")] == ["When?"]
    assert make(folder, tmp_path / "three", "squad.min_sentences=3")["examples"]["all-min3.jsonl.gz"] == 2


def test_questions_that_make_no_example_are_counted_by_reason(tmp_path: Path) -> None:
    source = squad(
        tmp_path / "dev-v2.0.json",
        paragraph(
            qa("q1", "When?", "1850"),
            qa("q2", "Why?", is_impossible=True),
            {"id": "q3", "question": "How?", "is_impossible": True, "plausible_answers": []},
            qa("q4", "Where?", "Paris", at=3),
            qa("q5", "Everything?", CONTEXT),
            qa("q6", "Nothing?"),
        ),
    )
    record = make(source, tmp_path / "out")
    assert record["examples"]["dev.jsonl.gz"] == 1
    assert record["notes"] == [
        "3 of 6 questions left out: without an answer",
        "1 of 6 questions left out: the answer is not in the paragraph",
        "1 of 6 questions left out: no sentence of the paragraph is left as a negative",
    ]


def test_equal_sentences_are_one_document_and_never_both_right_and_wrong(tmp_path: Path) -> None:
    context = "Yes. No. Yes. Maybe. No."
    source = squad(tmp_path / "dev-v1.1.json", paragraph(qa("q1", "Right?", "Yes", at=0), context=context))
    make(source, tmp_path / "out", "squad.repeats=negative")
    assert triplets(tmp_path / "out", "dev") == [("Right?", ["Yes."], ["No.", "Maybe."])]
    assert corpus(tmp_path / "out") == {text_id(text): text for text in ("Yes.", "No.", "Maybe.")}


def test_scripts_without_spaces_or_from_right_to_left_work_alike(tmp_path: Path) -> None:
    chinese = paragraph(qa("q1", "谁？", "她", at=4), context="他来了。她走了。没人了。")
    arabic = paragraph(qa("q2", "متى؟", "أمس", at=14), context="بدأت الأعراض. أمس. ثم انتهت!")
    make(squad(tmp_path / "dev-v1.1.json", chinese, arabic), tmp_path / "out")
    assert triplets(tmp_path / "out", "all") == [
        ("谁？", ["她走了。"], ["他来了。", "没人了。"]),
        ("متى؟", ["أمس."], ["بدأت الأعراض.", "ثم انتهت!"]),
    ]


def test_every_fault_of_a_file_is_reported_with_its_location(tmp_path: Path) -> None:
    source = tmp_path / "dev-v1.1.json"
    questions = [
        {"id": "a", "answers": []},
        qa("b", " ", "x"),
        qa("c", "?", "x", at=-2),
        {"id": "d", "question": "?", "answers": "x"},
        qa("", "?"),
    ]
    good = paragraph(qa("q1", "When?", "1850"), qa("q1", "Again?", "1850"))
    paragraphs = [good, paragraph(*questions), {"qas": []}, "x", {"context": "x"}]
    articles = [{"paragraphs": paragraphs}, {"title": "none"}, 3]
    source.write_text(json.dumps({"data": articles}), encoding="utf-8")
    facts = (
        '[0].qas[1]: question id must be unique, got "q1" again',
        '[1].qas[0]: "question"',
        '[1].qas[1]: "question"',
        '[1].qas[2]: an answer must have a whole number "answer_start" >= 0',
        '[1].qas[3] must hold a list "answers", got a string',
        '[1].qas[4]: "id"',
        '[2]: "context"',
        "[3] must be an object, got a string",
        '[4] must hold a list "qas", got null',
    )
    other = f'{source}: data[1] must hold a list "paragraphs", got null'
    placed = (f"{source}: data[0].paragraphs{fact}" for fact in facts)
    require_facts(fault(make, source, tmp_path / "out"), "11 faults: ", *placed, other)


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ('{"data": [', "must be JSON, got Expecting value: line 1 column 11"),
        ("[]", "must be an object, got a list; check that it is a file of SQuAD"),
        ('{"data": 1}', 'must hold a list "data", got a number'),
        ('{"data": []}', "must give at least one example, got none"),
    ],
)
def test_a_file_of_another_format_is_refused(tmp_path: Path, text: str, fact: str) -> None:
    (tmp_path / "dev-v1.1.json").write_text(text)
    require_facts(fault(make, tmp_path / "dev-v1.1.json", tmp_path / "out"), fact)
    assert names(tmp_path) == ["dev-v1.1.json"]
