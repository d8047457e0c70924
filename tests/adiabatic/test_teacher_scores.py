"""Tuning that learns from a teacher's scores: the loss by hand, whole jobs, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from adiabat.adiabatic.stored_loss import StoredDocuments
from adiabat.adiabatic.tuning_context import TuningContext, examples_digest, read_data
from adiabat.core.errors import AdiabatError, ConfigError, DataError
from adiabat.losses.embedded_pairs import Pairs
from adiabat.losses.in_batch import listwise_divergence, margin_mse
from adiabat.models.bulk import embed_rows
from adiabat.models.model_names import load
from adiabat.results.evaluation_result import Result
from adiabat.store.vector_store import Store
from tests.adiabatic.problem import Problem, objective_in, run, settings_of, write_problem
from tests.commands import lines
from tests.jobs import log_of, weights_of
from tests.refused import refused, require_facts

LOSSES = {"kl": listwise_divergence, "margin_mse": margin_mse}
LISTWISE: dict[str, Any] = {"kind": "listwise", "temperature": 0.2, "teacher_temperature": 3.0}
SEVERAL: dict[str, Any] = {"kind": "examples", "per_query": 4}
"""One more than queries list, so that lists are filled up."""

Row = dict[str, Any]


def rows_of(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    """A problem whose teacher prefers documents in an order of its own."""
    problem = write_problem(tmp_path_factory.mktemp("scored"))
    rows = rows_of(problem.data)
    for number, row in enumerate(rows):
        documents = [*row["pos"], *row["neg"]]
        row["scores"] = [8.0, *((5 * number + int(each[1:])) % 7 - 3.5 for each in documents[1:])]
    lines(problem.data, rows)
    return problem


def with_rows(problem: Problem, folder: Path, change: Callable[[list[Row]], object]) -> Problem:
    """The same problem with other rows."""
    rows = rows_of(problem.data)
    change(rows)
    lines(folder / "triplets.jsonl", rows)
    return Problem(problem.model, problem.store, folder / "triplets.jsonl")


def objective_for(problem: Problem, **tune: Any) -> StoredDocuments:
    return objective_in(problem.context(), settings_of(tune={"loss": LISTWISE, "negatives": SEVERAL, **tune}))


@pytest.mark.parametrize("objective", LOSSES)
@pytest.mark.parametrize("distance", ["cosine", "dot"])
def test_the_loss_of_a_step_is_that_of_the_listed_documents_and_their_scores(
    scored: Problem, objective: str, distance: str
) -> None:
    loss = LISTWISE | {"objective": objective, "distance": distance}
    made = objective_for(scored, loss=loss)
    by_query = {row["query"]: row for row in rows_of(scored.data)}
    taken = [by_query[made.train.queries[row]] for row in made.sampler.rows(0)]
    store = Store.open(scored.store)
    lists = [[*row["pos"], *row["neg"], row["neg"][0]] for row in taken]
    vectors = torch.from_numpy(np.stack([store.gather(store.rows(documents)) for documents in lists]))
    scores = torch.tensor([[*row["scores"], row["scores"][1]] for row in taken])
    query = embed_rows(made.encoder, made.tokens, made.sampler.rows(0))
    pairs = Pairs(query, vectors[:, 0], own=vectors[:, 1:], scores=scores)
    pairs = pairs.unit() if distance == "cosine" else pairs
    expected = LOSSES[objective](pairs, temperature=0.2, teacher_temperature=3.0)
    torch.testing.assert_close(made.loss(0), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("objective", LOSSES)
def test_a_job_learns_its_teachers_order_and_resumes_bit_for_bit(
    scored: Problem, tmp_path: Path, objective: str
) -> None:
    tune = {
        "loss": LISTWISE | {"objective": objective},
        "negatives": SEVERAL,
        "max_epochs": 6,
        "keep": "last",
    }
    result = run(scored, tmp_path / "job", settings_of(tune=tune))
    assert isinstance(result, Result)
    losses = [row["validation_loss"] for row in log_of(tmp_path / "job") if "validation_loss" in row]
    assert losses[-1] < 0.95 * losses[0]
    run(scored, tmp_path / "parted", settings_of(tune=tune | {"max_epochs": 3}))
    run(scored, tmp_path / "parted", settings_of(tune=tune), resume=True)
    whole, parted = (weights_of(load(str(tmp_path / name)).query) for name in ("job", "parted"))
    assert whole == parted


def test_other_scores_are_other_examples_for_this_loss_alone(scored: Problem, tmp_path: Path) -> None:
    def rescored(rows: list[Row]) -> None:
        rows[5]["scores"][1] += 1.0

    other, settings = with_rows(scored, tmp_path, rescored), settings_of()
    sets = [read_data(str(one.data), settings.data, Store.open(one.store)) for one in (scored, other)]
    assert examples_digest(*sets[0]) == examples_digest(*sets[1])
    assert examples_digest(*sets[0], scored=True) != examples_digest(*sets[1], scored=True)
    made = TuningContext(scored.fresh, scored.store, str(scored.data)), settings_of(tune={"loss": LISTWISE})
    digests = made[0].digests(made[1], *sets[0])
    assert digests["examples"] == examples_digest(*sets[0], scored=True)


def unscored(rows: list[Row]) -> None:
    for row in rows[3:]:
        del row["scores"]


def bare(rows: list[Row]) -> None:
    rows[7] |= {"neg": [], "scores": [1.0]}


def short(rows: list[Row]) -> None:
    rows[8]["scores"].pop()


REFUSED: dict[str, tuple[Callable[[list[Row]], object], type[AdiabatError], tuple[str, ...]]] = {
    "no scores": (unscored, DataError, ("triplets.jsonl:4", '"scores"', "adiabat.label")),
    "no negatives": (bare, DataError, ("list a negative", "tune.loss = listwise", "1 of")),
    "too few": (
        lambda rows: rows[8]["scores"].pop(),
        DataError,
        ("triplets.jsonl:9", "4 documents", "got 3"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_data_without_what_the_loss_needs_are_refused_before_anything_is_written(
    scored: Problem, tmp_path: Path, name: str
) -> None:
    change, error, facts = REFUSED[name]
    with refused(error, *facts):
        run(with_rows(scored, tmp_path, change), tmp_path / "job", settings_of(tune={"loss": LISTWISE}))
    assert not (tmp_path / "job").exists()


def test_a_teacher_scores_listed_documents_alone() -> None:
    for kind in ("random", "hardest"):
        with pytest.raises(ConfigError) as caught:
            settings_of(tune={"loss": LISTWISE, "negatives": {"kind": kind}})
        require_facts(str(caught.value), "tune.negatives", '"examples"', "listwise", kind)
