"""What a time limit covers beside steps and validations."""

import pytest

from adiabat.models.freezing import freeze
from adiabat.training import time_limit
from adiabat.training.time_limit import PAGE_SECONDS, PASSES_OF_WRITING, seconds_since, writing_time
from tests.tiny import tiny_dual, tiny_encoder


def test_writing_takes_several_times_as_long_as_a_digest_of_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit, "seconds_of", lambda work, device: 2.0)
    tower, shared = tiny_encoder(), tiny_dual()
    whole = writing_time([tower])
    assert (whole.checkpoint, whole.ending) == (4 * PASSES_OF_WRITING * 2, PASSES_OF_WRITING * 2 + PAGE_SECONDS)
    # A shared tower is written once, and checkpoints hold only what is trained.
    assert shared.shared
    assert writing_time([shared.query, shared.document]).ending == whole.ending
    frozen = freeze(tower.backbone, ("embeddings",))
    share = frozen.trainable / (frozen.trainable + frozen.frozen)
    assert writing_time([tower]).checkpoint == pytest.approx(share * whole.checkpoint)


def test_seconds_count_on_the_monotonic_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit.time, "monotonic", lambda: 12.5)
    assert seconds_since(10.0) == 2.5
