import numpy as np
from hypothesis import example, given
from hypothesis import strategies as some

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


@given(some.lists(some.text("ab\0", max_size=3)), some.integers(1, 50))
@example([f"text {number}" for number in np.random.default_rng(0).integers(0, 900, 5_000)], 7)
@example([], 1)
@example(["e\u0301", "\u00e9", "", " ", "\0", "\0\0", "\ud800", "שלום", "a" * 10**6], 2)
def test_numbers_are_those_of_a_dictionary_however_the_texts_come(texts: list[str], block: int) -> None:
    numbering, found, fresh = TextNumbers(), list[int](), list[str]()
    for start in range(0, max(len(texts), 1), block):
        part = texts[start : start + block]
        numbers, new = numbering.number(hash_texts(part))
        found += numbers.tolist()
        fresh += [part[place] for place in new.tolist()]
    assert found == plainly(texts)
    assert fresh == list(dict.fromkeys(texts))


def test_a_hash_that_ends_in_zero_bytes_stays_itself() -> None:
    hashes = np.frombuffer(b"x" * 14 + b"\0\0" + b"x" * 14 + b"\0y" + b"x" * 14 + b"\0\0", dtype="S16")
    assert TextNumbers().number(hashes)[0].tolist() == [0, 1, 0]
