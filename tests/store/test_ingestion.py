"""How a corpus is cut for the device that encodes it."""

import pytest
import torch

from adiabat.config.shared import StoreSection
from adiabat.core.progress import SILENT
from adiabat.models.encoder import Encoder
from adiabat.store.build import CHUNK_SIZE
from adiabat.store.ingestion import _DocumentTower
from tests.tiny import tiny_dual


@pytest.mark.parametrize(("device", "documents"), [("cpu", CHUNK_SIZE), ("cuda", 65_536)])
def test_a_gpu_commits_more_rarely(device: str, documents: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tower = _DocumentTower(tiny_dual(), StoreSection(), compiled=False, watch=SILENT)
    monkeypatch.setattr(Encoder, "device", torch.device(device))
    assert tower.chunk_size == documents
