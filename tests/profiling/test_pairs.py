from random import Random

import numpy as np
import pytest

from adiabat.data.text_hashes import TextHashes
from adiabat.profiling.pair_counters import Listed, count_pairs, in_corpus
from adiabat.profiling.profile_record import PairCounts

Rows = list[tuple[str, list[str], list[str]]]


def hashes_of(texts: list[str]) -> np.ndarray:
    hashes = TextHashes()
    for text in texts:
        hashes.add(text)
    return hashes.hashes()


def listed(lists: list[list[str]]) -> Listed:
    texts = [text for one in lists for text in one]
    return Listed(hashes_of(texts), np.array([len(one) for one in lists]), np.zeros(len(texts), dtype=bool))


def counted(rows: Rows):
    return count_pairs(hashes_of([query for query, _, _ in rows]), listed([near for _, near, _ in rows]), listed([far for *_, far in rows]))


def plainly(rows: Rows) -> PairCounts:
    """The same with sets of texts and loops."""
    pairs = [(query, text) for query, near, _ in rows for text in near]
    documents = [text for _, text in pairs]
    answers: dict[str, set[str]] = {}
    for query, text in pairs:
        answers.setdefault(query, set()).add(text)
    negatives = [(query, text) for query, _, far in rows for text in far]
    everywhere = {text for _, near, far in rows for text in (*near, *far)}
    return PairCounts(
        pairs=len(pairs),
        distinct_pairs=len(set(pairs)),
        unique_documents=len(set(documents)) / len(documents),
        documents_once=sum(documents.count(text) == 1 for text in set(documents)),
        most_repeated=max(map(documents.count, documents)),
        queries_asked_again=len(rows) - len(answers),
        queries_with_several=sum(len(found) > 1 for found in answers.values()),
        on_both_sides=len(everywhere & set(answers)),
        own_answer=sum(query == text for query, text in pairs),
        negatives=len(negatives),
        rows_without_negatives=sum(not far for *_, far in rows),
        negatives_that_answer=sum(text in answers[query] for query, text in negatives),
    )


def test_pairs_by_hand():
    rows: Rows = [("who?", ["she", "he"], ["it"]), ("why?", ["he"], ["she", "he"]), ("who?", ["she"], ["he"]), ("she", ["she"], [])]
    counts, quoted = counted(rows)
    assert counts == PairCounts(
        pairs=5,
        distinct_pairs=4,
        unique_documents=2 / 5,
        documents_once=0,
        most_repeated=3,
        queries_asked_again=1,
        queries_with_several=1,
        on_both_sides=1,
        own_answer=1,
        negatives=4,
        rows_without_negatives=1,
        # "he" to why?, and "he" to the second who?, which the first one's answers know.
        negatives_that_answer=2,
    )
    assert (quoted.own_answer, quoted.negatives_that_answer, quoted.missing) == ([3], [1, 2], [])


@pytest.mark.parametrize("seed", range(20))
def test_arithmetic_on_numbers_agrees_with_sets_of_texts(seed: int):
    draw = Random(seed)
    words = [f"text {number}" for number in range(draw.choice([2, 5, 30]))]
    rows: Rows = [
        (draw.choice(words), draw.choices(words, k=draw.randrange(1, 4)), draw.choices(words, k=draw.randrange(4)))
        for _ in range(draw.randrange(1, 40))
    ]
    assert counted(rows)[0] == plainly(rows)


def test_ids_stand_for_the_texts_of_the_corpus():
    given = listed([["d1", "d2"], ["d9"], ["d2"]])
    found = in_corpus(given, hashes_of(["d1", "d2", "d3"]), hashes_of(["same", "same", "other"]))
    wanted = hashes_of(["same", "same", "d9", "same"])
    assert np.array_equal(found.hashes, wanted)
    assert found.missing.tolist() == [False, False, True, False]
    assert found.row.tolist() == [0, 0, 1, 2]
