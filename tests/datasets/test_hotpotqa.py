import json
from pathlib import Path
from typing import Any

from adiabat.config.dataset_settings import HotpotqaSettings
from adiabat.data.corpora import read_corpus
from adiabat.data.examples import read_examples
from adiabat.data.records import ExampleSet, text_id
from adiabat.datasets.hotpotqa import make_hotpotqa
from tests.datasets.making import corpus, fault, maker, names, rows, triplets
from tests.refused import require_facts


def question(
    number: int, *, level: str = "hard", passages: int = 10, positives: int = 2, **more: Any
) -> dict[str, Any]:
    context = [[f"Title {number}.{one}", [f"Passage {one} begins.", " It ends. "]] for one in range(passages)]
    facts = [[f"Title {number}.{one}", sentence] for one in range(positives) for sentence in (0, 1)]
    return {
        "_id": f"id{number}",
        "question": f"question {number}?",
        "answer": "yes",
        "type": "bridge",
        "level": level,
        "supporting_facts": facts,
        "context": context,
        **more,
    }


def hotpot(path: Path, *elements: Any) -> Path:
    path.write_text(json.dumps(list(elements)))
    return path


make = maker(make_hotpotqa, HotpotqaSettings)


def test_supporting_paragraphs_are_positives_and_the_others_negatives(tmp_path: Path) -> None:
    make(hotpot(tmp_path / "hotpot_train_v1.1.json", question(1, passages=4)), tmp_path / "out")
    text = "Title 1.{0} Passage {0} begins. It ends."
    wanted = ("question 1?", [text.format(one) for one in (0, 1)], [text.format(one) for one in (2, 3)])
    assert triplets(tmp_path / "out", "train") == [wanted]
    row = rows(tmp_path / "out" / "corpus.jsonl.gz")[0]
    assert row == {"_id": text_id(wanted[1][0]), "title": "Title 1.0", "text": "Passage 0 begins. It ends."}


def test_levels_are_filled_from_both_splits_with_questions_of_enough_passages(tmp_path: Path) -> None:
    folder = tmp_path / "hotpot"
    folder.mkdir()
    hotpot(
        folder / "hotpot_train_v1.1.json",
        question(1, level="easy"),
        question(2, level="medium", passages=9),
        question(3, level="hard", passages=11),
    )
    hotpot(folder / "hotpot_dev_distractor_v1.json", question(4), question(5, level="medium"))
    record = make(folder, tmp_path / "out")
    counts = {"train": 3, "easy": 1, "hard": 2, "dev": 2, "medium": 1}
    assert record["examples"] == {f"{stem}.jsonl.gz": count for stem, count in counts.items()}
    assert record["notes"] == ["1 questions have fewer than 10 passages and are in no level's file"]
    assert [row["query_id"] for row in rows(tmp_path / "out" / "hard.jsonl.gz")] == ["id3", "id4"]
    assert make(folder, tmp_path / "nine", "hotpotqa.min_passages=9")["examples"]["medium.jsonl.gz"] == 2


def test_readers_read_what_was_made_by_ids_and_by_texts(tmp_path: Path) -> None:
    empty = question(2, context=[["שלום", []], ["Other", ["Text."]]], supporting_facts=[["שלום", 0]])
    source = hotpot(tmp_path / "x.json", question(1), empty)
    make(source, tmp_path / "ids")
    make(source, tmp_path / "texts", "hotpotqa.documents=texts")
    by_id, by_text = (read_examples(tmp_path / name / "test.jsonl.gz") for name in ("ids", "texts"))
    assert isinstance(by_id, ExampleSet)
    assert isinstance(by_text, ExampleSet)
    documents = {document.doc_id: document.text for document in read_corpus(tmp_path / "ids")}
    assert documents == corpus(tmp_path / "ids")
    for one, other in zip(by_id.examples, by_text.examples, strict=True):
        texts = tuple(documents[name] for name in one.positives + one.negatives)
        assert texts == other.positives + other.negatives
    assert by_text.examples[1].positives == ("שלום",)


def test_questions_that_make_no_example_are_counted_by_reason(tmp_path: Path) -> None:
    source = hotpot(
        tmp_path / "x.json",
        question(1),
        question(2, positives=0),
        question(3, positives=10),
        question(4, supporting_facts=[["Gone", 0]]),
    )
    record = make(source, tmp_path / "out")
    assert record["notes"] == [
        "2 of 4 questions left out: none of its passages supports the answer",
        "1 of 4 questions left out: every passage supports the answer",
    ]
    assert record["examples"] == {"test.jsonl.gz": 1, "hard.jsonl.gz": 1}


def test_every_fault_of_a_file_is_reported_with_its_element(tmp_path: Path) -> None:
    faults: list[tuple[Any, str]] = [
        (question(1), 'element 2: question id must be unique, got "id1" again'),
        (7, "element 3 must be an object, got a number"),
        (question(2, level="expert"), "element 4: \"level\" must be easy, medium, hard, got 'expert'"),
        (question(3, question=" "), 'element 5: "question" must not be empty'),
        (question(4, context={"title": []}), 'element 6: "context" must be a list of pairs, got an object'),
        (question(5, context=[["only a title"]]), 'element 7: "context" must be a list of pairs, got a list'),
        (question(6, context=[["a", "text"]]), 'element 8: a passage of "context"'),
        (
            question(7, supporting_facts=None),
            'element 9: "supporting_facts" must be a list of pairs, got null',
        ),
        (question(8, context=[["a", ["\ud800"]]]), 'element 10: "context" must be Unicode text'),
    ]
    source = hotpot(tmp_path / "x.json", question(1), *(element for element, _ in faults))
    require_facts(fault(make, source, tmp_path / "out"), "9 faults: ", *(fact for _, fact in faults))
    source.write_bytes(source.read_bytes()[:-10])
    require_facts(fault(make, source, tmp_path / "out"), "element 10 must be whole JSON")
    assert names(tmp_path) == ["x.json"]
