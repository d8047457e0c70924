"""What a time limit covers beside steps and validations."""

import pytest

from adiabat.models.freezing import freeze
from adiabat.training import time_limit
from adiabat.training.time_limit import PAGE_SECONDS, PASSES_OF_WRITING, seconds_since, writing_time
from tests.tiny import tiny_dual, tiny_encoder


def test_writing_takes_several_times_as_long_as_a_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    now, digests = [0.0], [0]

    class Digest:
        def __init__(self, data: memoryview) -> None:
            now[0] += data.nbytes / 400
            digests[0] += 1

    monkeypatch.setattr(time_limit.hashlib, "sha256", Digest)
    monkeypatch.setattr(time_limit.time, "monotonic", lambda: now[0])
    tower, shared = tiny_encoder(), tiny_dual()
    # The digest of a weight takes a hundredth of a second.
    weights = sum(parameter.numel() for parameter in tower.parameters())
    whole = writing_time([tower])
    assert whole.ending == pytest.approx(PASSES_OF_WRITING * weights / 100 + PAGE_SECONDS)
    assert whole.checkpoint == pytest.approx(4 * PASSES_OF_WRITING * weights / 100)
    # A shared tower is written once, and checkpoints hold only what is trained.
    assert shared.shared
    of_one = sum(parameter.numel() for parameter in shared.query.parameters())
    assert writing_time([shared.query, shared.document]).ending == pytest.approx(
        PASSES_OF_WRITING * of_one / 100 + PAGE_SECONDS
    )
    frozen = freeze(tower.backbone, ("embeddings",))
    share = frozen.trainable / (frozen.trainable + frozen.frozen)
    assert writing_time([tower]).checkpoint == pytest.approx(share * whole.checkpoint)
    # Of a large model only a part is digested.
    monkeypatch.setattr(time_limit, "DIGESTED", 1)
    digests[0] = 0
    assert writing_time([tower]).ending == pytest.approx(whole.ending)
    assert digests[0] == 1


def test_seconds_count_on_the_monotonic_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit.time, "monotonic", lambda: 12.5)
    assert seconds_since(10.0) == 2.5
