"""The loss and the gradient of a step against plain passes, and validation against loops."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from adiabat.data.batch_sampler import ShuffledBatches
from adiabat.data.pair_sets import PairSet
from adiabat.dual_encoder.batches import Batch, draw_batch
from adiabat.dual_encoder.contrastive_objective import PairContrast
from adiabat.losses.embedded_pairs import Guide, Pairs, unit_rows
from adiabat.losses.in_batch import in_batch_softmax, pair, samtone, triplet_margin
from adiabat.losses.log_denominator import COLDEST
from adiabat.models.encoder import Encoder
from tests.dual_encoder.problem import (
    HELD_OUT,
    ROWS,
    at_temperature,
    both_sets,
    is_triplet,
    objective_of,
    plain,
)

T = 0.3
SOFTMAX = partial(in_batch_softmax, temperature=T, symmetric=True)

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "SDE": {},
    "SDE with a projection": {"projection_width": 7},
    "ADE": {"kind": "asymmetric"},
    "ADE with a projection each": {"kind": "asymmetric", "projection_width": 7},
    "ADE-SPL": {"kind": "shared_projection", "projection_width": 7},
    "ADE with frozen documents": {"kind": "asymmetric", "frozen": "document"},
    "ADE with frozen queries": {"kind": "asymmetric", "frozen": "query", "document_model": "other"},
}

# What is set beside the temperature, and what is then computed from a batch of unit vectors.
LOSSES: dict[str, tuple[dict[str, Any], Callable[[Pairs], Tensor]]] = {
    "softmax": ({}, SOFTMAX),
    "softmax one way, negatives of their own": (
        {"loss": {"symmetric": False, "negatives_shared": False, "negatives_per_query": 2}},
        partial(in_batch_softmax, temperature=T),
    ),
    "softmax without negatives": ({"negatives_per_query": 0, "margin": 0.2}, partial(SOFTMAX, margin=0.2)),
    "samtone": (
        {"loss": {"kind": "samtone", "same_tower": "both", "negatives_per_query": 3}},
        partial(samtone, temperature=T, side="both"),
    ),
    "pair": (
        {"loss": {"kind": "pair", "weight": 0.3}},
        partial(pair, temperature=T, weight=0.3, symmetric=True),
    ),
}


def objective_with(train: dict[str, Any] | None = None, **tables: Any) -> PairContrast:
    return objective_of(train=at_temperature(T, train), **tables)


def value(loss: Tensor) -> float:
    return float(loss.detach())


def drawn(objective: PairContrast, step: int) -> Batch:
    """The batch of a step, drawn as `test_batches` has tested it."""
    section, seed = objective.settings.train, objective.settings.run.seed
    picked = ShuffledBatches(len(objective.train), section.batch_size, seed=seed).rows(step)
    return draw_batch(objective.train, picked, section, seed=seed, step=step)


def named(objective: PairContrast, batch: Batch) -> tuple[list[str], list[str], list[str], list[str]]:
    """Texts of a batch, place by place."""
    texts = objective.train.texts
    query = [texts.queries[row] for row in batch.query]
    positive, shared, own = (
        [texts.documents[row] for row in rows.ravel()] for rows in (batch.positive, batch.shared, batch.own)
    )
    return query, positive, shared, own


def pairs_by_hand(objective: PairContrast, batch: Batch) -> Pairs:
    """Every place of the batch passed by itself through its tower; keys are numbers of texts, answers those
    of the rows.
    """
    query, positive, shared, own = named(objective, batch)
    number = {text: key for key, text in enumerate(dict.fromkeys([*query, *positive, *shared, *own]))}
    rows = (*ROWS, *HELD_OUT)
    answered = []
    for one in query:
        nearby = [near for asked, positives, _ in rows if asked == one for near in positives]
        answered.append([number[near] for near in nearby if near in number])
    most = max(map(len, answered))
    embedded = partial(plain, objective.towers.document, side="document")
    return Pairs(
        plain(objective.towers.query, query, "query"),
        embedded(positive),
        shared=embedded(shared) if shared else None,
        own=embedded(own).reshape(*batch.own.shape, -1) if own else None,
        query_keys=torch.tensor([number[one] for one in query]),
        positive_keys=torch.tensor([number[one] for one in positive]),
        shared_keys=torch.tensor([number[one] for one in shared]) if shared else None,
        own_keys=torch.tensor([number[one] for one in own]).reshape(batch.own.shape) if own else None,
        answer_keys=torch.tensor([(keys * most)[:most] for keys in answered]),
    )


def of_unit(loss: Callable[[Pairs], Tensor]) -> Callable[[Pairs], Tensor]:
    return lambda pairs: loss(pairs.unit())


def gradients(objective: PairContrast, loss: Tensor) -> dict[str, Tensor]:
    """Of all parameters that have one; they have none afterwards."""
    objective.module.zero_grad()
    torch.autograd.backward(loss)
    named = objective.module.named_parameters()
    found = {name: weights.grad for name, weights in named if weights.grad is not None}
    objective.module.zero_grad()
    return found


def require_close(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    assert found.keys() == wanted.keys()
    assert found
    for name, gradient in wanted.items():
        told = partial("{}: {}".format, name)
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-5, msg=told)


# --- One step ---


def check_step(
    objective: PairContrast, step: int, loss: Callable[[Pairs], Tensor], *, threads: int = 1
) -> None:
    """Loss and gradient are those of plain passes."""
    expected = loss(pairs_by_hand(objective, drawn(objective, step)))
    wanted = gradients(objective, expected)
    torch.set_num_threads(threads)
    with objective.passing():
        found = objective.loss(step)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
        require_close(gradients(objective, found), wanted)
    torch.set_num_threads(1)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_loss_and_gradient_of_a_step_are_those_of_plain_passes(architecture: str) -> None:
    objective = objective_with(towers=ARCHITECTURES[architecture])
    for step in range(2):
        check_step(objective, step, of_unit(SOFTMAX), threads=1 + step)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("architecture", ["SDE", "ADE-SPL"])
def test_every_loss_is_that_of_plain_passes(name: str, architecture: str) -> None:
    settings, loss = LOSSES[name]
    check_step(objective_with(settings, towers=ARCHITECTURES[architecture]), 3, of_unit(loss))


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_triplets_are_those_of_plain_passes(distance: Any) -> None:
    loss = {"kind": "triplet", "distance": distance, "margin": 0.4, "negatives_per_query": 3}
    train, validation = (listing_negatives(pairs) for pairs in both_sets())
    objective = objective_with(
        {"loss": loss, "batch_size": 4}, towers=ARCHITECTURES["ADE"], sets=(train, validation)
    )
    expected = partial(triplet_margin, margin=0.4, distance=distance)
    check_step(objective, 1, lambda pairs: expected(pairs.query, pairs.positive, pairs.own))


def listing_negatives(pairs: PairSet) -> PairSet:
    """Those pairs whose queries list a negative."""
    return pairs.subset(pairs.negatives.lengths[pairs.query] > 0)


def test_products_are_of_the_vectors_as_they_are() -> None:
    objective = objective_with({"similarity": "dot", "temperature": 4.0})
    check_step(objective, 0, partial(in_batch_softmax, temperature=4.0, symmetric=True))


@pytest.mark.parametrize("seen_by", ["all", "own"])
def test_another_model_judges_by_the_cosine_of_its_own_vectors(seen_by: str) -> None:
    guide = {"model": "other", "margin": 0.05}
    loss = {"negatives_shared": seen_by == "all", "negatives_per_query": 2, "guide": guide}
    objective = objective_with({"loss": loss})
    query, positive, shared, own = named(objective, drawn(objective, 2))

    def judged(texts: list[str], side: Any) -> Tensor:
        return unit_rows(torch.from_numpy(objective.guide.encode(texts, side=side)))

    far = judged([*shared, *own], "document")
    further = {"shared": far} if seen_by == "all" else {"own": far.reshape(len(query), 2, -1)}
    opinion = Guide(judged(query, "query"), judged(positive, "document"), margin=0.05, **further)
    check_step(objective, 2, lambda pairs: SOFTMAX(replace(pairs.unit(), guide=opinion)))
    unguided = SOFTMAX(pairs_by_hand(objective, drawn(objective, 2)).unit())
    assert value(objective.loss(2)) != pytest.approx(value(unguided), rel=1e-4)


def test_a_step_follows_from_its_number_and_dropout_from_the_global_random_numbers_alone() -> None:
    first, second = (objective_with({"negatives_per_query": 2}) for _ in range(2))
    forward = [value(first.loss(step)) for step in range(6)]
    assert [value(second.loss(step)) for step in reversed(range(6))] == forward[::-1]
    assert len(set(forward)) == 6
    dropping, losses = objective_with({"dropout": True}), []
    for seed in (5, 6, 5):
        torch.manual_seed(seed)
        losses.append(value(dropping.loss(0)))
    assert losses[0] == losses[2] != losses[1]


def test_a_text_that_stands_in_the_batch_twice_passes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    objective = objective_with({"loss": {"negatives_per_query": 3}, "batch_size": 12})
    passed: list[int] = []
    collate = Encoder.collate

    def noting(self: Encoder, token_ids: Any, **options: Any) -> Any:
        passed.append(len(token_ids))
        return collate(self, token_ids, **options)

    monkeypatch.setattr(Encoder, "collate", noting)
    objective.loss(0)
    query, *documents = named(objective, drawn(objective, 0))
    assert sum(passed) == len(set(query)) + len({text for texts in documents for text in texts})
    assert sum(passed) < len(query) + sum(map(len, documents))


@pytest.mark.parametrize(("frozen", "trained"), [("document", "query"), ("query", "document")])
def test_a_frozen_tower_gets_no_gradient_and_is_not_tokenised_for_training(frozen: str, trained: str) -> None:
    objective = objective_with(towers={"kind": "asymmetric", "frozen": frozen})
    for step in range(3):
        assert {name.split(".")[0] for name in gradients(objective, objective.loss(step))} == {trained}
    assert list(objective.tables) == [trained]


# --- Passing in chunks ---

EVERY_LOSS: dict[str, dict[str, Any]] = {
    **{name: settings for name, (settings, _) in LOSSES.items()},
    "samtone of documents": {"loss": {"kind": "samtone", "same_tower": "document"}},
    "pair as printed": {"loss": {"kind": "pair", "printed": True}},
    "its own guide": {"loss": {"guide": {"model": "self", "margin": 0.1}}},
    "another guide": {"loss": {"guide": "other"}},
    "several widths": {"matryoshka": (4, 8), "negatives_per_query": 2},
    "triplets": {"loss": {"kind": "triplet", "negatives_per_query": 2}, "batch_size": 4},
}


def step_with(memory: dict[str, Any], settings: dict[str, Any]) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradients of a step under dropout, with a temperature that is learned."""
    learned = {} if is_triplet(settings) else {"temperature": {"kind": "learned", "value": T}}
    train, validation = both_sets()
    sets = (listing_negatives(train), validation) if is_triplet(settings) else (train, validation)
    regime, towers = {**learned, **settings, "dropout": True}, {"kind": "shared_projection"}
    objective = objective_with(regime, memory=memory, towers=towers, sets=sets)
    torch.manual_seed(11)
    with objective.passing():
        loss = objective.loss(1)
        found = gradients(objective, loss)
    assert ("temperature.log_factor" in found) == bool(learned)
    return value(loss), found


