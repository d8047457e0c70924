"""Texts that OpenVINO embeds in place of torch: the same vectors, whatever their lengths and batches."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from adiabat.core.errors import ModelError
from adiabat.models import openvino_graphs
from adiabat.models.bulk import Progress, TokenTable, embed_all
from adiabat.models.device import minimum_cosine
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.encoder import Encoder
from adiabat.models.graphs import as_graph
from adiabat.models.openvino_graphs import OpenVinoRuntime, runtimes_of
from tests.tiny import tiny_dual, tiny_encoder

pytest.importorskip("openvino")

HARD = [
    "",
    "a",
    "Where does the river rise?",
    "שלום עולם, לאן זורם הנהר",
    "اجتمعت اللجنة",
    "past the limit of forty tokens " * 9,
    "a",
    "two  words \u200b",
]
SETTINGS = EncoderSettings(max_tokens=40, document_prompt="passage: ", pool_prompt=False)


@pytest.fixture(scope="module")
def tower() -> Encoder:
    return tiny_encoder(settings=SETTINGS, projection=16)


@pytest.fixture(scope="module")
def twin(tower: Encoder) -> Encoder:
    return tower.with_runtime(runtimes_of(tower, "document", ["fp32"])[0], "document")


def by_torch(tower: Encoder, texts: Sequence[str] = HARD) -> np.ndarray:
    return tower.encode(texts, side="document", precision="fp32")


@pytest.mark.parametrize("budget", [None, 1, 64])
def test_vectors_are_those_of_torch(tower: Encoder, twin: Encoder, budget: int | None) -> None:
    found = twin.encode(HARD, side="document", token_budget=budget)
    assert minimum_cosine(found, by_torch(tower)) >= 0.99999
    np.testing.assert_allclose(found, by_torch(tower), atol=1e-5)
    # Equal texts have equal bits, and so have both runs.
    assert np.array_equal(found[1], found[6])
    assert np.array_equal(found, twin.encode(HARD, side="document", token_budget=budget))


def test_a_decoder_that_closes_no_text_pools_one_token_of_an_empty_one() -> None:
    tower = tiny_encoder("llama", settings=replace(SETTINGS, pooling="last", normalize=False))
    graph = as_graph(tower, "document")
    (feed,) = graph.feeds(HARD, "document")
    with torch.no_grad():
        _, found = graph(*(torch.from_numpy(feed[name]) for name in graph.inputs))
    np.testing.assert_allclose(found, by_torch(tower), atol=1e-5)


def test_a_shared_tower_stays_shared(twin: Encoder) -> None:
    model = tiny_dual().with_runtime(twin.runtimes["document"], "document")
    assert model.shared
    assert model.document.runtimes.keys() == {"document"}


def test_no_text_and_one_text(tower: Encoder, twin: Encoder) -> None:
    assert twin.encode([], side="document").shape == (0, 16)
    np.testing.assert_allclose(twin.encode(["a"], side="document"), by_torch(tower, ["a"]), atol=1e-5)


def test_the_other_side_and_the_model_itself_stay_with_torch(tower: Encoder, twin: Encoder) -> None:
    assert np.array_equal(
        twin.encode(HARD, side="query", precision="fp32"), tower.encode(HARD, side="query", precision="fp32")
    )
    assert not tower.runtimes
    table = TokenTable.of(twin, HARD, side="document")
    # Tuning embeds its texts by the weights as they are.
    np.testing.assert_allclose(embed_all(twin, table, token_budget=1_000), by_torch(tower), atol=1e-6)


def test_progress_counts_every_text_and_those_at_the_limit(tower: Encoder, twin: Encoder) -> None:
    seen: dict[str, list[Progress]] = {"torch": [], "openvino": []}
    tower.encode(HARD, side="document", token_budget=60, on_progress=seen["torch"].append)
    twin.encode(HARD, side="document", token_budget=60, on_progress=seen["openvino"].append)
    assert seen["openvino"] == seen["torch"]
    assert seen["torch"][-1].full > 0
    assert len(seen["torch"]) > 2


class FakeRequest:
    """A request that notes what is done to it."""

    def __init__(self, log: list[str], fails: bool = False) -> None:
        self.log, self.fails = log, fails

    def start_async(self, feed: Any) -> None:
        self.log.append("started")

    def wait(self) -> None:
        self.log.append("ended")
        if self.fails:
            raise RuntimeError("no such kernel")

    def cancel(self) -> None:
        self.log.append("cancelled")

    def get_tensor(self, name: str) -> Any:
        class Tensor:
            data = np.zeros((1, 16), dtype=np.float32)

        return Tensor


@pytest.fixture
def faked(twin: Encoder, monkeypatch: pytest.MonkeyPatch) -> tuple[Encoder, list[str], list[bool]]:
    """A tower whose requests are fakes, their log, and which of them fail."""
    log: list[str] = []
    fails: list[bool] = []
    runtime = twin.runtimes["document"]
    assert isinstance(runtime, OpenVinoRuntime)

    class Compiled:
        def create_infer_request(self) -> FakeRequest:
            return FakeRequest(log, fails.pop() if fails else False)

    monkeypatch.setattr(runtime, "_compiled", Compiled())
    monkeypatch.setattr(runtime, "_parallel", 2)
    return twin, log, fails


def test_an_error_of_a_request_reaches_the_caller_after_all_have_ended(
    faked: tuple[Encoder, list[str], list[bool]],
) -> None:
    twin, log, fails = faked
    fails += [False, False, False, True]
    with pytest.raises(RuntimeError, match="no such kernel"):
        twin.encode(HARD, side="document", token_budget=1)
    running = 2 + openvino_graphs.AHEAD
    assert log.count("started") == log.count("cancelled") == running
    # The first has ended twice: it failed, and says so again.
    assert log.count("ended") == running + 1


def test_an_interrupt_leaves_no_request_running(faked: tuple[Encoder, list[str], list[bool]]) -> None:
    twin, log, _ = faked

    def stop(progress: Progress) -> None:
        if progress.done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        twin.encode(HARD, side="document", token_budget=1, on_progress=stop)
    # The second has ended, and its vectors were taken.
    assert log.count("started") <= log.count("ended")
    assert "started" not in log[log.index("cancelled") :]


def test_a_tower_that_cannot_be_traced_is_refused(tower: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: Any, **named: Any) -> None:
        raise TypeError("aten::odd is not supported\nmore lines")

    monkeypatch.setattr("openvino.convert_model", fail)
    with pytest.raises(ModelError, match="aten::odd is not supported") as caught:
        runtimes_of(tower, "document", ["fp32"])[0]
    assert "\n" not in str(caught.value)
