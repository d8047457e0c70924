"""What does not count as a negative: keys, guides and what is known; and parts of a batch that do not belong
together.
"""

import inspect
import math
from dataclasses import fields, replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from adiabat.losses import embedded_pairs as pairs_module
from adiabat.losses.embedded_pairs import Guide, Pairs, _check_lengths
from adiabat.losses.in_batch import in_batch_softmax, pair, samtone
from tests.losses.test_losses import batch, random
from tests.refused import Facts, one_line


@pytest.mark.parametrize("missing", ["shared", "own"])
def test_a_guide_that_has_not_seen_the_negatives_is_refused(missing: str) -> None:
    pairs = batch()
    with one_line(ValueError, "guide must have embeddings of"):
        in_batch_softmax(replace(pairs, guide=replace(pairs.guide, **{missing: None})), temperature=0.1)


def test_keys_of_negatives_alone_are_refused() -> None:
    with one_line(ValueError, "positive_keys must be given", "keys of negatives"):
        in_batch_softmax(replace(batch(), positive_keys=None), temperature=0.1)


@pytest.mark.parametrize("tile", [None, 1, 7])
@pytest.mark.parametrize("width", [16, 384])
def test_a_text_that_repeats_the_positive_is_out_under_a_guide_in_any_tile(
    width: int, tile: int | None
) -> None:
    # Every positive stands twice: for the guide it is a tie, which no rounding may decide.
    unit = nn.functional.normalize(random(40, width, dtype=torch.float32), dim=1)
    query, positive = unit[:20].repeat(2, 1), unit[20:].repeat(2, 1)
    pairs = Pairs(query, positive, guide=Guide(query, positive))
    scores = query @ positive.T
    out = torch.eye(20, dtype=torch.bool).repeat(2, 2) | (scores > scores.diagonal()[:, None])
    total = torch.logsumexp(
        (scores / 0.05).masked_fill(out & ~torch.eye(40, dtype=torch.bool), -math.inf), dim=1
    )
    wanted = (total - scores.diagonal() / 0.05).mean()
    torch.testing.assert_close(in_batch_softmax(pairs, temperature=0.05, tile=tile), wanted)


def test_a_positive_of_the_same_query_is_no_negative_wherever_it_stands() -> None:
    keys = {"query_keys": torch.tensor([0, 0]), "positive_keys": torch.tensor([10, 11])}
    sides = torch.eye(2), torch.eye(2)
    shared = in_batch_softmax(
        Pairs(*sides, shared=torch.eye(2)[1:], shared_keys=torch.tensor([11]), **keys), temperature=0.1
    )
    own = in_batch_softmax(
        Pairs(*sides, own=torch.eye(2)[:, None], own_keys=torch.tensor([[10], [11]]), **keys), temperature=0.1
    )
    assert (shared.item(), own.item()) == (0.0, 0.0)


def test_what_is_known_of_documents_is_refused_where_more_is_compared() -> None:
    for loss in (partial(in_batch_softmax, symmetric=True), samtone, pair):
        with one_line(ValueError, "known must be left out", "more than queries with documents"):
            loss(batch(), temperature=0.1)


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"positive": torch.ones(1, 6)}, ("positive must", "5 rows", "got 1")),
        ({"own": torch.ones(4, 2, 6)}, ("own must", "5 rows", "got 4")),
        ({"shared_keys": torch.arange(2)}, ("shared_keys must", "3 rows", "got 2")),
        ({"known": torch.zeros(5, 5, dtype=torch.bool)}, ("known must", "a column", "8 documents", "got 5")),
        ({"rows": slice(5, 9)}, ("rows must", "at least one pair")),
    ],
)
def test_parts_that_do_not_belong_together_are_refused(changes: dict[str, object], facts: Facts) -> None:
    with one_line(ValueError, *facts):
        inspect.unwrap(_check_lengths)(SimpleNamespace(**{**vars_of(batch()), **changes}))


def vars_of(pairs: Pairs) -> dict[str, object]:
    return {part.name: getattr(pairs, part.name) for part in fields(pairs)}


def test_half_precision_is_refused_because_sums_would_be_rounded_away() -> None:
    with one_line(ValueError, "embeddings", "float32 or float64", "got torch.bfloat16"):
        Pairs(torch.eye(2).bfloat16(), torch.eye(2).bfloat16())


@pytest.mark.parametrize("most", [1, 3, pairs_module.FEW_ANSWERS, pairs_module.FEW_ANSWERS + 1, 200])
def test_a_query_may_have_any_number_of_answers(most: int) -> None:
    generator = torch.Generator().manual_seed(most)
    answers = torch.randint(0, 300, (20, most), generator=generator)
    keys = torch.randint(0, 300, (50,), generator=generator)
    among = pairs_module._among(answers, keys)
    expected = torch.tensor([[int(key) in row.tolist() for key in keys] for row in answers])
    assert among(slice(None), slice(None)).equal(expected)
    assert among(slice(3, 9), slice(10, 11)).equal(expected[3:9, 10:11])
