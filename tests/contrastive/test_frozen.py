"""A tower that does not change embeds each text once."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from adiabat.contrastive.frozen import FrozenTower
from adiabat.model.encoder import Encoder
from tests.contrastive.problem import model, objective_of

TEXTS = ["one", "two words", "three words here", "", "five"]


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Encoder, str]]:
    """Texts that `Encoder.encode` was given, in order, and by whom."""
    said: list[tuple[Encoder, str]] = []
    encode = Encoder.encode

    def noting(self: Encoder, texts: Sequence[str], **options: Any) -> np.ndarray:
        said.extend((self, text) for text in texts)
        return encode(self, texts, **options)

    monkeypatch.setattr(Encoder, "encode", noting)
    return said


def frozen_tower(tower: Encoder, groups: list[list[int]], **options: Any) -> FrozenTower:
    return FrozenTower(tower, TEXTS, **{"side": "query", "precision": "fp32", **options}, groups=map(np.array, groups))


def test_embeddings_are_those_of_the_tower_row_by_row() -> None:
    tower = model().query
    frozen = frozen_tower(tower, [[3, 0], [4, 1, 0], [2]])
    for rows in ([3, 0], [4, 4, 1, 0], [2], []):
        found = frozen.embed(np.array(rows, dtype=np.int64))
        expected = tower.encode([TEXTS[row] for row in rows], side="query", precision="fp32")
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)
        assert found.dtype == torch.float32
        assert not found.requires_grad


def test_each_group_is_embedded_once_when_a_text_of_it_is_first_asked_for(encoded: list[tuple[Encoder, str]]) -> None:
    frozen = frozen_tower(model().query, [[2, 0, 2], [0, 1], [1, 2], [4, 3]])
    assert encoded == []
    frozen.embed(np.array([1]))
    assert [text for _, text in encoded] == ["two words"]
    frozen.embed(np.array([1, 0]))
    assert [text for _, text in encoded] == ["two words", "one", "three words here"]
    frozen.embed(np.array([2, 0, 1]))
    assert len(encoded) == 3


def test_groups_are_read_no_further_than_needed() -> None:
    taken: list[int] = []

    def groups() -> Iterator[np.ndarray]:
        for number in range(5):
            taken.append(number)
            yield np.array([number])

    frozen = FrozenTower(model().query, TEXTS, side="query", precision="fp32", groups=groups())
    frozen.embed(np.array([2, 0]))
    assert taken == [0, 1, 2]


def test_a_vector_is_the_same_to_the_last_bit_in_whatever_order_texts_are_asked_for() -> None:
    tower, groups = model().query, [[0, 1, 2], [2, 3], [4, 0]]
    whole = frozen_tower(tower, groups).embed(np.arange(5))
    for order in ([4, 3, 2, 1, 0], [3, 0, 4, 1, 2]):
        frozen = frozen_tower(tower, groups)
        for row in order:
            assert torch.equal(frozen.embed(np.array([row]))[0], whole[row])


def test_what_was_embedded_is_not_changed_by_who_asked_for_it() -> None:
    frozen = frozen_tower(model().query, [[1]])
    first = frozen.embed(np.array([1]))
    kept = first.clone()
    first.zero_()
    assert torch.equal(frozen.embed(np.array([1])), kept)


def test_side_and_precision_are_handed_on() -> None:
    tower = model().query
    query, document, rounded = (
        frozen_tower(tower, [[0, 1, 2, 3, 4]], **options).embed(np.arange(5))
        for options in ({}, {"side": "document"}, {"precision": "bf16"})
    )
    assert not torch.allclose(query, document, atol=1e-3)
    assert not torch.equal(query, rounded)
    torch.testing.assert_close(query, rounded, atol=0.1, rtol=0.1)


def test_over_many_steps_and_validations_a_frozen_tower_and_a_guide_see_no_text_twice(encoded: list[tuple[Encoder, str]]) -> None:
    objective = objective_of(
        towers={"kind": "asymmetric", "frozen": "document"}, train={"guide": "other", "negatives_per_query": 2, "guide_margin": 0.1}
    )
    assert objective.guide is not None
    for step in range(6):
        torch.autograd.backward(objective.loss(step))
        if step % 3 == 2:
            objective.validate()
    texts = objective.train.texts
    seen = {tower: sorted(text for by, text in encoded if by is tower) for tower in (objective.towers.document, objective.guide.query)}
    assert seen == {objective.towers.document: sorted(texts.documents), objective.guide.query: sorted([*texts.queries, *texts.documents])}
    # A tower that changes is asked again at each validation.
    asked = [text for by, text in encoded if by is objective.towers.query]
    assert asked == 2 * [texts.queries[row] for row in objective.validation.asked]
