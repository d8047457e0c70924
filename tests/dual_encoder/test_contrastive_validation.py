"""What a validation finds, against loops over all queries and candidates; and what it leaves alone."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from adiabat.data.pair_sets import PairSet
from adiabat.data.text_hashes import hash_texts
from adiabat.dual_encoder import contrastive_objective as ranks_module
from adiabat.dual_encoder.contrastive_objective import PairContrast, ranks_of_answers
from adiabat.runs.run_log import Validation
from tests.dual_encoder.problem import HELD_OUT, ROWS, Row, at_temperature, examples, objective_of, pair_sets

T = 0.3
OTHERS: tuple[Row, ...] = (
    ("who has paws", ["a cat", "a dog"], ["rust"]),
    ("what is deep", ["the sea is wide and deep"], ["rain", "dust"]),
    ("what is old", ["a stone"], ["snow", "ice", "rust"]),
)


def sets_of(*held_out: Row) -> tuple[PairSet, PairSet]:
    train, validation = pair_sets(examples(ROWS), examples(held_out, name="held out"))
    return train, validation


def objective_with(
    train: dict[str, Any] | None = None, *, rows: tuple[Row, ...] = (*HELD_OUT, *OTHERS), **tables: Any
) -> PairContrast:
    return objective_of(train=at_temperature(T, train), sets=sets_of(*rows), **tables)


def embedded(objective: PairContrast) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Every text's vector, in double precision."""
    texts, towers = objective.train.texts, objective.towers
    found = []
    for side, names in (("query", texts.queries), ("document", texts.documents)):
        vectors = towers.encode(names, side=side, precision="fp32").astype(np.float64)  # type: ignore[arg-type]
        found.append(dict(zip(names, vectors, strict=True)))
    return found[0], found[1]


def near(left: np.ndarray, right: np.ndarray, measure: str) -> float:
    if measure == "euclidean":
        return -math.dist(left.tolist(), right.tolist())
    product = float(left @ right)
    return product if measure == "dot" else product / math.sqrt(float(left @ left) * float(right @ right))


def answers_of(query: str, rows: tuple[Row, ...]) -> set[str]:
    return {text for asked, positives, _ in (*ROWS, *rows) if asked == query for text in positives}


def ranks_by_hand(objective: PairContrast, rows: tuple[Row, ...], measure: str) -> list[int]:
    query, document = embedded(objective)
    asked = dict.fromkeys(one for one, _, _ in rows)
    candidates = {text for _, positives, _ in rows for text in positives}
    for one, _, negatives in (*ROWS, *rows):
        if one in asked:
            candidates |= set(negatives) - answers_of(one, rows)
    ranks = []
    for one in asked:
        scores = {text: near(query[one], document[text], measure) for text in candidates}
        answers = answers_of(one, rows)
        best = max(scores[text] for text in answers & candidates)
        ranks.append(1 + sum(score >= best for text, score in scores.items() if text not in answers))
    return ranks


MEASURES: dict[str, dict[str, Any]] = {
    "cosine": {},
    "dot": {"similarity": "dot", "temperature": 4.0},
    "euclidean": {"loss": {"kind": "triplet", "distance": "euclidean"}, "batch_size": 3},
}
LISTING = tuple(row for row in (*HELD_OUT, *OTHERS) if row[2])


@pytest.mark.parametrize("measure", MEASURES)
def test_errors_and_measures_equal_loops_over_all_candidates(measure: str) -> None:
    for seed in range(3):
        rows = LISTING if measure == "euclidean" else (*HELD_OUT, *OTHERS)
        job, seeded = {"model": "other" if seed else "tiny"}, {"seed": seed}
        objective = objective_with(MEASURES[measure], rows=rows, job=job, run=seeded)
        ranks = ranks_by_hand(objective, rows, measure)
        found = objective.validate()
        assert (found.errors, found.pairs) == (sum(rank > 1 for rank in ranks), len(ranks))
        assert found.measures["P@1"] == pytest.approx(sum(rank == 1 for rank in ranks) / len(ranks))
        assert found.measures["RR"] == pytest.approx(sum(1 / rank for rank in ranks) / len(ranks))
        assert list(found.measures) == ["P@1", "RR"]


@pytest.mark.parametrize("measure", MEASURES)
def test_errors_may_be_listed_pairs_in_the_wrong_order(measure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks_module, "PAIRS_AT_A_TIME", 4)
    objective = objective_with({**MEASURES[measure], "error_unit": "pairs"}, rows=LISTING)
    (query, document), validation, errors, pairs = embedded(objective), objective.validation, 0, 0
    texts = validation.texts
    for row, positive in zip(validation.query.tolist(), validation.positive.tolist(), strict=True):
        asked = query[texts.queries[row]]
        own = near(asked, document[texts.documents[positive]], measure)
        for negative in validation.negatives[row]:
            errors += own <= near(asked, document[texts.documents[negative]], measure)
            pairs += 1
    found = objective.validate()
    assert (found.errors, found.pairs) == (errors, pairs)
    assert 0 < errors < pairs
    alone = objective_with(MEASURES[measure], rows=LISTING).validate()
    assert (found.loss, found.measures) == (alone.loss, alone.measures)


