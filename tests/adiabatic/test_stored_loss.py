"""What tuning minimises, against peers, plain loops and whole matrices."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers.sentence_transformer.losses import TripletDistanceMetric, TripletLoss
from torch import Tensor, nn
from torch.nn import functional

from adiabat.adiabatic import stored_loss as objective_module
from adiabat.adiabatic.stored_loss import StoredDocuments, known_positives, pairs, pairs_of, store_softmax
from adiabat.core.ragged import Ragged
from adiabat.data.batch_sampler import ShuffledBatches
from adiabat.data.text_hashes import hash_texts
from adiabat.losses.embedded_pairs import Pairs
from adiabat.losses.in_batch import in_batch_softmax
from adiabat.models.bulk import embed_all, embed_rows
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.encoder import Encoder
from adiabat.store.addressing import AddressedSet
from adiabat.store.vector_store import Store
from tests.adiabatic.problem import addressed, objective_over, random_vectors, section, store_of
from tests.tiny import tiny_encoder

COUNT = 30
VECTORS = random_vectors(COUNT)
BATCH = 5
DISTANCES = ("cosine", "euclidean")


def drawn_set(name: str, queries: int, *, seed: int, most: int = 3) -> AddressedSet:
    """Queries with 1 to 3 positives and 1 to `most` negatives."""
    rng = np.random.default_rng(seed)
    rows = [rng.permutation(COUNT).tolist() for _ in range(queries)]
    near, far = (rng.integers(1, limit, size=queries).tolist() for limit in (4, most + 1))
    positives = [row[:count] for row, count in zip(rows, near, strict=True)]
    negatives = [row[first : first + count] for row, first, count in zip(rows, near, far, strict=True)]
    return addressed(positives, negatives, name=name)


TRAIN, VALIDATION = drawn_set("train", 12, seed=1), drawn_set("validation", 11, seed=2)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return store_of(tmp_path, VECTORS)


def objective_for(store: Store, **settings: Any) -> StoredDocuments:
    return objective_over(store, TRAIN, VALIDATION, section(batch_size=BATCH, **settings))


def picked_at(step: int) -> list[int]:
    return [int(row) for row in ShuffledBatches(len(TRAIN), BATCH, seed=0).rows(step)]


def query_vectors(objective: StoredDocuments, rows: list[int]) -> np.ndarray:
    with torch.no_grad():
        return embed_rows(objective.encoder, objective.tokens, np.array(rows)).double().numpy()


def loss_of(objective: StoredDocuments, step: int) -> float:
    return float(objective.loss(step).detach())


def validation_vectors(objective: StoredDocuments) -> np.ndarray:
    return embed_all(objective.encoder, objective.validation_tokens, token_budget=4096).double().numpy()


def apart(one: np.ndarray, other: np.ndarray, distance: str) -> float:
    if distance == "euclidean":
        return math.sqrt(sum((x - y) ** 2 for x, y in zip(one.tolist(), other.tolist(), strict=True)))
    return 1 - float(one @ other) / math.sqrt(float(one @ one)) / math.sqrt(float(other @ other))


def triplet_by_hand(
    queries: np.ndarray, examples: AddressedSet, rows: list[int], wanted: int, margin: float, distance: str
) -> float:
    losses = []
    for query, row in zip(queries, rows, strict=True):
        near = VECTORS[examples.positives[row][0]].astype(np.float64)
        listed = [VECTORS[row].astype(np.float64) for row in examples.negatives[row]]
        for number in range(wanted):
            far = listed[number % len(listed)]
            losses.append(max(0.0, apart(query, near, distance) - apart(query, far, distance) + margin))
    return sum(losses) / len(losses)


def cosines(query: np.ndarray, documents: Iterable[int]) -> list[float]:
    return [1 - apart(query, VECTORS[row].astype(np.float64), "cosine") for row in documents]


def softmax_by_hand(
    queries: np.ndarray, examples: AddressedSet, rows: list[int], *, wanted: int, temperature: float
) -> float:
    columns = [int(examples.positives[row][0]) for row in rows]
    columns += [int(document) for row in rows for document in examples.negatives[row][:wanted]]
    total = 0.0
    for place, (query, row) in enumerate(zip(queries, rows, strict=True)):
        known = set(examples.positives[row].tolist())
        scores = [score / temperature for score in cosines(query, columns)]
        kept = [
            score for column, score in enumerate(scores) if column == place or columns[column] not in known
        ]
        total += math.log(sum(math.exp(score) for score in kept)) - scores[place]
    return total / len(rows)


@pytest.mark.parametrize("wanted", [1, 3])
@pytest.mark.parametrize("distance", DISTANCES)
def test_the_triplet_loss_of_a_step_equals_plain_loops(store: Store, distance: str, wanted: int) -> None:
    objective, given = objective_for(store, distance=distance, margin=0.4, per_query=wanted), (0.4, distance)
    for step in range(4):
        rows = picked_at(step)
        expected = triplet_by_hand(query_vectors(objective, rows), TRAIN, rows, wanted, *given)
        assert loss_of(objective, step) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("distance", DISTANCES)
def test_triplet_loss_and_gradient_equal_those_of_sentence_transformers(store: Store, distance: str) -> None:
    objective = objective_for(store, distance=distance, margin=0.4)
    metric = getattr(TripletDistanceMetric, distance.upper())
    peer = TripletLoss(nn.Identity(), distance_metric=metric, triplet_margin=0.4)  # type: ignore[arg-type]
    rows = picked_at(2)
    query = embed_rows(objective.encoder, objective.tokens, np.array(rows))
    near, far = (
        torch.from_numpy(VECTORS[[lists[row][0] for row in rows]])
        for lists in (TRAIN.positives, TRAIN.negatives)
    )
    theirs = peer.compute_loss_from_embeddings([query, near, far], torch.empty(0))
    ours = objective.loss(2)
    assert float(ours.detach()) == pytest.approx(float(theirs.detach()), rel=1e-5)
    weights = list(objective.encoder.used_parameters().values())
    gradients = (torch.autograd.grad(loss, weights) for loss in (ours, theirs))
    for mine, other in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("wanted", [1, 3])
@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_the_softmax_of_a_step_equals_plain_loops_without_the_known_positives(
    store: Store, wanted: int, temperature: float
) -> None:
    objective = objective_for(store, loss="in_batch_softmax", temperature=temperature, per_query=wanted)
    for step in range(4):
        rows = picked_at(step)
        queries = query_vectors(objective, rows)
        expected = softmax_by_hand(queries, TRAIN, rows, wanted=wanted, temperature=temperature)
        assert loss_of(objective, step) == pytest.approx(expected, rel=1e-4)


def test_queries_of_one_document_are_no_negatives_of_each_other(store: Store) -> None:
    same = addressed([[4], [4], [4]], [[], [], []])
    objective = objective_over(store, same, VALIDATION, section(batch_size=3, loss="in_batch_softmax"))
    assert loss_of(objective, 0) == 0.0


def test_a_step_can_be_computed_alone_and_in_any_order(store: Store) -> None:
    first, second = (objective_for(store, negatives="random", per_query=2) for _ in range(2))
    forward = [loss_of(first, step) for step in range(6)]
    assert [loss_of(second, step) for step in reversed(range(6))] == forward[::-1]


@pytest.mark.parametrize("distance", DISTANCES)
def test_the_hardest_negatives_give_at_least_the_loss_of_any_others(store: Store, distance: str) -> None:
    losses = {
        source: loss_of(objective_for(store, negatives=source, distance=distance, margin=2.0), 0)
        for source in ("hardest", "random", "examples")
    }
    assert losses["hardest"] == max(losses.values())


@pytest.mark.parametrize("loss", ["triplet", "in_batch_softmax"])
def test_bf16_gives_nearly_the_same_losses_as_fp32(store: Store, loss: str) -> None:
    settings = section(batch_size=BATCH, loss=loss)
    exact, rounded = (
        objective_over(store, TRAIN, VALIDATION, settings, precision=precision)
        for precision in ("fp32", "bf16")
    )
    for step in range(3):
        one, other = loss_of(exact, step), loss_of(rounded, step)
        assert one != other
        assert other == pytest.approx(one, rel=0.05)
    assert exact.validate() == rounded.validate()  # validation is always in float32


# --- Validation ---


def errors_by_hand(queries: np.ndarray, distance: str) -> int:
    return sum(
        apart(query, VECTORS[near].astype(np.float64), distance)
        >= apart(query, VECTORS[far].astype(np.float64), distance)
        for row, query in enumerate(queries)
        for near in VALIDATION.positives[row]
        for far in VALIDATION.negatives[row]
    )


@pytest.mark.parametrize(
    ("loss", "distance"), [("triplet", "cosine"), ("triplet", "euclidean"), ("in_batch_softmax", "cosine")]
)
def test_validation_errors_equal_loops_over_all_pairs(store: Store, loss: str, distance: str) -> None:
    objective = objective_for(store, loss=loss, distance=distance)
    found = objective.validate()
    assert found.errors == errors_by_hand(validation_vectors(objective), distance)
    assert 0 < found.errors < found.pairs
    lengths = VALIDATION.positives.lengths * VALIDATION.negatives.lengths
    assert found.pairs == lengths.sum()


def test_ties_count_as_errors(tmp_path: Path) -> None:
    vectors = np.tile(random_vectors(1), (COUNT, 1))
    for distance in DISTANCES:
        found = objective_for(store_of(tmp_path / distance, vectors), distance=distance).validate()
        assert found.errors == found.pairs


@pytest.mark.parametrize("wanted", [1, 2, 5])
@pytest.mark.parametrize("distance", DISTANCES)
def test_the_validation_loss_for_triplets_is_the_training_loss_on_the_first_negatives(
    store: Store, distance: str, wanted: int
) -> None:
    objective = objective_for(store, distance=distance, margin=0.4, per_query=wanted)
    queries, rows = validation_vectors(objective), list(range(len(VALIDATION)))
    expected = triplet_by_hand(queries, VALIDATION, rows, wanted, 0.4, distance)
    assert objective.validate().loss == pytest.approx(expected, rel=1e-5)


def validation_rows() -> list[tuple[list[int], int]]:
    """Batches of 5, 5 and 1 of 11 queries by their hashes, of which the last is filled up from the one
    before.
    """
    order = sorted(range(len(VALIDATION)), key=lambda row: hash_texts([VALIDATION.queries[row]])[0])
    return [(order[:5], 5), (order[5:10], 5), (order[6:], 1)]


@pytest.mark.parametrize("loss", ["in_batch_softmax", "triplet", "store_softmax"])
def test_the_validation_loss_does_not_depend_on_the_order_of_the_queries(store: Store, loss: str) -> None:
    settings = section(batch_size=BATCH, loss=loss)
    whole = objective_over(store, TRAIN, VALIDATION, settings).validate().loss
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(VALIDATION))
        found = objective_over(store, TRAIN, VALIDATION.take(order), settings).validate().loss
        assert found == pytest.approx(whole, rel=1e-5)


@pytest.mark.parametrize("wanted", [1, 2, 5])
def test_validation_loss_of_the_softmax_is_over_batches_of_training_size(store: Store, wanted: int) -> None:
    objective = objective_for(store, loss="in_batch_softmax", temperature=0.3, per_query=wanted)
    queries, expected = validation_vectors(objective), 0.0
    for rows, weight in validation_rows():
        expected += weight * softmax_by_hand(queries[rows], VALIDATION, rows, wanted=wanted, temperature=0.3)
    assert objective.validate().loss == pytest.approx(expected / len(VALIDATION), rel=1e-5)


def test_the_softmax_takes_no_answer_of_the_same_question_in_another_row_for_a_negative(store: Store) -> None:
    examples = addressed([[0], [1], [2]], [[3], [4], [5]], answers=[[0, 1, 4], [0, 1], [2]])
    settings = section(batch_size=3, loss="in_batch_softmax", temperature=0.3)
    objective = objective_over(store, examples, examples, settings)
    whole = addressed([[0, 1, 4], [1, 0], [2]], [[3], [4], [5]])
    expected = softmax_by_hand(validation_vectors(objective), whole, [0, 1, 2], wanted=1, temperature=0.3)
    for found in (objective.validate().loss, loss_of(objective, 0)):
        assert found == pytest.approx(expected, rel=1e-5)


def test_the_validation_loss_goes_by_negatives_of_its_own_and_the_errors_do_not(store: Store) -> None:
    objective = objective_for(store, loss="in_batch_softmax", temperature=0.3)
    same = objective.validate()
    bare = replace(VALIDATION, negatives=Ragged.of([] for _ in range(len(VALIDATION))))
    objective.loss_negatives = bare.negatives
    queries, expected = validation_vectors(objective), 0.0
    for rows, weight in validation_rows():
        expected += weight * softmax_by_hand(queries[rows], bare, rows, wanted=1, temperature=0.3)
    found = objective.validate()
    assert found.loss == pytest.approx(expected / len(VALIDATION), rel=1e-5)
    assert found.loss < same.loss
    assert (found.errors, found.pairs) == (same.errors, same.pairs)


def test_validating_in_pieces_changes_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    objective = objective_for(store)
    whole = objective.validate()
    for name in ("VALIDATION_PAIRS", "VALIDATION_QUERIES"):
        monkeypatch.setattr(objective_module, name, 3)
        assert objective.validate() == whole
    monkeypatch.setattr(objective_module, "VALIDATION_TOKENS", 1)
    pieces = objective.validate()
    assert (pieces.errors, pieces.pairs) == (whole.errors, whole.pairs)
    assert pieces.loss == pytest.approx(whole.loss, rel=1e-6)


def test_validation_does_not_depend_on_the_training_before_it(store: Store) -> None:
    objective = objective_for(store, negatives="random")
    first = objective.validate()
    for step in (5, 0, 17):
        objective.loss(step)
    assert objective.validate() == first
    assert objective_for(store, negatives="examples", per_query=1).validate() == first


def modes(encoder: Encoder) -> list[bool]:
    return [module.training for module in encoder.modules()]


@pytest.mark.parametrize("dropout", [False, True])
def test_validation_is_without_dropout_and_leaves_modules_in_their_mode(store: Store, dropout: bool) -> None:
    objective = objective_for(store)
    quiet = objective.validate()
    objective.encoder.train(dropout)
    objective.encoder.backbone.get_submodule("embeddings").train(not dropout)
    before = modes(objective.encoder)
    assert objective.validate() == quiet
    assert modes(objective.encoder) == before


def test_a_validation_that_fails_leaves_the_modes_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object, **named: object) -> None:
        raise RuntimeError("broken")

    objective = objective_for(store)
    objective.encoder.train()
    monkeypatch.setattr(objective_module, "embed_all", broken)
    with pytest.raises(RuntimeError, match="broken"):
        objective.validate()
    assert all(modes(objective.encoder))


# --- Pieces ---


def test_pairs_are_every_positive_with_every_negative_of_the_same_query() -> None:
    query, near, far = pairs(Ragged.of([[1, 2], [3], [4]]), Ragged.of([[5, 6], [], [7]]))
    rows = list(zip(query.tolist(), near.tolist(), far.tolist(), strict=True))
    assert rows == [(0, 1, 5), (0, 1, 6), (0, 2, 5), (0, 2, 6), (2, 4, 7)]
    assert pairs_of(addressed([[1, 2], [3], [4]], [[5, 6], [], [7]])) == 5


def test_a_document_that_answers_a_query_is_known_wherever_it_stands() -> None:
    known = known_positives(Ragged.of([[7, 9], [8], [9]]), np.array([7, 8, 9, 9, 7, 3]))
    assert known.tolist() == [
        [True, False, True, True, True, False],
        [False, True, False, False, False, False],
        [False, False, True, True, False, False],
    ]


def test_only_the_query_tower_is_the_module_and_the_store_is_only_read(store: Store) -> None:
    encoder = tiny_encoder(width=16, settings=EncoderSettings(max_tokens=64))
    objective = objective_over(store, TRAIN, VALIDATION, section(batch_size=BATCH), encoder=encoder)
    before = store.gather(range(COUNT))
    objective.loss(0).backward()  # type: ignore[no-untyped-call]
    objective.validate()
    assert objective.module is encoder
    assert np.array_equal(store.gather(range(COUNT)), before)


def store_softmax_by_hand(
    queries: np.ndarray, examples: AddressedSet, rows: Iterable[int], *, temperature: float
) -> float:
    losses = []
    for query, row in zip(queries, rows, strict=True):
        scores = [score / temperature for score in cosines(query, range(COUNT))]
        own, known = scores[int(examples.positives[row][0])], set(examples.known[row].tolist())
        others = sum(math.exp(score) for document, score in enumerate(scores) if document not in known)
        losses.append(math.log(math.exp(own) + others) - own)
    return sum(losses) / len(losses)


def test_the_softmax_over_the_store_is_that_of_plain_loops_in_training_and_validation(store: Store) -> None:
    objective = objective_for(store, loss="store_softmax", temperature=0.1)
    for step in range(3):
        rows = picked_at(step)
        expected = store_softmax_by_hand(query_vectors(objective, rows), TRAIN, rows, temperature=0.1)
        assert loss_of(objective, step) == pytest.approx(expected, rel=1e-4)
    queries, rows = validation_vectors(objective), range(len(VALIDATION))
    expected = store_softmax_by_hand(queries, VALIDATION, rows, temperature=0.1)
    assert objective.validate().loss == pytest.approx(expected, rel=1e-4)


# --- The softmax over a whole store, against the whole matrix of scores ---
KNOWN = [[3], [0, 7], [5, 2, 9], [3]]


def drawn(*shape: int, seed: int = 0, length: float = 1.0) -> Tensor:
    return length * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def softmax(
    query: Tensor, documents: Tensor, known: list[list[int]] = KNOWN, *, rows: int = 3, **options: float
) -> Tensor:
    """Over the documents in blocks of so many rows; the first known one is the positive."""

    def blocks() -> Iterator[tuple[int, Tensor]]:
        yield from ((start, documents[start : start + rows]) for start in range(0, len(documents), rows))

    positives = documents[[one[0] for one in known]]
    return store_softmax(query, positives, Ragged.of(known), blocks, **options)


def whole(query: Tensor, documents: Tensor, temperature: float, hardness: float = 0.0) -> Tensor:
    """Of the matrix of all scores, in 64 bits."""
    cosines = functional.normalize(query.double(), dim=1) @ functional.normalize(documents.double(), dim=1).T
    weights = torch.exp(hardness * cosines.detach())
    for row, known in enumerate(KNOWN):
        weights[row, known[0]] = 1.0
    scores = cosines / temperature + torch.log(weights)
    for row, known in enumerate(KNOWN):
        scores[row, known[1:]] = -math.inf
    return functional.cross_entropy(scores, torch.tensor([known[0] for known in KNOWN]))


@pytest.mark.parametrize("rows", [1, 4, 10, 4096])
@pytest.mark.parametrize("temperature", [0.02, 1.0])
@pytest.mark.parametrize("hardness", [0.0, 3.0])
def test_loss_and_gradient_are_those_of_the_whole_matrix(
    rows: int, temperature: float, hardness: float
) -> None:
    query, documents = drawn(4, 8, length=3.0).requires_grad_(), drawn(10, 8, seed=1, length=0.2)
    ours = softmax(query, documents, rows=rows, temperature=temperature, hardness=hardness)
    theirs = whole(query, documents, temperature, hardness)
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-5)
    mine, other = (torch.autograd.grad(loss, query)[0] for loss in (ours, theirs))
    torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-6)


def test_the_softmax_over_a_store_by_hand() -> None:
    documents = torch.tensor([[1.0, 0.0], [0.0, 2.0], [-1.0, 0.0]])
    query = torch.tensor([[3.0, 0.0]])
    found = softmax(query, documents, [[0]], rows=2, temperature=0.5)
    assert found.item() == pytest.approx(math.log(1 + math.exp(-2) + math.exp(-4)), rel=1e-6)


def test_it_is_the_softmax_of_a_batch_whose_negatives_are_the_rest_of_the_store() -> None:
    query, documents = drawn(1, 8), drawn(10, 8, seed=1)
    pairs = Pairs(query, documents[3:4], shared=documents[[row for row in range(10) if row != 3]]).unit()
    found = softmax(query, documents, [[3]], rows=4, temperature=0.1)
    assert found.item() == pytest.approx(in_batch_softmax(pairs, temperature=0.1).item(), rel=1e-5)


def test_a_store_of_one_document_teaches_nothing() -> None:
    query, documents = drawn(2, 8).requires_grad_(), drawn(1, 8, seed=1)
    loss = softmax(query, documents, [[0], [0]], temperature=0.05)
    assert loss.item() == 0.0
    assert torch.autograd.grad(loss, query)[0].abs().max() < 1e-6


def test_copies_of_the_answer_are_ties_and_a_vector_of_zeros_is_no_fault() -> None:
    documents = torch.tensor([[1.0, 1.0], [2.0, 2.0], [0.0, 0.0]])
    query = torch.tensor([[1.0, 1.0]], requires_grad=True)
    loss = softmax(query, documents, [[0]], temperature=1.0)
    assert loss.item() == pytest.approx(math.log(2 + math.exp(-1)), rel=1e-6)
    assert torch.isfinite(torch.autograd.grad(loss, query)[0]).all()


def test_the_smallest_temperatures_overflow_nothing() -> None:
    query, documents = drawn(4, 8).requires_grad_(), drawn(10, 8, seed=1)
    loss = softmax(query, documents, temperature=1e-6)
    assert loss.item() == pytest.approx(whole(query, documents, 1e-6).item(), rel=1e-5)
    assert torch.isfinite(torch.autograd.grad(loss, query)[0]).all()


def test_the_gradient_is_the_slope() -> None:
    query, documents = drawn(4, 8).double().requires_grad_(), drawn(10, 8, seed=1)

    def loss(asked: Tensor) -> Tensor:
        return whole(asked, documents, 0.3)

    assert torch.autograd.gradcheck(loss, (query,))
    ours = softmax(query.float(), documents, temperature=0.3)
    slope = torch.autograd.grad(loss(query), query)[0].float()
    torch.testing.assert_close(torch.autograd.grad(ours, query)[0].float(), slope, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_a_temperature_is_above_0(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature must be > 0"):
        softmax(drawn(1, 8), drawn(3, 8), [[0]], temperature=temperature)


def test_an_answer_that_is_named_twice_counts_once() -> None:
    documents, query = drawn(5, 8), drawn(1, 8, seed=1)
    one, twice = (softmax(query, documents, [rows], rows=2, temperature=0.1) for rows in ([1], [1, 1]))
    assert torch.equal(one, twice)
    assert np.isfinite(one.item())
