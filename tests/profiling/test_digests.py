import random
import unicodedata

import numpy as np
import pytest

from adiabat.data.text_hashes import TextHashes, folded, numbered


def numbers_of(*texts: str) -> list[int]:
    hashes = TextHashes()
    for text in texts:
        hashes.add(text)
    return numbered(hashes.hashes()).tolist()


def test_numbers_agree_with_a_dictionary_of_the_texts():
    draw = random.Random(3)
    texts = [draw.choice("abcdefgh") * draw.randrange(3) for _ in range(500)]
    numbers = numbers_of(*texts)
    assert len(set(numbers)) == len(set(texts)) == max(numbers) + 1
    assert len(set(zip(numbers, texts, strict=True))) == len(set(texts))
    assert len(set(numbers_of("a", "b", "A", ""))) == 4


def test_hashes_that_agree_in_one_half_are_two_texts():
    halves = np.array([bytes(8) + half for half in (b"12345678", b"12345679", b"1234567", b"12345679")], dtype="S16")
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
