"""Tokens through a teacher: each way of pooling by hand, and nothing is passed twice."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from adiabat.core.errors import DataError
from adiabat.distillation import token_embeddings as passing
from adiabat.distillation.token_embeddings import Sequences, TokenPooling, token_vectors
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.encoder import Encoder
from tests.tiny import KINDS, Kind, tiny_encoder

TOKENS = Sequences([[0, 9, 2], [0, 12, 2], [0, 9, 14, 2], [0, 20, 2]], 1, 1)


def states_of(teacher: Encoder, ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = teacher.backbone(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long))[0][
            0
        ]
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pooling", ["mean", "token", "first", "last"])
def test_vectors_are_those_of_a_plain_loop(kind: Kind, pooling: TokenPooling) -> None:
    teacher = tiny_encoder(kind, settings=EncoderSettings(normalize=True, query_prompt="ask: ", document_prompt="told: ")).eval()
    found = token_vectors(teacher, TOKENS, pooling=pooling)
    for ids, vector in zip(TOKENS.token_ids, found, strict=True):
        states = states_of(teacher, list(ids))
        parts = {"mean": states.mean(dim=0), "token": states[1:-1].mean(dim=0), "first": states[0], "last": states[-1]}
        np.testing.assert_allclose(vector, parts[pooling].numpy(), atol=1e-5)


def test_projections_are_passed_through() -> None:
    teacher = tiny_encoder(projection=8).eval()
    found = token_vectors(teacher, TOKENS)
    assert found.shape == (4, 8)
    (projection,) = teacher.projections
    with torch.inference_mode():
        expected = projection(states_of(teacher, [0, 9, 2]).mean(dim=0, keepdim=True))[0]
    np.testing.assert_allclose(found[0], expected.numpy(), atol=1e-5)


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Every sequence that passes, in order."""
    found: list[list[int]] = []
    real = Encoder.encode_tokens

    def noted(self: Encoder, token_ids: Any, **named: Any) -> Any:
        found.extend(map(list, token_ids))
        return real(self, token_ids, **named)

    monkeypatch.setattr(Encoder, "encode_tokens", noted)
    monkeypatch.setattr(passing, "BLOCK", 2)
    return found


def test_what_was_cut_short_goes_on_and_nothing_passes_twice(
    tmp_path: Path, passed: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    teacher = tiny_encoder().eval()
    whole = token_vectors(teacher, TOKENS)
    passed.clear()
    real, calls = passing._require_finite, []

    def cut(found: Any, *where: Any) -> None:
        calls.append(where)
        if len(calls) == 2:
            raise KeyboardInterrupt
        real(found, *where)

    monkeypatch.setattr(passing, "_require_finite", cut)
    with pytest.raises(KeyboardInterrupt):
        token_vectors(teacher, TOKENS, folder=tmp_path / "kept")
    again = token_vectors(teacher, TOKENS, folder=tmp_path / "kept")
    assert np.array_equal(again, whole)
    # The block that was cut short passes again, and no other.
    assert passed == [*map(list, TOKENS.token_ids), *map(list, TOKENS.token_ids[2:])]
    passed.clear()
    token_vectors(teacher, TOKENS, folder=tmp_path / "kept")
    assert passed == []


def test_other_poolings_and_teachers_are_not_taken_for_what_is_there(tmp_path: Path, passed: list[list[int]]) -> None:
    token_vectors(tiny_encoder().eval(), TOKENS, folder=tmp_path)
    for teacher, pooling in ((tiny_encoder().eval(), "token"), (tiny_encoder(seed=1).eval(), "mean")):
        passed.clear()
        assert np.array_equal(
            token_vectors(teacher, TOKENS, pooling=pooling, folder=tmp_path), token_vectors(teacher, TOKENS, pooling=pooling)
        )
        assert len(passed) == 2 * len(TOKENS.token_ids)


def test_a_teacher_that_gives_no_numbers_is_told() -> None:
    teacher = tiny_encoder().eval()
    with torch.no_grad():
        teacher.backbone.get_input_embeddings().weight[14] = float("nan")
    with pytest.raises(DataError, match=r"^the teacher must give finite vectors, got one that is not for '.+'; check its weights"):
        token_vectors(teacher, TOKENS)
