"""Topics and tags: counted by hand, by plain loops, and as training counts them."""

import unicodedata
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from adiabat.config.dual_training import TrainSettings
from adiabat.config.dual_training_data import TrainColumnsSection, TrainDataSection
from adiabat.config.reader import checked
from adiabat.core.errors import DataError
from adiabat.data.text_hashes import TextHashes, folded, numbered
from adiabat.dual_encoder.batches import sampler_of
from adiabat.dual_encoder.pair_data import read_pairs
from adiabat.profiling.counters import (
    BATCH_SIZES,
    LISTED_GROUPS,
    NAME_CHARACTERS,
    Listed,
    NameCounter,
    count_pairs,
    groups_of,
    in_corpus,
)
from adiabat.profiling.profile_record import Groups, NamedGroup, PairCounts, SmallGroups
from tests.data.files import write
from tests.profiling.files import inspected, of_kind, sentence_of
from tests.profiling.test_profile_view import printed

BOTH = frozenset(("topic", "tag"))


def names(values: list[str]) -> NameCounter:
    tally = NameCounter()
    for value in values:
        tally.add(value)
    return tally


def row(number: int, **more: object) -> dict[str, object]:
    return {"query": f"question {number}", "positive": f"an answer {number}", **more}


def test_groups_by_hand(tmp_path: Path) -> None:
    rows = [
        row(0, topic="chess", tag="ends"),
        row(1, topic="chess", tag="openings"),
        row(2, topic="chess", tag="openings"),
        row(3, topic="travel", tag="openings"),
        row(4, topic="travel"),
        row(5, topic="", tag=["ends", "never read"]),
        # Listed before: it counts where it came first.
        row(0, topic="travel", tag="ends"),
    ]
    topics, tags = inspected(write(tmp_path / "pairs.jsonl", *rows)).groups
    chess = NamedGroup("chess", 3, tags=(("openings", 2), ("ends", 1)), tag_count=2)
    travel = NamedGroup("travel", 2, tags=(("openings", 1),), tag_count=1)
    few = tuple(SmallGroups(size, 2, 5) for size in BATCH_SIZES)
    assert topics == Groups("topic", 6, 1, 2, 2, (chess, travel), travel, few)
    assert (tags.kind, tags.pairs, tags.without, tags.groups, tags.names) == ("tag", 6, 1, 4, 2)
    # "ends" of no topic, of chess; "openings" of chess, of travel.
    assert [(one.within, one.name, one.pairs) for one in tags.largest] == [
        ("chess", "openings", 2),
        ("", "ends", 1),
        ("chess", "ends", 1),
        ("travel", "openings", 1),
    ]
    assert tags.smallest == tags.largest[-1]


def test_groups_are_what_plain_loops_count() -> None:
    random = Random(5)
    topic = [random.choice(["", *"abcdefghijklmno"]) for _ in range(3_000)]
    tag = [random.choice(["", *"xyz"]) for _ in range(3_000)]
    rows = sorted(random.sample(range(3_000), 2_000))
    by_topic, by_tag = groups_of(BOTH, names(topic), names(tag), np.array(rows))
    topics = Counter(topic[place] for place in rows if topic[place])
    tags = Counter((topic[place], tag[place]) for place in rows if tag[place])
    assert (by_topic.groups, by_topic.without) == (len(topics), sum(not topic[place] for place in rows))
    assert all(one.pairs == topics[one.name] for one in by_topic.largest)
    assert [one.pairs for one in by_topic.largest] == sorted(topics.values(), reverse=True)[:LISTED_GROUPS]
    for one in by_topic.largest:
        assert dict(one.tags) == {name: count for (outer, name), count in tags.items() if outer == one.name}
    assert (by_tag.groups, by_tag.names) == (len(tags), 3)
    assert [one.pairs for one in by_tag.largest] == [tags[one.within, one.name] for one in by_tag.largest]
    assert by_tag.smallest is not None
    assert by_tag.smallest.pairs == min(tags.values())
    for sizes, found in ((topics, by_topic), (tags, by_tag)):
        few = [[size for size in sizes.values() if size < batch] for batch in BATCH_SIZES]
        assert [(one.groups, one.pairs) for one in found.small] == [(len(small), sum(small)) for small in few]