def softmax_by_hand(
    objective: PairContrast, pairs: list[tuple[str, str]], shared: list[str], rows: tuple[Row, ...]
) -> float:
    """Mean loss of the queries of a batch: one direction, plain loops."""
    query, document = embedded(objective)

    def score(one: str, text: str) -> float:
        return near(query[one], document[text], "cosine") / T

    total = 0.0
    for place, (one, positive) in enumerate(pairs):
        kept = [score(one, positive)]
        for other, (asked, text) in enumerate(pairs):
            related = asked == one or text in answers_of(one, rows) or positive in answers_of(asked, rows)
            if other != place and not related:
                kept.append(score(one, text))
        kept += [score(one, text) for text in shared if text not in answers_of(one, rows)]
        total += math.log(sum(map(math.exp, kept))) - kept[0]
    return total / len(pairs)


@pytest.mark.parametrize("batch_size", [2, 5, 11, 64])
def test_the_loss_is_the_mean_over_full_batches_of_the_training_size_in_the_order_of_the_texts_hashes(
    batch_size: int,
) -> None:
    rows = (*HELD_OUT, *OTHERS)
    loss = {"symmetric": False, "negatives_per_query": 2}
    objective = objective_with({"loss": loss, "batch_size": batch_size})
    pairs = [(query, text) for query, near, _ in rows for text in near]
    pairs.sort(key=lambda pair: hash_texts(["\0".join(pair)])[0])
    listed: dict[str, set[str]] = {}
    for query, _, far in (*ROWS, *rows):
        listed.setdefault(query, set()).update(set(far) - answers_of(query, rows))
    total = 0.0
    for start in range(0, len(pairs), batch_size):
        end = min(start + batch_size, len(pairs))
        batch = pairs[max(0, end - batch_size) : end]
        shared = []
        for query, _ in batch:
            by_hash = {hash_texts([f"{query}\0{text}"])[0]: text for text in listed[query]}
            shared += [by_hash[key] for key in sorted(by_hash)[:2]]
        total += (end - start) * softmax_by_hand(objective, batch, shared, rows)
    assert objective.validate().loss == pytest.approx(total / len(pairs), rel=1e-5)


TOPICS = ("a cat in the yard", "a dog by the sea", "the moon at night", "rust on a stone")
SORTED: tuple[Row, ...] = tuple(
    (f"where is {topic}, {n}", [f"{topic}, number {n}"], [f"{topic}, but {n + 1}"])
    for topic in TOPICS
    for n in range(40)
)


@pytest.mark.parametrize(
    "settings", [{}, {"loss": "samtone"}, {"negatives_per_query": 0}, {"loss": {"guide": "other"}}], ids=str
)
def test_the_loss_does_not_depend_on_the_order_of_the_file(settings: dict[str, Any]) -> None:
    in_order = objective_with({"batch_size": 16, **settings}, rows=SORTED).validate()
    shuffled = tuple(SORTED[place] for place in np.random.default_rng(1).permutation(len(SORTED)))
    found = objective_with({"batch_size": 16, **settings}, rows=shuffled).validate()
    assert (found.loss, found.errors) == (pytest.approx(in_order.loss, rel=1e-5), in_order.errors)


@pytest.mark.parametrize(
    "rows",
    [SORTED[:-1], (*SORTED, ("who is new", ["nobody known"], [])), SORTED[:37] + SORTED[39:]],
    ids=["one less", "one more", "two less"],
)
def test_rows_that_come_or_go_change_each_batch_by_as_many_pairs_and_the_loss_by_little(
    rows: tuple[Row, ...],
) -> None:
    before, after = (objective_with({"batch_size": 16}, rows=some) for some in (SORTED, rows))
    names = [
        [set(one.validation.texts.queries.take(batch.query)) for batch, _ in one._validation_batches[:9]]
        for one in (before, after)
    ]
    assert all(len(left - right) <= abs(len(rows) - len(SORTED)) for left, right in zip(*names, strict=True))
    assert after.validate().loss == pytest.approx(before.validate().loss, abs=0.02)


def test_a_single_pair_is_measured_all_the_same() -> None:
    alone = (("who is lonely", ["nobody else"], []),)
    found = objective_with({"negatives_per_query": 0}, rows=alone).validate()
    assert found == Validation(0.0, 0, 1, {"P@1": 1.0, "RR": 1.0})


def test_a_schedule_is_validated_at_its_last_temperature_and_a_learned_one_as_it_stands() -> None:
    fixed = objective_with().validate()
    scheduled = objective_with({"temperature": {"kind": "scheduled", "value": T}})
    learned = objective_with({"temperature": {"kind": "learned", "value": T}})
    assert scheduled.validate().loss == pytest.approx(fixed.loss, rel=1e-6)
    assert learned.validate().loss == pytest.approx(fixed.loss, rel=1e-6)
    with torch.no_grad():
        dict(learned.module.named_parameters())["temperature.log_factor"].fill_(math.log(2.0))
    fixed = objective_with({"temperature": 0.5}).validate()
    assert learned.validate().loss == pytest.approx(fixed.loss, rel=1e-6)


