"""Steps with inputs of fixed shapes: recorded and replayed as a GPU does, they are the steps of a CPU up to
rounding.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from adiabat.adiabatic.fixed_steps import FixedSteps, among, filled
from adiabat.adiabatic.regularization import Rehearsal
from adiabat.adiabatic.stored_loss import StoredDocuments
from adiabat.adiabatic.tuning_loop import captured_steps, optimizer_of
from adiabat.config.training_choices import Method
from adiabat.core.ragged import Ragged
from adiabat.models.adapters import train_part
from adiabat.models.bulk import TokenTable, embed_all
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.encoder import Encoder
from adiabat.models.freezing import freeze
from adiabat.store.device_store import DeviceStore
from adiabat.store.scoring import Block
from adiabat.store.vector_store import Store
from tests.adiabatic.problem import addressed, objective_over, random_vectors, section, store_of
from tests.architectures import tiny_architecture
from tests.tiny import tiny_encoder
from tests.training.emulated_graphs import EmulatedGraphs, Repeats, recording

STEPS, RATE = 4, 1e-2
WIDTH, DOCUMENTS, QUERIES = 32, 40, 12
POSITIVES = [
    [(3 * number) % DOCUMENTS] + [(5 * number + 1) % DOCUMENTS] * (number % 3 == 0)
    for number in range(QUERIES)
]
LISTED = [[(3 * number + more) % DOCUMENTS for more in range(7, 8 + number % 4)] for number in range(QUERIES)]
"""One to four negatives."""
BARE = [[] if number % 3 == 1 else listed for number, listed in enumerate(LISTED)]
ENCODER = EncoderSettings(max_tokens=64, normalize=False)


@dataclass(frozen=True)
class Case:
    """Settings of `tune`, and what else a run may differ in."""

    settings: Mapping[str, Any]
    negatives: list[list[int]] | None = None
    rehearsed: bool = False
    family: str = "bert"
    prepare: Callable[[Encoder], object] = lambda encoder: freeze(encoder.backbone, ("embeddings",))
    encoder: EncoderSettings = ENCODER
    precision: Any = "fp32"
    free_memory: int = 1 << 40


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return store_of(tmp_path_factory.mktemp("store"), random_vectors(DOCUMENTS, width=WIDTH))


def objective_of(store: Store, case: Case) -> StoredDocuments:
    tower = tiny_encoder(width=WIDTH, settings=case.encoder)
    if case.family != "bert":
        tower = Encoder(tiny_architecture(case.family), tower.tokenizer, case.encoder).eval()
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        case.prepare(tower)
    # One query is long: batches with it are padded to another length.
    texts = [f"query {'word ' * (8 if number == 3 else number % 3)}{number}" for number in range(QUERIES)]
    scores = [{row: float((7 * row + number) % 11) for row in range(DOCUMENTS)} for number in range(QUERIES)]
    train = replace(addressed(POSITIVES, case.negatives, name="train"), queries=texts, scores=scores)
    # Other optimizers scale up a gradient that is 0 but for rounding.
    settings = section(**{"batch_size": 5, "learning_rate": RATE, "optimizer": "sgd", **case.settings})
    # Opened anew, since a device keeps the vectors with the store.
    anew = Store.open(store)
    objective = objective_over(anew, train, train, settings, encoder=tower, precision=case.precision)
    if case.rehearsed:
        texts = [f"taught {'longer ' * (number % 3)}{number}" for number in range(7)]
        taught = TokenTable.of(tower, texts, side="query")
        vectors = embed_all(tower, taught, token_budget=4096) + 0.1
        objective.rehearsal = Rehearsal(taught, vectors, 0.5, 3, seed=1)
    return objective


Taken = tuple[list[float], dict[str, Tensor]]
"""Losses and weights of some steps."""


def eager_steps(objective: StoredDocuments) -> Taken:
    optimizer, losses = optimizer_of(objective.module, objective.settings), []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = RATE / (1 + step)
        loss = objective.loss(step)
        torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses, weights_of(objective)


def replayed_steps(
    objective: StoredDocuments, recorder: type[EmulatedGraphs], free_memory: int
) -> tuple[Taken, int]:
    with recording(recorder, free_memory=free_memory) as graphs:
        steps = captured_steps(objective, optimizer_of(objective.module, objective.settings))
        assert steps is not None, objective.capture.note
        losses = [float(steps.take(step, RATE / (1 + step))) for step in range(STEPS)]
        assert steps.fault() is None
        steps.close()
        return (losses, weights_of(objective)), graphs.recorded


def weights_of(objective: StoredDocuments) -> dict[str, Tensor]:
    # The softmax ignores the bias of keys, whose gradient is 0 but for rounding.
    named = objective.module.named_parameters()
    return {name: weights.detach().clone() for name, weights in named if not name.endswith("key.bias")}


def lora(encoder: Encoder) -> None:
    train_part(encoder.backbone, Method(kind="lora", rank=4))


SOFTMAX: dict[str, Any] = {"kind": "in_batch_softmax", "temperature": 0.5}
WHOLE: dict[str, Any] = {"kind": "store_softmax", "temperature": 0.5}
RANDOM: dict[str, Any] = {"kind": "random", "per_query": 2}
HARDEST: dict[str, Any] = {"kind": "hardest", "per_query": 2}

SEVERAL: dict[str, Any] = {"kind": "examples", "per_query": 3}
BY_DISTANCE: dict[str, Any] = {"kind": "triplet", "distance": "euclidean"}
LISTWISE: dict[str, Any] = {"kind": "listwise", "temperature": 0.5, "teacher_temperature": 2.0}
LISTING: dict[str, Any] = {"margin": 0.5}
DECODER = EncoderSettings(max_tokens=64, pooling="last")
NOT_POOLED = EncoderSettings(max_tokens=50, query_prompt="ask: ", pool_prompt=False)

CASES = {
    "triplet": Case(LISTING, LISTED),
    "triplet of several": Case(LISTING | {"negatives": SEVERAL}, LISTED, rehearsed=True),
    "triplet, some search": Case(LISTING | {"negatives": SEVERAL | {"per_query": 2}}, BARE),
    "triplet, random, dot": Case({"loss": {"kind": "triplet", "distance": "dot"}, "negatives": RANDOM}),
    "triplet, hardest": Case(LISTING | {"negatives": HARDEST}, rehearsed=True),
    "triplet, hardest by distance": Case({"loss": BY_DISTANCE, "negatives": HARDEST}),
    "softmax": Case({"loss": SOFTMAX, "negatives": SEVERAL}, LISTED),
    "softmax without negatives": Case({"loss": SOFTMAX | {"distance": "dot"}}),
    "softmax, hardest": Case({"loss": SOFTMAX, "negatives": HARDEST}, rehearsed=True),
    "whole store": Case({"loss": WHOLE}, rehearsed=True),
    "listwise": Case({"loss": LISTWISE, "negatives": SEVERAL}, LISTED, rehearsed=True),
    "margins of a teacher": Case({"loss": LISTWISE | {"objective": "margin_mse"}}, LISTED, free_memory=0),
    "whole store, weighted": Case({"loss": WHOLE | {"hardness": 3.0}}),
    "softmax, weighted": Case({"loss": SOFTMAX | {"hardness": 3.0}, "negatives": SEVERAL}, LISTED),
    "store on disk": Case(LISTING, LISTED, free_memory=0),
    "adamw": Case(LISTING | {"optimizer": "adamw"}, LISTED),
    "adamax": Case(LISTING | {"optimizer": "adamax", "weight_decay": 0.1}, LISTED),
    "adamax without momentum": Case(LISTING | {"optimizer": "adamax-no-momentum"}, LISTED),
    "adadelta": Case(LISTING | {"optimizer": "adadelta"}, LISTED),
    "sgd with regularization": Case(LISTING | {"weight_decay": 0.1, "l2_to_start": 0.3}, LISTED),
    "everything trained": Case(LISTING, LISTED, prepare=lambda encoder: None),
    "adapters": Case(LISTING, LISTED, prepare=lora),
    "bf16": Case(LISTING, LISTED, precision="bf16"),
    "decoder": Case(LISTING, LISTED, family="llama", encoder=DECODER),
    "relative positions": Case(LISTING, LISTED, family="t5"),
    "sliding windows": Case(LISTING, LISTED, family="gemma3"),
    "prompt that is not pooled": Case(LISTING, LISTED, encoder=NOT_POOLED),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_recorded_step_is_an_eager_one_up_to_rounding(store: Store, case: Case) -> None:
    eager, eager_weights = eager_steps(objective_of(store, case))
    (losses, weights), recorded = replayed_steps(objective_of(store, case), EmulatedGraphs, case.free_memory)
    assert recorded == 2, "texts of up to 32, and of up to 64 tokens"
    rounding = 1e-5 if case.precision == "fp32" else 0.05
    assert losses == pytest.approx(eager, rel=rounding, abs=rounding)
    apart = {name: (weights[name] - before).abs() for name, before in eager_weights.items()}
    assert max(float(difference.mean()) for difference in apart.values()) < rounding / 10
    if case.settings.get("optimizer", "sgd") == "sgd":
        assert max(float(difference.max()) for difference in apart.values()) < rounding


ELSEWHERE = torch.device("meta")
"""Its tensors have no numbers: what asks for one fails, and so does what mixes them with those of a CPU."""


@pytest.mark.parametrize(
    "name",
    ["triplet of several", "triplet, some search", "softmax, hardest", "whole store", "decoder", "listwise"],
)
def test_nothing_of_a_step_lies_on_the_cpu(store: Store, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    objective = objective_of(store, CASES[name])
    objective.encoder.to(ELSEWHERE)
    vectors = torch.empty(DOCUMENTS, WIDTH, device=ELSEWHERE)
    steps = FixedSteps(objective, DeviceStore(Block(0, vectors, vectors[:, 0])))
    # It is not defined there.
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    with recording():
        inputs = {name: torch.from_numpy(array).to(ELSEWHERE) for name, array in steps.inputs(0).items()}
        loss = steps.loss(inputs)
    torch.autograd.backward(loss)
    assert loss.device == ELSEWHERE


@pytest.mark.parametrize("name", ["triplet, some search", "softmax, hardest", "adamax"])
def test_a_replayed_step_is_the_same_step_taken_again_bit_for_bit(store: Store, name: str) -> None:
    (losses, weights), (losses_again, weights_again) = (
        replayed_steps(objective_of(store, CASES[name]), way, CASES[name].free_memory)[0]
        for way in (EmulatedGraphs, Repeats)
    )
    assert losses == losses_again
    assert all(torch.equal(weights[name], again) for name, again in weights_again.items())


def test_lists_are_filled_up_in_order_and_looked_up() -> None:
    known = filled(Ragged.of([[7, 2], [4]]), 3)
    assert known.tolist() == [[2, 2, 7], [4, 4, 4]]
    found = among(torch.from_numpy(known), torch.tensor([2, 4, 7, 9, -1]))
    assert found.tolist() == [[True, False, True, False, False], [False, True, False, False, False]]


@pytest.mark.parametrize(
    ("longest", "length"), [(1, 16), (16, 16), (17, 32), (65, 128), (129, 200), (200, 200)]
)
def test_a_batch_is_padded_to_a_power_of_two_or_to_the_limit_of_the_tower(
    store: Store, longest: int, length: int
) -> None:
    case = Case({"margin": 0.5}, LISTED, encoder=replace(ENCODER, max_tokens=200))
    objective = objective_of(store, case)
    # The tokenizer takes a token for each letter and two around them.
    texts = ["a" * max(longest - 2, 0)] * QUERIES
    objective.tokens = TokenTable.of(objective.encoder, texts, side="query")
    if longest < 3:
        objective.tokens = TokenTable(np.zeros(QUERIES, dtype=np.int32), np.arange(QUERIES + 1), "query")
    assert FixedSteps(objective, None).inputs(0)["ids"].shape == (5, length)


def test_vectors_that_a_thread_reads_ahead_are_those_of_their_step(store: Store) -> None:
    case = Case({"loss": SOFTMAX, "negatives": RANDOM}, free_memory=0)
    ahead, at_once = (FixedSteps(objective_of(store, case), None) for _ in range(2))
    # A run that is resumed, or repeats a step, asks for any step.
    for step in (0, 1, 2, 9, 10, 3):
        made, expected = ahead.inputs(step), at_once._inputs(step)
        assert made.keys() == expected.keys()
        assert all(np.array_equal(made[name], array) for name, array in expected.items())
    assert np.array_equal(made["positive_vectors"], random_vectors(DOCUMENTS, width=WIDTH)[made["positives"]])
    ahead.close()
    at_once.close()


def test_the_cost_of_a_step_counts_its_padding(store: Store) -> None:
    objective = objective_of(store, CASES["triplet"])
    steps = FixedSteps(objective, None)
    passes = [step for step in range(8) if 3 in objective.sampler.rows(step)]
    long, short = passes[0], next(step for step in range(8) if step not in passes)
    # The projections of 5 x 64 tokens take twice those of 5 x 32, and attention more.
    assert steps.cost(long).operations > 2 * steps.cost(short).operations
    assert steps.cost(long).flops == objective.cost(long).flops
