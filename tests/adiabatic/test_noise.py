"""How probes are written otherwise."""

import pytest

from adiabat.adiabatic.drift import written_otherwise
from adiabat.adiabatic.probes import read_probes


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("A sentence.", "A sentence"),
        ("a title", "a title."),
        ("Is it so ?", "Is it so"),
        ("Wait...", "Wait"),
        ("这些。", "这些"),
        ("رسالة؟", "رسالة"),
        ("है।", "है"),
        ("trailing. ", "trailing"),
        ("3.5", "3.5."),
        (".", ".."),
        ("(a remark)", "(a remark)."),
    ],
)
def test_the_end_of_a_text_is_written_otherwise(text: str, other: str) -> None:
    assert written_otherwise(text) == other


def test_every_packaged_probe_changes_in_its_end_alone() -> None:
    probes = read_probes()
    others = probes.otherwise()
    assert others.groups == probes.groups
    for text, other in zip(probes.texts, others.texts, strict=True):
        assert text != other
        shorter, longer = sorted((text.rstrip(), other), key=len)
        assert longer.startswith(shorter)
        assert len(longer) - len(shorter) <= 3