def test_pairs_are_grouped_as_training_groups_them(tmp_path: Path) -> None:
    random = Random(3)
    rows = [
        row(random.randrange(150), forum=random.choice("abcd"), kind=random.choice(["", "x", "y"]))
        for _ in range(200)
    ]
    path = write(tmp_path / "pairs.jsonl", *rows)
    topics, tags = inspected(path, columns={"topic": "forum", "tag": "kind"}).groups
    columns = TrainColumnsSection(topic="forum", tag="kind")
    pairs = read_pairs(str(path), TrainDataSection(columns=columns, validation=str(path)))[0]
    assert (topics.pairs, tags.without) == (len(pairs), int((pairs.tags == 0).sum()))
    sizes = np.unique(pairs.topics, return_counts=True)[1]
    assert sorted(sizes) == sorted(one.pairs for one in topics.largest)
    both = np.stack([pairs.topics, pairs.tags], axis=1)[pairs.tags > 0]
    assert tags.groups == len(np.unique(both, axis=0)) == len(tags.largest)
    assert sorted(np.unique(both, axis=0, return_counts=True)[1]) == sorted(one.pairs for one in tags.largest)


@pytest.mark.parametrize(
    ("values", "got"), [(["x"] * 9, '"x"'), ([None] * 9, "none"), ([["x", str(n)] for n in range(9)], '"x"')]
)
@pytest.mark.parametrize("kind", ["topic", "tag"])
def test_what_training_would_refuse_is_a_fault_where_the_column_is_named(
    tmp_path: Path, kind: str, values: list[object], got: str
) -> None:
    rows = [row(number, **{kind: value}) for number, value in enumerate(values)]
    path = write(tmp_path / "pairs.jsonl", *rows)
    assert not inspected(path).faults
    found = inspected(path, columns={kind: kind})
    assert [one.kind for one in found.faults] == ["one value for all"]
    told = sentence_of(found, "one value for all")
    assert f"pairs must be of several {kind}s" in told
    assert f'batches.group = "{kind}", got {got} for all 9' in told
    settings = checked(TrainSettings, {"batches": {"group": kind}})
    pairs = read_pairs(str(path), TrainDataSection(validation=str(path)))[0]
    with pytest.raises(DataError, match=f"pairs must be of several {kind}s"):
        sampler_of(settings, pairs)


def test_topics_too_small_for_a_batch_are_told_where_the_column_is_named(tmp_path: Path) -> None:
    rows = [row(n, forum=n % 3) for n in range(3 * BATCH_SIZES[0])]
    whole = inspected(write(tmp_path / "whole.jsonl", *rows), columns={"topic": "forum"})
    assert of_kind(whole, "small topics") is None
    found = inspected(write(tmp_path / "less.jsonl", *rows[:-3]), columns={"topic": "forum"})
    assert f"no topic has the {BATCH_SIZES[0]} pairs of a batch" in sentence_of(found, "small topics")
    assert found.groups[0].small[0] == SmallGroups(BATCH_SIZES[0], 3, len(rows) - 3)


def test_a_column_of_whole_texts_costs_no_more_than_its_beginnings() -> None:
    tally = names([f"{number}" + "x" * 10_000 for number in range(3)])
    assert [len(name) for name in tally.names] == [0, *[NAME_CHARACTERS] * 3]
    assert tally.numbers.tolist() == [1, 2, 3]