def test_a_guide_is_heard_in_validation_too() -> None:
    found = [
        objective_with({"loss": {"guide": guide}} if guide else {}).validate()
        for guide in (None, "other", "self")
    ]
    assert len({validation.loss for validation in found}) == 3
    assert len({validation.errors for validation in found}) == 1


def test_a_frozen_tower_validates_like_one_that_is_not() -> None:
    both = objective_with(towers={"kind": "asymmetric"}).validate()
    for frozen in ("query", "document"):
        found = objective_with(towers={"kind": "asymmetric", "frozen": frozen}).validate()
        assert found.loss == pytest.approx(both.loss, rel=1e-5)
        assert (found.errors, found.measures) == (both.errors, both.measures)


@pytest.mark.parametrize("dropout", [False, True])
def test_validation_leaves_modes_random_numbers_and_gradients_alone_and_does_not_depend_on_steps(
    dropout: bool,
) -> None:
    objective, quiet = objective_with({"dropout": dropout}), objective_with().validate()
    objective.towers.query.backbone.get_submodule("embeddings").train(not dropout)
    before, state = [module.training for module in objective.module.modules()], torch.get_rng_state()
    assert objective.validate() == quiet
    assert [module.training for module in objective.module.modules()] == before
    assert torch.equal(torch.get_rng_state(), state)
    assert all(weights.grad is None for weights in objective.module.parameters())
    for step in (3, 0, 9):
        torch.autograd.backward(objective.loss(step))
    assert objective.validate() == quiet


# --- Ranks of answers ---


def rows(*lists: list[int]) -> list[np.ndarray]:
    return [np.array(one, dtype=np.int64) for one in lists]


def ranked(
    query: torch.Tensor, documents: torch.Tensor, answers: list[np.ndarray], *, distance: bool = False
) -> list[int]:
    found: list[int] = ranks_of_answers(query, documents, answers, distance=distance).tolist()
    return found


def by_loops(
    query: torch.Tensor, documents: torch.Tensor, answers: list[np.ndarray], *, distance: bool
) -> list[int]:
    found = []
    for vector, own in zip(query.double().tolist(), answers, strict=True):
        scores = [
            -math.dist(vector, other) if distance else sum(x * y for x, y in zip(vector, other, strict=True))
            for other in documents.double().tolist()
        ]
        best = max(scores[row] for row in own)
        found.append(1 + sum(score >= best for row, score in enumerate(scores) if row not in own))
    return found


def test_ranks_by_hand() -> None:
    documents = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0], [0.9, 0.1]])
    query = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    # Products with the first query: 1, 0, 2, 0.9; with the second 0, 1, 0, 0.1; with the third 1, 1, 2, 1.
    assert ranked(query, documents, rows([0], [3], [3])) == [2, 2, 4]
    assert ranked(query, documents, rows([0, 3], [0, 3], [2, 0])) == [2, 2, 1]
    # Distances from the first query: 0, 1.41, 1, 0.14; the second: 1.41, 0, 2.24, 1.27; the third: 1, 1,
    # 1.41, 0.91.
    assert ranked(query, documents, rows([2], [3], [0]), distance=True) == [3, 2, 3]


def test_a_tie_counts_against_the_answer_and_answers_do_not_count_against_each_other() -> None:
    same = torch.ones(5, 3)
    for distance in (False, True):
        assert ranked(torch.ones(3, 3), same, rows([0], [4], [0, 1, 2]), distance=distance) == [5, 5, 3]


@pytest.mark.parametrize("distance", [False, True])
@pytest.mark.parametrize("at_a_time", [512, 4, 1])
def test_ranks_equal_loops_over_all_candidates(
    distance: bool, at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks_module, "QUERIES_AT_A_TIME", at_a_time)
    generator = np.random.default_rng(3)
    query, documents = (
        torch.from_numpy(generator.standard_normal((count, 4)).astype(np.float32)) for count in (9, 40)
    )
    answers = [np.sort(generator.choice(40, size=1 + number % 3, replace=False)) for number in range(9)]
    found = ranked(query, documents, answers, distance=distance)
    assert found == by_loops(query, documents, answers, distance=distance)
    assert len(set(found)) > 4


def test_distances_of_near_texts_are_told_apart() -> None:
    """Far from the origin, as vectors without unit length are, rounding swallows what lies between near
    ones.
    """
    generator = np.random.default_rng(1)
    centre = 20 * np.ones(16)
    documents = torch.from_numpy((centre + 1e-3 * generator.standard_normal((200, 16))).astype(np.float32))
    query = torch.from_numpy((centre + 1e-3 * generator.standard_normal((60, 16))).astype(np.float32))
    answers = rows(*([number] for number in range(60)))
    found = ranked(query, documents, answers, distance=True)
    assert found == by_loops(query, documents, answers, distance=True)


def test_what_is_no_number_is_never_first() -> None:
    documents = torch.tensor([[1.0, 0.0], [0.0, 1.0], [math.nan, 1.0]])
    assert ranked(torch.tensor([[1.0, 0.0], [math.nan, 0.0]]), documents, rows([0], [0])) == [2, 3]
