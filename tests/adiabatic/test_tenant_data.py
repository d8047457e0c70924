"""The division of tenants' queries: those that choose or judge have no answer that a tower is trained on."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adiabat.adiabatic.tenant_data import PARTS, DividedQueries, digest_of, divided
from adiabat.config.reader import checked
from adiabat.config.tenant_towers import TenantSettings
from adiabat.core.errors import DataError
from adiabat.data.examples import read_examples
from adiabat.data.records import Example, ExampleSet
from adiabat.store.vector_store import Store
from tests.adiabatic.problem import random_vectors, store_of

NAMES = ("a/b", "A-B", "shared")
DOCUMENTS = 400


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return store_of(tmp_path_factory.mktemp("store"), random_vectors(DOCUMENTS))


def tenants_of(rows: Sequence[Sequence[int]]) -> dict[str, ExampleSet]:
    """Queries with the documents of these rows, in turn of each tenant; ids repeat among tenants."""
    queries: dict[str, list[Example]] = {name: [] for name in NAMES}
    for number, documents in enumerate(rows):
        name = NAMES[number % len(NAMES)]
        ids = tuple(f"d{row}" for row in documents)
        queries[name].append(Example(f"q{number // len(NAMES)}", f"question {number}", ids, ("d0",)))
    return {name: ExampleSet(name, tuple(examples), False) for name, examples in queries.items()}


def settings_with(**tenants: float) -> TenantSettings:
    return checked(TenantSettings, {"data": {"hold_out": "documents"}, "tenants": tenants})


def texts(files: DividedQueries, part: str) -> dict[str, list[tuple[str, tuple[str, ...]]]]:
    """Query and positives of each row of a part, by tenant."""
    found = {}
    for tenant in files.tenants:
        read = read_examples(tenant.path(part)).examples if tenant.counts[part] else ()
        found[tenant.name] = [(each.query, each.positives) for each in read]
    return found


@given(
    st.lists(st.lists(st.integers(1, DOCUMENTS - 1), min_size=1, max_size=2), min_size=60, max_size=150),
    st.floats(0.0, 0.5),
)
@settings(max_examples=20, deadline=None)
def test_no_part_shares_a_relevant_document_or_question_with_training(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[int]], fraction: float
) -> None:
    folder = tmp_path_factory.mktemp("towers")
    world = store_of(folder / "world", random_vectors(DOCUMENTS))
    given = tenants_of(rows)
    files = divided(given, world, settings_with(test_fraction=fraction), folder, source="rows")
    found = {part: texts(files, part) for part in PARTS}
    # Each query is in one part of its own tenant.
    for name, queries in given.items():
        everything = sorted(query for part in PARTS for query, _ in found[part][name])
        assert everything == sorted(example.query for example in queries.examples)
    if files.notes:
        return
    documents = {
        part: {document for rows in found[part].values() for _, positives in rows for document in positives}
        for part in PARTS
    }
    assert not documents["train"] & (documents["validation"] | documents["test"])
    assert not documents["validation"] & documents["test"]


def test_the_shared_tower_has_the_training_queries_of_all_and_a_spread_of_their_validation_queries(
    store: Store, tmp_path: Path
) -> None:
    given = tenants_of([[row] for row in range(1, 301)])
    settings = settings_with(test_fraction=0.2)
    settings = settings.model_copy(update={"data": settings.data.model_copy(update={"max_validation": 12})})
    files = divided(given, store, settings, tmp_path, source="rows")
    shared = {part: read_examples(files.shared.path(part)).examples for part in PARTS[:2]}
    own = {part: [row for rows in texts(files, part).values() for row in rows] for part in PARTS}
    assert [(each.query, each.positives) for each in shared["train"]] == own["train"]
    assert len(own["test"]) == 60
    # At most that many for each tenant, and for the shared tower.
    assert len(own["validation"]) == 36
    assert len(shared["validation"]) == files.shared.counts["validation"] == 12
    numbers = [own["validation"].index((each.query, each.positives)) for each in shared["validation"]]
    assert np.diff(numbers).min() >= 2
    # Ids that two tenants use are not written for the shared tower.
    assert all(each.query_id.startswith("row-") for each in shared["train"])
    tenant = read_examples(files.tenants[0].path("train")).examples[0]
    assert tenant.query_id.startswith("q")
    assert tenant.negatives == ("d0",)


def test_tenants_whose_names_look_alike_have_folders_of_their_own(store: Store, tmp_path: Path) -> None:
    files = divided(
        tenants_of([[row] for row in range(1, 200)]), store, settings_with(), tmp_path, source="r"
    )
    folders = {str(tenant.folder).casefold() for tenant in (*files.tenants, files.shared)}
    assert len(folders) == len(NAMES) + 1
    assert all(tenant.folder.is_relative_to(tmp_path) for tenant in files.tenants)


def test_without_a_test_there_is_no_file_and_too_few_queries_are_refused(
    store: Store, tmp_path: Path
) -> None:
    given = tenants_of([[row] for row in range(1, 100)])
    files = divided(given, store, settings_with(test_fraction=0.0), tmp_path, source="rows")
    assert {tenant.counts["test"] for tenant in files.tenants} == {0}
    assert not files.tenants[0].path("test").exists()
    with pytest.raises(DataError, match="rows must hold enough queries to divide, got 2, of which none"):
        divided(tenants_of([[1], [2]]), store, settings_with(), tmp_path, source="rows")


def test_documents_that_the_store_lacks_are_told_by_the_name_of_the_data(
    store: Store, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=r"rows: every document must be in the store.*d900"):
        divided(tenants_of([[1], [900], [3]]), store, settings_with(), tmp_path, source="rows")


def test_the_digest_tells_tenants_queries_and_documents_apart() -> None:
    first = tenants_of([[1], [2], [3]])
    digests = {digest_of(first), digest_of(tenants_of([[1], [2], [4]])), digest_of(tenants_of([[1], [2]]))}
    swapped = dict(zip(reversed(NAMES), first.values(), strict=True))
    assert len({*digests, digest_of(swapped)}) == 4
    assert digest_of(tenants_of([[1], [2], [3]])) in digests
