"""The queries of several tenants of one store, divided for training, validation and test.

All tenants are divided together: no query for validation or test shares a relevant document with a query that
any tower is trained on, as far as relevance does not tie most queries together.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from adiabat.adiabatic.tuning_context import queries_held_out
from adiabat.config.tenant_towers import TenantSettings
from adiabat.core.disk import make_folder
from adiabat.core.errors import DataError
from adiabat.core.files import write_text
from adiabat.data.records import Example, ExampleSet
from adiabat.data.text_hashes import held_out_documents, held_out_queries
from adiabat.evaluation.score_files import folder_names
from adiabat.store.addressing import AddressedSet, address
from adiabat.store.vector_store import Store

PARTS = ("train", "validation", "test")
"""Uses of a query."""

SHARED, TENANTS, QUERIES = "shared", "tenants", "queries"
"""Folders: the job of the tower of all tenants; those of each tenant; and the files of their queries."""


@dataclass(frozen=True, slots=True)
class TenantQueries:
    """The queries of one tenant, or those of all for the shared tower, in files of its folder.

    Attributes:
        name: Of the tenant.
        folder: Of its towers.
        files: Folder of its queries.
        counts: Number of queries of each of `PARTS`.
    """

    name: str
    folder: Path
    files: Path
    counts: Mapping[str, int]

    def path(self, part: str) -> Path:
        """The file of a part; there is none for a part without queries."""
        return self.files / f"{part}.jsonl"


@dataclass(frozen=True, slots=True)
class DividedQueries:
    """The queries of all towers.

    Attributes:
        shared: Those of the tower of all tenants.
        tenants: Those of each tenant.
        notes: What could not be held out.
    """

    shared: TenantQueries
    tenants: list[TenantQueries]
    notes: list[str]


def divided(
    tenants: Mapping[str, ExampleSet], store: Store, settings: TenantSettings, folder: Path, *, source: str
) -> DividedQueries:
    """Divide the queries of all tenants, and write a file of each part of each tenant.

    Args:
        tenants: Queries by the name of their tenant.
        store: Addresses their documents.
        settings: Shares of the parts.
        folder: Of all towers.
        source: Name of the data, for messages.

    Returns:
        The files.

    Raises:
        DataError: If documents are missing from the store, or no query is left to train or validate with.
    """
    examples = [example for queries in tenants.values() for example in queries.examples]
    owners = [name for name, queries in tenants.items() for _ in queries.examples]
    first = next(iter(tenants.values()))
    # Numbers instead of ids, which two tenants may both use.
    numbered = [replace(example, query_id=str(number)) for number, example in enumerate(examples)]
    addressed = address(
        ExampleSet(source, numbered, first.holds_texts),
        store,
        missing=settings.data.missing,
        ids=settings.data.ids,
    )
    parts, notes = _parts(addressed, settings)
    for part in ("train", "validation"):
        if not len(parts[part]):
            raise DataError(
                f"{source} must hold enough queries to divide, got {len(addressed):,}, of which none is left "
                f"for {part}; add queries, or lower tenants.test_fraction or data.validation_fraction"
            )
    notes += addressed.notes
    numbers = np.array(addressed.query_ids, dtype=np.int64)
    rows = {part: [examples[number] for number in numbers[taken]] for part, taken in parts.items()}
    of_tenant = {part: [owners[number] for number in numbers[taken]] for part, taken in parts.items()}
    files, validation, most = [], list[Example](), settings.data.max_validation
    for name, short in zip(tenants, folder_names(list(tenants)), strict=True):
        own = {}
        for part in PARTS:
            pairs = zip(rows[part], of_tenant[part], strict=True)
            own[part] = [example for example, owner in pairs if owner == name]
        own["validation"] = _spread(own["validation"], most)
        validation += own["validation"]
        inside = Path(TENANTS) / short
        files.append(_written(name, folder / inside, folder / QUERIES / inside, own))
    every = {"train": rows["train"], "validation": _spread(validation, most), "test": []}
    return DividedQueries(_written(SHARED, folder / SHARED, folder / QUERIES, every), files, notes)


def _parts(
    addressed: AddressedSet, settings: TenantSettings
) -> tuple[dict[str, Int[np.ndarray, " n"]], list[str]]:
    """Numbers of the queries of each part, and notes on what could not be held out."""
    of_test, of_rest = settings.tenants.test_fraction, settings.data.validation_fraction
    share, hold_out = of_test + (1 - of_test) * of_rest, settings.data.hold_out
    held_out, notes = queries_held_out(addressed, hold_out, share, len(addressed))
    rest, test = addressed.take(held_out), None
    if hold_out == "documents" and not notes:
        test = held_out_documents(rest.queries, rest.positives, of_test / share, len(rest))
        if test is None and of_test:
            notes.append("relevance ties most held-out queries together: test and validation share documents")
    if test is None:
        # Hashes are compared with shares of all queries, so that this is the test's own.
        test = held_out_queries(rest.queries, of_test, len(rest))
    return {
        "train": np.setdiff1d(np.arange(len(addressed)), held_out),
        "validation": np.delete(held_out, test),
        "test": held_out[test],
    }, notes


def _spread(examples: Sequence[Example], most: int) -> list[Example]:
    """At most so many examples, at equal distances."""
    if len(examples) <= most:
        return list(examples)
    return [examples[number] for number in np.linspace(0, len(examples) - 1, most).astype(np.int64)]


def _written(name: str, folder: Path, files: Path, parts: Mapping[str, Sequence[Example]]) -> TenantQueries:
    """Write the parts that have queries."""
    make_folder(files, parents=True)
    written = TenantQueries(name, folder, files, {part: len(examples) for part, examples in parts.items()})
    for part, examples in parts.items():
        if examples:
            # Two tenants may both number their queries from 1.
            has_ids = len({example.query_id for example in examples}) == len(examples)
            lines = [json.dumps(_row(example, has_id=has_ids)) for example in examples]
            write_text("\n".join(lines) + "\n", written.path(part))
    return written


def _row(example: Example, *, has_id: bool) -> dict[str, Any]:
    """A row with an example, as `adiabat.data.examples` reads it."""
    row: dict[str, Any] = {"query_id": example.query_id} if has_id else {}
    row |= {"query": example.query, "positive": example.positives, "negative": example.negatives}
    if example.scores:
        row["scores"] = example.scores
    return row


def digest_of(tenants: Mapping[str, ExampleSet]) -> str:
    """SHA-256 over the queries of all tenants with their documents."""
    digest = hashlib.sha256()
    for name, queries in tenants.items():
        rows = [_row(example, has_id=True) for example in queries.examples]
        digest.update(json.dumps([name, rows]).encode())
    return digest.hexdigest()
