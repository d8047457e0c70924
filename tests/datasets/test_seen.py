import random
import string

from adiabat.datasets.writer import Seen


def test_a_string_is_new_once() -> None:
    seen = Seen()
    assert [seen.add(one) for one in ("a", "b", "a", "", "", "ב", "b")] == [True, True, False, True, False, True, False]
    assert len(seen) == 4


def test_it_agrees_with_a_set_while_it_grows() -> None:
    draw = random.Random(0)
    strings = ["".join(draw.choices(string.ascii_lowercase, k=3)) for _ in range(6_000)]
    seen, plain = Seen(), set[str]()
    for one in strings:
        assert seen.add(one) == (one not in plain)
        plain.add(one)
    assert len(seen) == len(plain) > 3 * 1024 + 1
