"""Mining for a block of queries: each reason on a small corpus, the judge, and independence of the block."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adiabat.config.dataset_settings import JudgeSection
from adiabat.data.records import Example, Side
from adiabat.mining import miner as miner_module
from adiabat.mining.candidates import Vectors
from adiabat.mining.miner import in_order_of_choice, query_generator, query_number
from tests.fake_encoder import FakeEncoder
from tests.mining.world import ANSWER, CORPUS, QUERY, chosen, mined, miner_of, reasons

ASKED = Example("q1", QUERY, ("answer",), location="data:1")


@dataclass
class Opinions(FakeEncoder):
    """Vectors whose cosine with every query is as told, and 0 for other texts."""

    width: int = 2
    told: dict[str, float] = field(default_factory=dict)

    def encode(self, texts: Sequence[str], *, side: Side) -> np.ndarray:
        self.calls.append(len(texts))
        cosines = np.array([1.0 if side == "query" else self.told.get(text, 0.0) for text in texts])
        return np.stack([cosines, np.sqrt(1 - cosines**2)], axis=1).astype(np.float32)


def test_copies_of_the_answer_and_of_the_query_never_come_out(tmp_path: Path) -> None:
    miner = miner_of(tmp_path, [ASKED], negatives_per_query=100)
    (one,) = mined(miner)
    found = reasons(miner, one)
    assert found == {
        "answer": "known_positive",
        "shouted": "duplicate",
        "longer": "near_duplicate",
        "ask": "query_itself",
        "q1": "query_itself",
        "cat": "kept",
        "cat2": "repeated",
        "cat3": "kept",
        "dog": "kept",
        "second": "kept",
    }
    assert set(chosen(miner, one)) == {"cat", "cat3", "dog", "second"}
    assert one.negatives == 4
    without = miner_of(tmp_path, [ASKED], near_duplicate=0.0)
    assert reasons(without, mined(without)[0]) == {**found, "longer": "kept"}
    # A document that shares its id with a query by chance is a candidate.
    by_chance = miner_of(tmp_path, [Example("dog", QUERY, ("answer",))], negatives_per_query=100)
    assert reasons(by_chance, mined(by_chance)[0]) == {**found, "q1": "kept"}


def test_answers_as_texts_are_found_by_their_text(tmp_path: Path) -> None:
    miner = miner_of(tmp_path, [Example("x", QUERY, (ANSWER, "an answer that is in no corpus"))])
    miner = miner_of(tmp_path, [Example("x", QUERY, (ANSWER, "an answer that is in no corpus"))])
    (one,) = mined(miner)
    found = reasons(miner, one)
    copies = {"answer": "known_positive", "shouted": "duplicate", "longer": "near_duplicate"}
    assert found.items() >= copies.items()
    assert one.positive_rows.tolist() == [-1, -1]
    assert one.positive_scores[0] == one.scores[list(found).index("answer")]


def test_what_another_row_of_the_same_question_knows_counts(tmp_path: Path) -> None:
    miner = miner_of(tmp_path, [ASKED, Example("q2", QUERY, ("second",)), Example("q3", QUERY, ("cat3",))])
    known = {"answer": "known_positive", "cat3": "known_positive", "shouted": "duplicate"}
    for one in mined(miner):
        assert reasons(miner, one).items() >= known.items()


def test_first_ranks_are_counted_among_what_is_left(tmp_path: Path) -> None:
    plain = miner_of(tmp_path, [ASKED])
    left = [name for name, reason in reasons(plain, mined(plain)[0]).items() if reason == "kept"]
    miner = miner_of(tmp_path, [ASKED], skip_first=2, choice="ranked")
    found = reasons(miner, mined(miner)[0])
    assert [name for name, reason in found.items() if reason == "rank"] == left[:2]
    assert chosen(miner, mined(miner)[0]) == left[2:]


@pytest.mark.parametrize(("name", "value"), [("margin", 0.25), ("relative_margin", 0.5)])
def test_margins_are_those_of_plain_comparison(tmp_path: Path, name: str, value: float) -> None:
    settings: dict[str, Any] = {name: value}
    plain, strict = miner_of(tmp_path, [ASKED]), miner_of(tmp_path, [ASKED], **settings)
    (before,), (after,) = mined(plain), mined(strict)
    lowest = float(before.positive_scores.min())
    bar = lowest - value * (lowest if name == "relative_margin" else 1.0)
    found = reasons(strict, after)
    expected = {
        key: name if reason == "kept" and float(score) >= bar else reason
        for (key, reason), score in zip(reasons(plain, before).items(), before.scores, strict=True)
    }
    assert found == expected
    assert name in found.values()
    assert "kept" in found.values()


def test_listed_negatives_stand_first_and_are_not_mined_again(tmp_path: Path) -> None:
    example = Example("x", QUERY, ("answer",), ("dog", "mat"))
    miner = miner_of(tmp_path, [example], listed="keep")
    (one,) = mined(miner)
    assert one.listed_texts == [CORPUS["dog"], CORPUS["mat"]]
    assert reasons(miner, one)["dog"] == "listed"
    assert (one.negatives, len(one.chosen)) == (3, 1)
    assert one.listed_scores.tolist() == [one.scores[list(reasons(miner, one)).index("dog")], 0.0]
    full = miner_of(tmp_path, [example], listed="keep", negatives_per_query=1)
    assert (mined(full)[0].listed_texts, mined(full)[0].chosen) == ([CORPUS["dog"]], [])


def test_a_judge_drops_what_it_scores_as_high_as_the_answer(tmp_path: Path) -> None:
    opinions = Opinions(told={ANSWER: 0.5, CORPUS["cat"]: 0.5, CORPUS["cat3"]: 0.375, CORPUS["dog"]: 0.0})
    judge = Vectors(opinions)
    miner = miner_of(tmp_path, [ASKED], judge=judge, negatives_per_query=100)
    (one,) = mined(miner)
    assert reasons(miner, one)["cat"] == "judge"
    assert set(chosen(miner, one)) == {"cat3", "dog", "second"}
    assert one.judged == 4
    for relative, margin in ((False, 0.125), (True, 0.25)):
        judging = JudgeSection(model="m", margin=margin, relative=relative)
        strict = miner_of(tmp_path, [ASKED], judge=judge, judge_settings=judging, negatives_per_query=100)
        assert set(chosen(strict, mined(strict)[0])) == {"dog", "second"}


def test_a_judge_is_asked_about_no_more_than_it_takes(tmp_path: Path) -> None:
    opinions = Opinions(told={ANSWER: 0.5})
    miner = miner_of(tmp_path, [ASKED], judge=Vectors(opinions), negatives_per_query=1)
    (one,) = mined(miner)
    assert one.judged == 1
    assert opinions.calls == [1, 1, 1]  # the query, its answer, one candidate
    plain = miner_of(tmp_path, [ASKED], negatives_per_query=1)
    assert one.chosen == mined(plain)[0].chosen


@pytest.mark.parametrize("choice", ["ranked", "random"])
def test_a_query_fares_alike_in_any_company(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, choice: str
) -> None:
    corpus = {f"d{number}": f"word{number % 5} word{number % 7} common text {number}" for number in range(60)}
    examples = [Example(f"x{number}", f"word{number % 5} common", (f"d{number}",)) for number in range(20)]
    miner = miner_of(tmp_path, examples, corpus=corpus, choice=choice, depth=30)
    together = [(one.chosen, one.codes.tolist()) for one in mined(miner)]
    alone = [one for example in examples for one in miner.mine([example])]
    assert [(one.chosen, one.codes.tolist()) for one in alone] == together
    monkeypatch.setattr(miner_module, "BATCH_QUERIES", 3)
    monkeypatch.setattr(miner_module, "CACHED_SHINGLES", 0)
    assert [(one.chosen, one.codes.tolist()) for one in mined(miner)] == together
    other = miner_of(tmp_path, examples, corpus=corpus, choice=choice, depth=30, seed=1)
    assert ([one.chosen for one in mined(other)] == [rows for rows, _ in together]) is (choice == "ranked")


def test_a_query_that_shares_no_word_gets_nothing(tmp_path: Path) -> None:
    miner = miner_of(tmp_path, [Example("x", "zebra?", ("answer",)), ASKED])
    nothing, something = mined(miner)
    assert (nothing.negatives, len(nothing.rows), nothing.positive_scores.tolist()) == (0, 0, [0.0])
    assert something.negatives == 3


def test_an_answer_in_a_right_to_left_script_is_known_again(tmp_path: Path) -> None:
    text = "ישבה החתולה על השטיח האדום הישן בשמש וישנה עד שבא הערב והיה קר"
    corpus = {
        "a": text,
        "b": f"{text} בבית",
        "c": "החתולה ישבה בבית אחר לגמרי",
        "d": text.replace(" ", "\u00a0"),
    }
    miner = miner_of(tmp_path, [Example("x", "איפה ישבה החתולה", ("a",))], corpus=corpus)
    expected = {"a": "known_positive", "b": "near_duplicate", "c": "kept", "d": "duplicate"}
    assert reasons(miner, mined(miner)[0]) == expected


def test_a_random_order_is_decided_by_seed_id_and_text_and_is_uniform() -> None:
    kept = np.arange(50)
    orders = [
        in_order_of_choice(kept, "random", query_generator(seed, name, text)).tolist()
        for seed, name, text in ((0, "q", "t"), (0, "q", "t"), (1, "q", "t"), (0, "r", "t"), (0, "q", "u"))
    ]
    assert all(sorted(order) == kept.tolist() for order in orders)
    assert orders[0] == orders[1]
    assert len({tuple(order) for order in orders}) == 4
    assert query_number("ab", "c") != query_number("a", "bc")
    firsts = [
        in_order_of_choice(np.arange(4), "random", query_generator(0, str(number), ""))[0]
        for number in range(2000)
    ]
    assert np.abs(np.bincount(firsts) - 500).max() < 80  # four standard deviations
