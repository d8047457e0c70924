"""Training of both towers that learns from a teacher's scores."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from adiabat.core.errors import DataError
from adiabat.data.batch_sampler import ShuffledBatches
from adiabat.data.pair_sets import PairSet
from adiabat.data.records import ExampleSet
from adiabat.dual_encoder.batches import check_negatives, draw_batch
from adiabat.dual_encoder.contrastive_objective import PairContrast
from adiabat.dual_encoder.pair_data import numbered_pairs, read_pairs
from adiabat.losses.embedded_pairs import Pairs
from adiabat.losses.in_batch import listwise_divergence, margin_mse
from adiabat.results.training_record import TrainingRecord
from tests.dual_encoder.problem import (
    HELD_OUT,
    ROWS,
    Row,
    examples,
    job_settings,
    objective_of,
    pair_sets,
    plain,
    run,
    section,
    settings_of,
    write_problem,
    write_rows,
)
from tests.jobs import log_of
from tests.refused import refused

T, TEACHER = 0.3, 2.0
LOSSES = {"kl": listwise_divergence, "margin_mse": margin_mse}
LISTED = [row for row in (*ROWS, *HELD_OUT) if row[2]]


def loss_of(objective: str = "kl", **more: Any) -> dict[str, Any]:
    return {
        "kind": "listwise",
        "objective": objective,
        "temperature": T,
        "teacher_temperature": TEACHER,
        "negatives_per_query": 3,
        **more,
    }


def score_of(query: str, document: str) -> float:
    """A teacher that counts letters."""
    return len(set(query) & set(document)) - 0.1 * len(document)


def scored(rows: list[Row], *, name: str = "set") -> ExampleSet:
    plain_set = examples(rows, name=name)
    taught = []
    for one in plain_set.examples:
        scores = tuple(score_of(one.query, each) for each in (*one.positives, *one.negatives))
        taught.append(replace(one, scores=scores))
    return replace(plain_set, examples=taught)


def both_sets() -> tuple[PairSet, PairSet]:
    train, validation = pair_sets(scored(LISTED[:7]), scored(LISTED[7:], name="held out"))
    return train, validation


def objective_with(objective: str, **tables: Any) -> PairContrast:
    return objective_of(sets=both_sets(), train={"loss": loss_of(objective), "batch_size": 5}, **tables)


def by_hand(objective: PairContrast, name: str, step: int) -> Tensor:
    """The loss of a step, with every text passed by itself and scored anew."""
    train, training = objective.train, objective.settings.train
    picked = ShuffledBatches(len(train), 5, seed=0).rows(step)
    batch = draw_batch(train, picked, training, seed=0, step=step)
    query = [train.texts.queries[row] for row in batch.query]
    documents = [
        [train.texts.documents[row] for row in (positive, *own)]
        for positive, own in zip(batch.positive, batch.own, strict=True)
    ]
    flat = [text for texts in documents for text in texts]
    embedded = plain(objective.towers.document, flat, "document").view(len(query), 4, -1)
    scores = [[score_of(q, text) for text in texts] for q, texts in zip(query, documents, strict=True)]
    pairs = Pairs(
        plain(objective.towers.query, query, "query"),
        embedded[:, 0],
        own=embedded[:, 1:],
        scores=torch.tensor(scores),
    )
    return LOSSES[name](pairs.unit(), temperature=T, teacher_temperature=TEACHER)


CACHED = {"cached": True, "chunk_tokens": 40}


@pytest.mark.parametrize("memory", [{}, CACHED], ids=["whole", "cached"])
@pytest.mark.parametrize("name", LOSSES)
def test_loss_and_gradient_of_a_step_are_those_of_plain_passes(name: str, memory: dict[str, Any]) -> None:
    objective = objective_with(name, memory=memory)
    loss, expected = objective.loss(3), by_hand(objective, name, 3)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    parameters = [each for each in objective.module.parameters() if each.requires_grad]
    wanted = torch.autograd.grad(expected, parameters, allow_unused=True)
    objective.module.zero_grad()
    loss.backward()
    for parameter, gradient in zip(parameters, wanted, strict=True):
        if gradient is not None:
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-3, atol=1e-5)


def test_scores_are_numbered_with_their_texts_and_kept(tmp_path: Path) -> None:
    sets = [scored(LISTED[:7]), scored(LISTED[7:], name="held out")]

    def number(builder: Any) -> list[str]:
        for of, one in enumerate(sets):
            builder.add(one.examples, of=of)
        return [one.name for one in sets]

    for folder in (None, tmp_path / "kept"):
        for pairs in numbered_pairs(number, folder, advice=""):
            assert pairs.scores is not None
            assert pairs.negative_scores is not None
            queries, documents = list(pairs.texts.queries), list(pairs.texts.documents)
            named = zip(pairs.query, pairs.positive, pairs.scores, strict=True)
            for query, positive, score in named:
                assert score == pytest.approx(score_of(queries[query], documents[positive]))
            owners = np.repeat(np.arange(len(pairs.negatives)), pairs.negatives.lengths)
            listed = zip(owners, pairs.negatives.values, pairs.negative_scores, strict=True)
            for query, negative, score in listed:
                assert score == pytest.approx(score_of(queries[query], documents[negative]))
    train, again = (numbered_pairs(number, folder, advice="")[0] for folder in (None, tmp_path / "kept"))
    assert train.digest() == again.digest()
    without = pair_sets(examples(LISTED[:7]), examples(LISTED[7:], name="held out"))[0]
    assert (without.scores, without.negative_scores) == (None, None)
    assert train.digest() != without.digest()


def test_a_query_without_scores_or_negatives_is_refused() -> None:
    half = scored(LISTED[:7])
    half = replace(half, examples=[*half.examples[:4], replace(half.examples[4], scores=())])
    (pairs,), training = pair_sets(half), section(loss=loss_of())
    with refused(DataError, "set: query set 4", '"scores"', "listwise"):
        check_negatives(pairs, training)
    (unscored,) = pair_sets(examples(LISTED))
    with refused(DataError, "query set 0", '"scores"'):
        check_negatives(unscored, training)
    (lonely,) = pair_sets(scored([("what purrs", ["a cat"], [])]))
    with refused(DataError, "every query must list a negative", "listwise"):
        check_negatives(lonely, training)
    check_negatives(pairs, section(loss="triplet"))


def test_a_job_learns_from_a_file_with_scores(tmp_path: Path) -> None:
    problem = write_problem(tmp_path)
    assert (
        read_pairs(str(problem.data), settings_of(data={"validation_fraction": 0.3}).data)[0].scores is None
    )
    rows = []
    for number in range(40):
        texts = [f"paper {(number + further) % 40}" for further in (0, 7, 13)]
        scores = [9.0, (number % 3) - 3.0, (number % 4) - 2.0]
        rows.append({"query": f"about {number}", "pos": texts[0], "neg": texts[1:], "scores": scores})
    write_rows(problem.data, rows)
    losses = {}
    for objective in LOSSES:
        train = {"loss": loss_of(objective, negatives_per_query=2), "steps": 24, "keep": "last"}
        result = run(job_settings(problem, tmp_path / objective, train=train))
        assert isinstance(result.training, TrainingRecord)
        logged = log_of(tmp_path / objective)
        losses[objective] = [row["validation_loss"] for row in logged if "validation_loss" in row]
        assert losses[objective][-1] < losses[objective][0]