@pytest.mark.parametrize("name", EVERY_LOSS)
@pytest.mark.parametrize("tokens", [None, 60])
def test_caching_checkpointing_and_tiles_change_nothing_under_dropout(name: str, tokens: int | None) -> None:
    cut = {} if tokens is None else {"chunk_tokens": tokens}
    tiled = {} if is_triplet(EVERY_LOSS[name]) else {"loss_tile": 2}
    plain_loss, wanted = step_with(cut, EVERY_LOSS[name])
    for sparing in ({"cached": True}, {"cached": True, "checkpointing": True, **tiled}):
        loss, found = step_with({**cut, **sparing}, EVERY_LOSS[name])
        assert loss == pytest.approx(plain_loss, rel=1e-5)
        require_close(found, wanted)


# --- Temperature ---


def test_a_temperature_is_fixed_scheduled_or_learned() -> None:
    assert objective_with().temperature(7) == T
    cooling = {"kind": "scheduled", "first": 1.0, "steps": 6, "value": 0.25}
    scheduled = objective_with({"loss": {"temperature": cooling}})
    # The inverse grows from 1 to 4.
    assert [scheduled.temperature(step) for step in (0, 2, 6, 9)] == pytest.approx([1.0, 1 / 2, 1 / 4, 1 / 4])
    fixed = objective_with({"temperature": 0.5})
    assert value(scheduled.loss(2)) == pytest.approx(value(fixed.loss(2)), rel=1e-6)


