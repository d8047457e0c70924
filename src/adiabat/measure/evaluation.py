"""One evaluation: a model, perhaps a baseline, a target data set and those that must not get worse."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from adiabat.config import EvaluateSettings, MeasureSection
from adiabat.data.examples import read_examples
from adiabat.data.records import ExampleSet, LanguageGridSet
from adiabat.measure.results import ChangedQuery, DatasetResult, Hit, Result
from adiabat.measure.tasks import Role, measure_examples, measure_languages, rows_left_out
from adiabat.model.device import device_name
from adiabat.model.towers import DualEncoder
from adiabat.provenance import now, versions
from adiabat.store.addressing import AddressedSet, address
from adiabat.store.embeddings import Store
from adiabat.store.search import Hits, search
from adiabat.watch import Watch

SHOWN_QUERIES = 10
SHOWN_HITS = 5
SEARCHED_QUERIES = 500
"""Queries looked at, drawn at random, for those whose top results changed."""

SHOWN_CHARACTERS = 500
"""Of a document's text kept in a result file."""


SAME_TOWER = "model and baseline have the same query tower, so nothing differs: the tuning kept the starting weights, or there was none"


@dataclass(frozen=True, slots=True)
class Dataset:
    """A data set with its documents' store, read and found to fit.

    Attributes:
        store: Document vectors.
        examples: Queries by rows, or a language grid.
        role: ``target`` or ``retain``.
        source: Where it was read from, as the user wrote it.
        split: Of the source, where one was named.
    """

    store: Store
    examples: AddressedSet | LanguageGridSet
    role: Role
    source: str = ""
    split: str | None = None


def read_dataset(store: Store, path: str, *, role: Role, settings: EvaluateSettings, split: str | None) -> Dataset:
    """Read a data set and find its documents in a store.

    Args:
        store: Holds the documents.
        path: Of the data set.
        role: ``target`` or ``retain``.
        settings: Columns of the target, and what to do with missing documents. A retention set goes by the names of columns that are
            known: it has no reason to share those of the target.
        split: Of the data set; None takes the usual one.

    Returns:
        The data set.
    """
    columns = settings.data.columns.given() if role == "target" else {}
    examples = read_examples(path, split=split, columns=columns)
    found = address(examples, store, missing=settings.data.missing, merge_equal=True) if isinstance(examples, ExampleSet) else examples
    return Dataset(store, found, role, path, split)


def evaluate_datasets(
    model: DualEncoder,
    baseline: DualEncoder | None,
    datasets: Sequence[Dataset],
    *,
    settings: EvaluateSettings,
    title: str,
    command: str,
    watch: Watch,
) -> Result:
    """Measure every data set.

    Args:
        model: Under test.
        baseline: What it is compared with, or None.
        datasets: The target first.
        settings: What to measure.
        title: Of the report.
        command: The command line, for the report.
        watch: Told how far it is.

    Returns:
        The result, without the record of a tuning job.

    Raises:
        StoreError: If a store was not made by the document tower of the model, or of the baseline.
    """
    started = time.monotonic()
    fingerprints = [tower.fingerprint("document") for tower in filter(None, (model, baseline))]
    for store in {id(one.store): one.store for one in datasets}.values():
        for fingerprint in fingerprints:
            store.require_encoder(fingerprint)
    same = [SAME_TOWER] if baseline and model.fingerprint("query") == baseline.fingerprint("query") else []
    for sentence in same:
        watch.note(sentence)
    seed = settings.run.seed
    measured = [_measure(model, baseline, one, settings, watch) for one in datasets]
    examples = changed_queries(model, baseline, datasets[0], settings=settings.measure, seed=seed) if baseline else []
    return Result(
        title=title,
        command=command,
        created=now(),
        seconds=time.monotonic() - started,
        seed=seed,
        versions=versions(device_name(model.query.device)),
        model=model.name,
        baseline=baseline.name if baseline else None,
        datasets=[replace(one, notes=[*same, *one.notes]) for one in measured],
        examples=examples,
        settings=settings.model_dump(mode="json", exclude_none=True),
        inputs=_inputs(datasets),
    )


def _inputs(datasets: Sequence[Dataset]) -> dict[str, Any]:
    """What was read, by its part: ``target``, ``retain 1``, ``retain 2``, ..."""
    inputs: dict[str, Any] = {}
    for one in datasets:
        name = one.role if one.role == "target" else f"retain {sum(key != 'target' for key in inputs) + 1}"
        split = {} if one.split is None else {"split": one.split}
        inputs[name] = {"data": one.source, **split, "store": str(one.store.path), "store_sha256": one.store.manifest.sha256}
    return inputs


def _measure(model: DualEncoder, baseline: DualEncoder | None, one: Dataset, settings: EvaluateSettings, watch: Watch) -> DatasetResult:
    if isinstance(one.examples, LanguageGridSet):
        return measure_languages(
            model, baseline, one.store, one.examples, role=one.role, settings=settings.measure, seed=settings.run.seed, watch=watch
        )
    return measure_examples(
        model, baseline, one.store, one.examples, role=one.role, settings=settings.measure, seed=settings.run.seed, watch=watch
    )


def changed_queries(
    model: DualEncoder, baseline: DualEncoder, dataset: Dataset, *, settings: MeasureSection, seed: int
) -> list[ChangedQuery]:
    """Queries whose first results changed, drawn at random and not for effect: gains and losses as they come.

    Args:
        model: After.
        baseline: Before.
        dataset: Whose queries are asked; a language grid has none to show.
        settings: Which documents the measures leave out: they are not shown either.
        seed: Of the draw.

    Returns:
        At most `SHOWN_QUERIES`, each with its first `SHOWN_HITS` results before and after.
    """
    examples, store = dataset.examples, dataset.store
    if isinstance(examples, LanguageGridSet):
        return []
    order: list[int] = np.random.default_rng(seed).permutation(len(examples))[:SEARCHED_QUERIES].tolist()
    texts = [examples.queries[row] for row in order]
    aside = rows_left_out(store, examples, settings)
    excluded = [aside[row] for row in order]
    before, after = (
        search(store, tower.encode(texts, side="query", precision="fp32"), SHOWN_HITS, excluded=excluded) for tower in (baseline, model)
    )
    changed = [place for place in range(len(order)) if list(before.rows[place]) != list(after.rows[place])][:SHOWN_QUERIES]
    return [
        ChangedQuery(
            dataset=examples.name,
            query=texts[place],
            before=hits_of(store, before, place, examples.positives[order[place]]),
            after=hits_of(store, after, place, examples.positives[order[place]]),
        )
        for place in changed
    ]


def hits_of(store: Store, hits: Hits, query: int, positives: Int[np.ndarray, " p"]) -> list[Hit]:
    """The results of one query, with ids and texts.

    Args:
        store: That was searched.
        hits: What was found.
        query: Which query of `hits`.
        positives: Rows known to be relevant.

    Returns:
        Best first; texts are cut at `SHOWN_CHARACTERS`, and "" where the store keeps none.
    """
    rows = hits.rows[query][hits.rows[query] >= 0]
    texts = [text[:SHOWN_CHARACTERS] for text in store.texts(rows)] if store.has_texts else [""] * len(rows)
    relevant: Bool[np.ndarray, " k"] = np.isin(rows, positives)
    found = zip(store.doc_ids(rows), texts, hits.scores[query], relevant, strict=False)
    return [Hit(doc_id, text, float(score), bool(good)) for doc_id, text, score, good in found]
