"""Near duplicates: 3-grams by hand, and estimates against the exact Jaccard similarity."""

import random

import numpy as np
import pytest

from adiabat.data import text_hashes
from adiabat.data.near_duplicates import SIGNATURE_BYTES, grams, near, signatures
from adiabat.data.text_hashes import TrainedTexts
from adiabat.models.model_names import packed, unpacked


def similarity(first: str, second: str) -> float:
    one, other = set(grams(first)), set(grams(second))
    return len(one & other) / len(one | other)


def changed(words: list[str], count: int, draw: random.Random) -> list[str]:
    copy = list(words)
    for place in draw.sample(range(len(copy)), count):
        copy[place] = f"changed{draw.random()}"
    return copy


def test_grams_ignore_case_punctuation_and_width_and_take_characters_where_words_have_no_spaces() -> None:
    assert grams("How are you, today?") == ["how are you", "are you today"]
    assert grams("ＨＯＷ  are—you!") == ["how are you"]
    assert grams("one") == ["one"]
    assert grams("東京の天気") == ["東 京 の", "京 の 天", "の 天 気"]
    assert grams("") == [""]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("😀", "😎"),
        ("C++", "C#"),
        ("-5", "5"),
        (".5", "5"),
        ("की", "का"),
        ("5 %", "5 €"),
        ("𠀀", "𠀁"),
        ("\U0001f1e9", "x"),
    ],
)
def test_symbols_and_vowel_signs_are_not_dropped(first: str, second: str) -> None:
    texts, others = ([one, f"price of {one} in May"] for one in (first, second))
    assert near(texts, signatures(others)).tolist() == [False, False]
    assert near([first, first.upper()], signatures([first])).all()
    assert near(["?", "—"], signatures(["!", ""])).tolist() == [False, False]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("(“What’s C++?”)", "what's c++"),
        ("“Wait…” – he", "wait he"),
        ("...and -5.", "and -5"),
        ("(.5)", ".5"),
        ("a" + "." * 200_000 + "b", "a" + "." * 200_000 + "b"),
        ("«Où?»", "où"),
        ("「はい」。", "は い"),
        ("क्या की?", "क्या की"),
        ("?!", "?!"),
    ],
    ids=lambda text: text[:20],
)
def test_punctuation_around_words_is_dropped(text: str, words: str) -> None:
    assert grams(text) == [words]


def test_equal_bytes_estimate_the_similarity() -> None:
    draw = random.Random(0)
    pairs = []
    for number in range(300):
        words = [f"w{draw.randrange(5000)}" for _ in range(60)]
        pairs.append((" ".join(words), " ".join(changed(words, number % 6, draw))))
    exact = np.array([similarity(*pair) for pair in pairs])
    equal = np.array([(one == other).mean() for one, other in (signatures(pair) for pair in pairs)])
    estimated = (equal - 1 / 256) / (1 - 1 / 256)
    assert estimated[exact == 1].min() == 1
    assert np.mean(estimated - exact) == pytest.approx(0, abs=0.01)
    assert np.std((estimated - exact)[exact < 1]) < 0.06
    found = np.array([bool(near([one], signatures([other]))[0]) for one, other in pairs])
    assert found[exact == 1].all()
    assert not found[exact < 0.75].any()


def test_near_finds_the_same_words_in_other_case_among_thousands() -> None:
    draw = random.Random(1)
    texts = [" ".join(f"w{draw.randrange(5000)}" for _ in range(9)) for _ in range(3000)]
    known = signatures(texts)
    assert near([text.upper() + "?!" for text in texts[:500]], known).all()
    others = [" ".join(f"w{draw.randrange(5000)}" for _ in range(9)) for _ in range(500)]
    assert not near(others, known).any()
    assert near([], known).tolist() == []
    assert near(["alone"], signatures([])).tolist() == [False]


def test_signatures_are_kept_with_the_hashes_and_are_unknown_where_a_part_lacks_them(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = TrainedTexts.of(["what is this", "what is that thing", "What is this?"], documents=["a"])
    assert texts.signatures.shape == (2, SIGNATURE_BYTES)
    record, content = packed(texts)
    (tmp_path / "trained.bin").write_bytes(content)
    read = unpacked(tmp_path / "trained.bin", record)
    assert read.nearly_holds_queries(["WHAT is this!", "what was this"]).tolist() == [True, False]
    assert read.holds_queries(["WHAT is this!"]).tolist() == [False]
    without = TrainedTexts(texts.queries, texts.documents)
    assert TrainedTexts.joined([texts, without]).nearly_holds_queries(["what is this"]) is None
    assert TrainedTexts.joined([texts, read]).signatures.tolist() == texts.signatures.tolist()
    plain, hashes = packed(without)
    (tmp_path / "older.bin").write_bytes(hashes)
    assert unpacked(tmp_path / "older.bin", plain).signatures is None
    monkeypatch.setattr("adiabat.data.near_duplicates.MOST_SIGNATURES", 1)
    assert text_hashes.TrainedTexts.of(["one", "two"]).signatures is None
