import numpy as np
import pytest

from adiabat.data.text_hashes import TextNumbers, hash_texts


def plainly(texts: list[str]) -> list[int]:
    numbers: dict[str, int] = {}
    return [numbers.setdefault(text, len(numbers)) for text in texts]


def test_numbers_by_hand() -> None:
    numbering = TextNumbers()
    numbers, new = numbering.number(hash_texts(["b", "a", "b", "c"]))
    assert (numbers.tolist(), new.tolist()) == ([0, 1, 0, 2], [0, 1, 3])
    numbers, new = numbering.number(hash_texts(["d", "c", "a", "d"]))
    assert (numbers.tolist(), new.tolist()) == ([3, 2, 1, 3], [0])
    assert len(numbering) == 4


@pytest.mark.parametrize("block", [1, 7, 100, 5_000])
def test_numbers_are_those_of_a_dictionary_however_the_texts_come(block: int) -> None:
    texts = [f"text {number}" for number in np.random.default_rng(0).integers(0, 900, 5_000)]
    numbering, found, fresh = TextNumbers(), list[int](), list[str]()
    for start in range(0, len(texts), block):
        part = texts[start : start + block]
        numbers, new = numbering.number(hash_texts(part))
        found += numbers.tolist()
        fresh += [part[place] for place in new.tolist()]
    assert found == plainly(texts)
    assert fresh == list(dict.fromkeys(texts))


def test_no_texts_are_no_numbers() -> None:
    numbers, new = TextNumbers().number(hash_texts([]))
    assert (len(numbers), len(new)) == (0, 0)


def test_texts_that_differ_in_one_mark_differ_and_any_text_can_be_hashed() -> None:
    texts = ["e\u0301", "\u00e9", "", " ", "\0", "\0\0", "\ud800", "שלום", "a" * 10**6]
    assert TextNumbers().number(hash_texts(texts))[0].tolist() == list(range(len(texts)))


def test_a_hash_that_ends_in_zero_bytes_stays_itself() -> None:
    hashes = np.frombuffer(b"x" * 14 + b"\0\0" + b"x" * 14 + b"\0y" + b"x" * 14 + b"\0\0", dtype="S16")
    assert TextNumbers().number(hashes)[0].tolist() == [0, 1, 0]
