"""A tower that does not change embeds each text once; `tests/store/test_text_vectors.py` tests its files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from adiabat.core.errors import JobError
from adiabat.data.pair_sets import TextList
from adiabat.dual_encoder.text_cache import TextCache
from adiabat.models.encoder import Encoder
from tests.dual_encoder.problem import FROZEN, model, objective_of

TEXTS = TextList(["one", "two words", "three words here", "", "five"])


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


def frozen_tower(tower: Encoder, **options: Any) -> TextCache:
    return TextCache(tower, TEXTS, **{"side": "query", "precision": "fp32", **options})


def rows(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


@pytest.mark.parametrize("in_files", [False, True])
def test_embeddings_are_those_of_the_tower_whoever_asked_for_them(in_files: bool, tmp_path: Path) -> None:
    tower = model().query
    frozen = frozen_tower(tower)
    if in_files:
        frozen.vectors.keep_in(tmp_path / "kept" / "one-0", resume=False)
    for asked in (rows(3, 0), rows(4, 4, 1, 0), rows(2), rows()):
        found = frozen.embed(asked)
        expected = tower.encode([TEXTS[row] for row in asked], side="query", precision="fp32")
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)
        assert (found.dtype, found.requires_grad) == (torch.float32, False)
        found.zero_()


def test_side_and_precision_are_handed_on() -> None:
    tower = model().query
    query, document, rounded = (
        frozen_tower(tower, **options).embed(np.arange(5))
        for options in ({}, {"side": "document"}, {"precision": "bf16"})
    )
    assert not torch.allclose(query, document, atol=1e-3)
    assert not torch.equal(query, rounded)
    torch.testing.assert_close(query, rounded, atol=0.1, rtol=0.1)


@pytest.mark.parametrize("resume", [True, False])
def test_a_text_is_embedded_once_and_again_after_a_resume_only_where_no_checkpoint_noted_it(
    encoded: list[tuple[Encoder, str]], tmp_path: Path, resume: bool
) -> None:
    first = frozen_tower(model().query)
    first.vectors.keep_in(tmp_path / "one-0", resume=False)
    kept = first.embed(rows(1))
    assert torch.equal(first.embed(rows(1, 1, 0))[:1], kept)
    first.vectors.save()
    first.embed(rows(2))
    assert [text for _, text in encoded] == ["two words", "one", "three words here"]
    encoded.clear()
    again = frozen_tower(model().query)
    again.vectors.keep_in(tmp_path / "one-0", resume=resume)
    assert torch.equal(again.embed(rows(0, 1, 2))[1:2], kept) or not resume
    anew = ["three words here"] if resume else ["one", "two words", "three words here"]
    assert [text for _, text in encoded] == anew


def test_a_full_disk_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(JobError, match=r"one-0\.f32 must hold 320 bytes, got: No space left on device"):
        frozen_tower(model().query).vectors.keep_in(tmp_path / "one-0", resume=False)


def test_over_many_steps_and_validations_a_frozen_tower_and_a_guide_see_no_text_twice(
    encoded: list[tuple[Encoder, str]],
) -> None:
    loss = {"negatives_per_query": 2, "guide": {"model": "other", "margin": 0.1}}
    objective = objective_of(towers=FROZEN, train={"loss": loss})
    for step in range(6):
        torch.autograd.backward(objective.loss(step))
        if step % 3 == 2:
            objective.validate()
    texts, document, guide = objective.train.texts, objective.towers.document, objective.guide.query
    seen = {tower: sorted(text for by, text in encoded if by is tower) for tower in (document, guide)}
    assert seen == {document: sorted(texts.documents), guide: sorted([*texts.queries, *texts.documents])}
    # A tower that changes is asked again at each validation.
    asked = [text for by, text in encoded if by is objective.towers.query]
    assert asked == 2 * [texts.queries[row] for row in objective.validation.query_rows]