def test_a_learned_temperature_is_told_to_the_log_within_its_range() -> None:
    objective = objective_with({"temperature": {"kind": "learned", "value": T}})
    assert float(objective.temperature(0).detach()) == pytest.approx(T)
    assert objective.figures() == {"temperature": pytest.approx(T)}
    log_factor = dict(objective.module.named_parameters())["temperature.log_factor"]
    with torch.no_grad():
        log_factor.fill_(9.0)
    assert objective.figures() == {"temperature": pytest.approx(COLDEST)}
    assert float(log_factor.detach()) == pytest.approx(-np.log(COLDEST))
    assert objective_with().figures() == {}


# --- What is told of a step ---


def test_a_step_names_its_queries_and_counts_its_tokens() -> None:
    objective = objective_with({"negatives_per_query": 2})
    batch = drawn(objective, 4)
    query, *documents = named(objective, batch)
    first = {asked: f"set {number}" for number, (asked, _, _) in reversed(list(enumerate(ROWS)))}
    assert objective.batch_ids(4) == [first[one] for one in query]
    tower = objective.towers.query
    distinct = {"query": {*query}, "document": {text for texts in documents for text in texts}}
    tokens = {side: tower.tokenize(sorted(texts), side=side).values.size for side, texts in distinct.items()}
    assert objective.tokens_of(4) == tokens
    assert list(objective_with(towers=ARCHITECTURES["ADE with frozen documents"]).tokens_of(0)) == ["query"]
