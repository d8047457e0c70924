"""What runs share is made once, and is what each would have made for itself; examples, parted for good."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adiabat.adiabatic import tuning_context as ground_module
from adiabat.adiabatic.tuning_context import (
    MINED_NEGATIVES,
    TuningContext,
    examples_digest,
    prepared_tower,
    read_data,
    with_negatives,
)
from adiabat.config.tuning import TuneDataSection
from adiabat.core.errors import DataError
from adiabat.core.ragged import Ragged
from adiabat.data.text_hashes import FEWEST_HELD_OUT, held_out_documents
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.towers import DualEncoder
from adiabat.scaling_laws.flops import training_flops
from adiabat.store.addressing import AddressedSet
from adiabat.store.vector_store import Store
from adiabat.training.flop_count import passed_parameters
from tests.adiabatic.problem import (
    Problem,
    addressed,
    objective_in,
    random_vectors,
    run,
    settings_of,
    store_of,
)
from tests.commands import lines
from tests.tiny import tiny_encoder


def counted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[Any]:
    """Calls of a function of the module."""
    calls: list[Any] = []
    real = getattr(ground_module, name)

    def call(*given: Any, **named: Any) -> Any:
        calls.append(given)
        return real(*given, **named)

    monkeypatch.setattr(ground_module, name, call)
    return calls


def test_data_validation_and_tokens_are_made_once_for_runs_of_other_rates(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, mined = counted(monkeypatch, "read_data"), counted(monkeypatch, "with_negatives")
    loads: list[int] = []

    def load() -> DualEncoder:
        loads.append(1)
        return problem.fresh()

    context = TuningContext(load, problem.store, str(problem.data))
    every = [
        objective_in(context, settings_of(tune={"loss": {"margin": margin}, "learning_rate": rate}))
        for rate in (1e-6, 1e-5)
        for margin in (0.1, 0.3)
    ]
    assert (len(reads), len(mined), len(loads)) == (1, 1, 1)
    assert len({id(one.tokens) for one in every}) == len({id(one.validation_tokens) for one in every}) == 1


def test_what_settings_change_is_made_anew(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    mined = counted(monkeypatch, "with_negatives")
    context = problem.context()
    listed, hardest = (
        objective_in(context, settings_of(tune={"negatives": source})) for source in ("examples", "hardest")
    )
    smaller = objective_in(context, settings_of(data={"validation_fraction": 0.5}))
    assert len(mined) == 3
    assert listed.validation.negatives.lengths.tolist() != hardest.validation.negatives.lengths.tolist()
    assert len(smaller.train) < len(listed.train)


def test_a_run_finds_what_it_would_have_made_alone(problem: Problem) -> None:
    shared, settings = problem.context(), settings_of(tune={"learning_rate": 1e-3})
    objective_in(shared, settings_of(tune={"negatives": "hardest"}))
    one, other = (objective_in(context, settings) for context in (shared, problem.context()))
    assert one.loss(3).item() == other.loss(3).item()
    assert one.validate() == other.validate()


def test_data_can_be_read_before_any_model_is_loaded(problem: Problem, tmp_path: Path) -> None:
    def load() -> DualEncoder:
        raise AssertionError("loaded")

    train, _ = TuningContext(load, problem.store, str(problem.data)).examples(settings_of().data)
    assert len(train)


def test_a_job_says_what_it_spent(problem: Problem, tmp_path: Path) -> None:
    record, context = run(problem, tmp_path / "job").training, problem.context()
    objective = context.objective(prepared_tower(problem.fresh().query, settings_of())[0], settings_of())
    costs = [objective.cost(step) for step in range(record.steps)]
    assert record.flops == pytest.approx(sum(one.flops for one in costs))
    batches = [objective.sampler.rows(step) for step in range(12)]
    tokens = sum(int(objective.tokens.lengths[picked].sum()) for picked in batches)
    assert record.flops == pytest.approx(training_flops(passed_parameters(objective.encoder), float(tokens)))
    # The third epoch was the last that it may have.
    assert record.planned == pytest.approx(record.flops)
    assert record.operations > 0


# --- Training and validation examples: parted for good, and given negatives ---


def write_rows(path: Path, rows: list[dict[str, Any]]) -> str:
    lines(path, rows)
    return str(path)


def rows_of(count: int) -> list[dict[str, Any]]:
    return [
        {"query": f"question {n}", "pos": [f"d{n % 20}"], "neg": [f"d{(n + 1) % 20}"]} for n in range(count)
    ]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return store_of(tmp_path, random_vectors(20))


def test_data_are_parted_with_no_query_on_both_sides_and_none_lost(tmp_path: Path, store: Store) -> None:
    path = write_rows(tmp_path / "data.jsonl", rows_of(100))
    train, validation = read_data(path, TuneDataSection(validation_fraction=0.3), store)
    assert sorted(train.queries + validation.queries) == sorted(row["query"] for row in rows_of(100))
    assert not set(train.queries) & set(validation.queries)
    assert 15 < len(validation) < 45
    for part in (train, validation):
        for place, query in enumerate(part.queries):
            number = int(query.split()[1])
            assert part.positives[place].tolist() == [number % 20]
            assert part.negatives[place].tolist() == [(number + 1) % 20]


def test_validation_may_be_a_file_of_its_own(tmp_path: Path, store: Store) -> None:
    path = write_rows(tmp_path / "data.jsonl", rows_of(10))
    other = write_rows(tmp_path / "dev.jsonl", [{"query": "other", "pos": ["d3"], "neg": []}])
    train, validation = read_data(path, TuneDataSection(validation=other), store)
    assert (len(train), validation.queries, validation.notes) == (10, ["other"], ())


def test_validation_queries_that_are_trained_on_are_counted_in_a_note(tmp_path: Path, store: Store) -> None:
    path = write_rows(tmp_path / "data.jsonl", rows_of(10))
    other = write_rows(tmp_path / "dev.jsonl", rows_of(12)[8:])
    _, validation = read_data(path, TuneDataSection(validation=other), store)
    (note,) = validation.notes
    assert "2 of 4 validation queries are also trained on" in note


def test_missing_documents_are_an_error_or_a_note(tmp_path: Path, store: Store) -> None:
    path = write_rows(tmp_path / "data.jsonl", [*rows_of(60), {"query": "lost", "pos": ["gone"]}])
    with pytest.raises(DataError, match=r"data.jsonl:61: 'gone'; embed them .* data.missing = drop"):
        read_data(path, TuneDataSection(), store)
    train, validation = read_data(path, TuneDataSection(missing="drop"), store)
    assert len(train) + len(validation) == 60
    (note,) = train.notes
    assert "1 document missing from the store left out, and 1 query without a positive" in note
    assert validation.notes == train.notes


@pytest.mark.parametrize(("fraction", "held"), [(0.0001, 0), (0.9999, 8)])
def test_a_fraction_that_leaves_one_side_empty_is_an_error(
    tmp_path: Path, store: Store, fraction: float, held: int
) -> None:
    path = write_rows(tmp_path / "data.jsonl", rows_of(8))
    with pytest.raises(DataError, match=f"{fraction} must .*, got {held} of 8 held out; choose another"):
        read_data(path, TuneDataSection(validation_fraction=fraction), store)


def test_a_language_grid_is_no_training_data(tmp_path: Path, store: Store) -> None:
    row = {"premise": {"en": "a", "de": "b"}, "hypothesis": {"en": "c", "de": "d"}, "label": "neutral"}
    path = write_rows(tmp_path / "grid.jsonl", [row])
    with pytest.raises(DataError, match=r"got a language grid; .* adiabat\.evaluate"):
        read_data(path, TuneDataSection(), store)


def lists(examples: AddressedSet) -> list[list[int]]:
    return [examples.negatives[place].tolist() for place in range(len(examples))]


@pytest.mark.parametrize("similarity", ["cosine", "distance"])
def test_queries_without_negatives_get_the_hardest_for_the_tower(store: Store, similarity: Any) -> None:
    tower = tiny_encoder(width=16, settings=EncoderSettings(max_tokens=64, normalize=False))
    validation = addressed([[3], [4, 5], [6]], [[], [7], []])
    found = with_negatives(validation, store, tower, similarity=similarity)
    assert lists(found)[1] == [7]
    vectors = store.gather(range(20)).astype(np.float64)
    queries = tower.encode(validation.queries, side="query", precision="fp32").astype(np.float64)
    for place in (0, 2):
        near = vectors @ queries[place] / np.linalg.norm(vectors, axis=1)
        if similarity == "distance":
            near = -np.linalg.norm(vectors - queries[place], axis=1)
        order = [row for row in np.argsort(-near).tolist() if row not in validation.positives[place]]
        assert lists(found)[place] == order[:MINED_NEGATIVES]


def test_a_small_store_gives_as_many_negatives_as_it_has(tmp_path: Path) -> None:
    store = store_of(tmp_path, random_vectors(3))
    found = with_negatives(addressed([[1]]), store, tiny_encoder(width=16), similarity="cosine")
    assert sorted(lists(found)[0]) == [0, 2]


def test_a_store_of_nothing_but_a_query_s_positives_is_refused(tmp_path: Path) -> None:
    store = store_of(tmp_path, random_vectors(2))
    tied = addressed([[1], [0, 1]])
    with pytest.raises(DataError, match="beside a validation query's positives, got none for 1 of them"):
        with_negatives(tied, store, tiny_encoder(width=16), similarity="cosine")


def test_the_digest_of_examples_changes_with_any_of_their_parts() -> None:
    plain = addressed([[1], [2]], [[3], [4]])
    others = [
        addressed([[1], [2]], [[3], [5]]),
        addressed([[1], [5]], [[3], [4]]),
        addressed([[1, 3], [2]], [[], [4]]),
        addressed([[1], [2]], [[3, 4], []]),
        addressed([[1], [2]], [[3], [4]], name="other"),
        plain.take(np.array([1, 0])),
        plain.take(np.array([0])),
    ]
    assert examples_digest(plain) == examples_digest(addressed([[1], [2]], [[3], [4]]))
    digests = {examples_digest(one) for one in (plain, *others)}
    digests |= {examples_digest(plain, plain), examples_digest()}
    assert len(digests) == len(others) + 3


def test_the_answers_of_the_same_question_in_other_rows_are_not_mined(store: Store) -> None:
    tower = tiny_encoder(width=16)
    hardest = lists(with_negatives(addressed([[3]]), store, tower, similarity="cosine"))[0]
    found = with_negatives(addressed([[3]], answers=[[3, *hardest[:4]]]), store, tower, similarity="cosine")
    assert lists(found)[0][:6] == hardest[4:]
    assert len(lists(found)[0]) == MINED_NEGATIVES


def test_listed_negatives_that_are_replaced_are_counted_in_a_note(store: Store) -> None:
    validation = addressed([[3], [4], [5]], [[1], [], [2]])
    found = with_negatives(validation, store, tiny_encoder(width=16), similarity="cosine", mine_all=True)
    assert len(lists(found)[0]) == MINED_NEGATIVES
    (note,) = found.notes
    assert "2 of 3 validation queries list are replaced by the store's 10 hardest" in note
    assert with_negatives(validation, store, tiny_encoder(width=16), similarity="cosine").notes == ()


def test_a_question_knows_its_answers_on_the_other_side(tmp_path: Path, store: Store) -> None:
    path = write_rows(tmp_path / "train.jsonl", [{"query": "ask", "pos": ["d1"], "neg": ["d2", "d3"]}])
    other = write_rows(tmp_path / "dev.jsonl", [{"query": "ask", "pos": ["d2"], "neg": ["d4"]}])
    train, validation = read_data(path, TuneDataSection(validation=other), store)
    assert [sorted(one.known[0].tolist()) for one in (train, validation)] == [[1, 2], [1, 2]]
    assert (lists(train), lists(validation)) == ([[3]], [[4]])


def brute_groups(queries: list[str], positives: list[list[int]]) -> list[set[int]]:
    """Queries connected through equal texts or shared positives."""
    groups: list[set[int]] = []
    for number, query in enumerate(queries):
        tied = [
            g for g in groups if any(queries[n] == query or {*positives[n]} & {*positives[number]} for n in g)
        ]
        groups = [g for g in groups if g not in tied] + [{number}.union(*tied)]
    return groups


@pytest.mark.parametrize("seed", range(5))
def test_held_out_documents_share_nothing_with_the_rest(seed: int) -> None:
    rng = np.random.default_rng(seed)
    queries = [f"query {rng.integers(150)}" for _ in range(200)]
    positives = [rng.choice(400, size=rng.integers(1, 3), replace=False).tolist() for _ in queries]
    held_out = held_out_documents(queries, Ragged.of(positives), 0.3, 1000)
    assert FEWEST_HELD_OUT <= len(held_out) <= 60
    inside = set(held_out.tolist())
    assert all(group <= inside or not group & inside for group in brute_groups(queries, positives))
    # The order of the data decides nothing.
    order = rng.permutation(len(queries))
    shuffled = [queries[n] for n in order], Ragged.of([positives[n] for n in order])
    assert set(order[held_out_documents(*shuffled, 0.3, 1000)].tolist()) == inside


def test_documents_that_tie_most_queries_together_are_not_held_out() -> None:
    queries = [f"query {number}" for number in range(100)]
    tied = Ragged.of([[0, number] for number in range(1, 101)])
    assert held_out_documents(queries, tied, 0.1, 1000) is None
    apart = held_out_documents(queries, Ragged.of([[number] for number in range(100)]), 0.1, 1000)
    assert len(apart) == 10