def test_the_page_names_the_largest_topics_with_their_tags_and_the_smallest(tmp_path: Path) -> None:
    sizes = range(12, 2, -1)
    rows = [row(0, topic="[b]none[/b]", tag="x")]
    rows += [
        row(100 * size + n, topic=f"of {size}", tag="even" if n % 2 else f"odd {n % 8}")
        for size in sizes
        for n in range(size)
    ]
    page = printed(inspected(write(tmp_path / "pairs.jsonl", *rows, row(9_999))), width=80)
    lines = [" ".join(line.split()) for line in page.splitlines()]
    for figures in (
        "11 45",
        "1 (1.3 %) 1 (1.3 %)",
        "12 (15.6 %) 6 (7.8 %)",
        "76 (98.7 %) 76 (98.7 %)",
        "[b]none[/b] 1 1.3 % 1 x 100.0 %",
    ):
        assert any(line.endswith(figures) for line in lines), (figures, page)
    assert any(line.startswith("of 12 12 15.6 % 5 even 50.0 %, odd 0 16.7 %") for line in lines), page
    assert max(map(len, page.splitlines())) <= 80


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
    return count_pairs(
        hashes_of([query for query, _, _ in rows]),
        listed([near for _, near, _ in rows]),
        listed([far for *_, far in rows]),
    )


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
    rows: Rows = [
        ("who?", ["she", "he"], ["it"]),
        ("why?", ["he"], ["she", "he"]),
        ("who?", ["she"], ["he"]),
        ("she", ["she"], []),
    ]
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


WORDS = some.integers(0, 4).map("text {}".format)


ROWS = some.tuples(WORDS, some.lists(WORDS, min_size=1, max_size=3), some.lists(WORDS, max_size=3))


@given(some.lists(ROWS, min_size=1, max_size=40))
def test_arithmetic_on_numbers_agrees_with_sets_of_texts(rows: Rows) -> None:
    assert counted(rows)[0] == plainly(rows)


def test_ids_stand_for_the_texts_of_the_corpus():
    given = listed([["d1", "d2"], ["d9"], ["d2"]])
    found = in_corpus(given, hashes_of(["d1", "d2", "d3"]), hashes_of(["same", "same", "other"]))
    wanted = hashes_of(["same", "same", "d9", "same"])
    assert np.array_equal(found.hashes, wanted)
    assert found.missing.tolist() == [False, False, True, False]
    assert found.row.tolist() == [0, 0, 1, 2]


@given(some.lists(some.text("ab A", max_size=3)))
@example(["a", "b", "A", ""])
def test_numbers_agree_with_a_dictionary_of_the_texts(texts: list[str]) -> None:
    numbers = numbered(hashes_of(texts)).tolist()
    assert set(numbers) == set(range(len(set(texts))))
    assert len(set(zip(numbers, texts, strict=True))) == len(set(texts))


def test_hashes_that_agree_in_one_half_are_two_texts():
    halves = np.array(
        [bytes(8) + half for half in (b"12345678", b"12345679", b"1234567", b"12345679")], dtype="S16"
    )
    assert numbered(halves).tolist() == [1, 2, 0, 2]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("What  is\tit? ", "what is IT?"),
        ("Straße", "STRASSE"),
        ("café", "cafe\N{COMBINING ACUTE ACCENT}"),
        ("ＡＢＣ　１", "abc 1"),
        ("ﬁne", "FINE"),
        ("שלום\N{NO-BREAK SPACE}עולם", "שלום עולם"),
        ("\N{GREEK SMALL LETTER FINAL SIGMA}", "\N{GREEK CAPITAL LETTER SIGMA}"),
    ],
)
def test_texts_that_differ_in_writing_alone_fold_to_one(one: str, other: str):
    assert folded(one) == folded(other) != []


@pytest.mark.parametrize(("one", "other"), [("a b", "ab"), ("a.", "a"), ("é", "e"), ("مرحبا", "مرحب")])
def test_texts_that_differ_in_more_do_not(one: str, other: str):
    assert folded(one) != folded(other)


def test_folding_twice_changes_nothing():
    letters = [chr(code) for code in range(0x20, 0x3000) if unicodedata.category(chr(code)) != "Cn"]
    once = [" ".join(folded(letter)) for letter in letters]
    assert [" ".join(folded(text)) for text in once] == once
