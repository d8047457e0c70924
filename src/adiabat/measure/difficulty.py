"""How errors fall as negatives get easier (mission A10, A11; the source's figure 6).

For examples that list their negatives from hard to easy, as *arxiv-negatives* does: negative number d is that of difficulty d. All
difficulties come from one pass, since a query and its positive are scored once.
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np
from jaxtyping import Bool, Int

from adiabat.data.records import Example, ExampleSet
from adiabat.errors import DataError, several
from adiabat.measure.paired import paired_changes
from adiabat.measure.resampling import RESAMPLES
from adiabat.measure.results import Change
from adiabat.measure.samples import SHARE, Sample
from adiabat.model.towers import DualEncoder
from adiabat.store.addressing import rows_of_entries
from adiabat.store.embeddings import Store
from adiabat.store.scoring import Similarity
from adiabat.store.search import score_rows
from adiabat.watch import SILENT, Watch

QUERIES_AT_A_TIME = 2048
"""Between two words on how far it is."""


def errors_by_difficulty(
    model: DualEncoder, store: Store, examples: ExampleSet, *, similarity: Similarity = "cosine", watch: Watch = SILENT
) -> Bool[np.ndarray, "q d"]:
    """Find for each query the difficulties at which its positive is not strictly closer than the negative.

    Args:
        model: Whose query tower is asked.
        store: Documents of its document tower.
        examples: One positive each, and equally many negatives, from hard to easy.
        similarity: What closer means.
        watch: Told how far it is.

    Returns:
        True where it is an error; a tie is one. Column 0 is difficulty 1.

    Raises:
        DataError: If an example has another number of positives or negatives, or documents are not in the store.
        StoreError: If the store was not made by the model's document tower.
    """
    store.require_encoder(model.fingerprint("document"))
    rows = _rows(examples, store)
    texts = [example.query for example in examples.examples]
    watch.note(f"encoding {len(texts):,} queries of {examples.name}")
    queries = model.encode(texts, side="query", precision="fp32")
    errors = np.empty((len(rows), rows.shape[1] - 1), dtype=np.bool_)
    for start in range(0, len(rows), QUERIES_AT_A_TIME):
        part = slice(start, start + QUERIES_AT_A_TIME)
        scores = score_rows(store, queries[part], rows[part], similarity=similarity)
        errors[part] = scores[:, 1:] >= scores[:, :1]
        watch.progress(f"scoring {examples.name}", min(part.stop, len(rows)), len(rows))
    return errors


def changes_by_difficulty(
    errors: Bool[np.ndarray, "q d"],
    before: Bool[np.ndarray, "q d"] | None = None,
    *,
    similarity: Similarity = "cosine",
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> list[Change]:
    """The positive-negative discrepancy at each difficulty, with bootstrap intervals over queries.

    Args:
        errors: From `errors_by_difficulty`.
        before: The same of a baseline on the same examples, or None.
        similarity: As it was measured.
        seed: Of the bootstrap; all difficulties share their resamples.
        resamples: How many, > 0.

    Returns:
        One change per difficulty, 1 first: ``PND, difficulty 1``. Intervals of differences are paired.
    """
    others = None if before is None else _samples(before, similarity)
    return paired_changes(_samples(errors, similarity), others, seed=seed, resamples=resamples)


def against_hardest(errors: Bool[np.ndarray, "q d"]) -> Bool[np.ndarray, "q d"]:
    """Take difficulty 1 as what every difficulty is compared with, for `changes_by_difficulty`.

    Args:
        errors: From `errors_by_difficulty`.

    Returns:
        The first column, as often as there are difficulties.
    """
    return np.repeat(errors[:, :1], errors.shape[1], axis=1)


def _rows(examples: ExampleSet, store: Store) -> Int[np.ndarray, "q entries"]:
    """Rows of each query's positive and negatives, in order and with repetitions."""
    _require_ladders(examples)
    entries = [(*example.positives, *example.negatives) for example in examples.examples]
    distinct = list(dict.fromkeys(chain.from_iterable(entries)))
    rows = rows_of_entries(distinct, store, ids_alone=examples.holds_texts is False).tolist()
    absent = [repr(entry) for entry, row in zip(distinct, rows, strict=True) if row < 0]
    if absent:
        raise DataError(
            f"{examples.name}: every document must be in the store {store.path}, it lacks {several(absent, of='documents')}; embed them"
        )
    row_of = dict(zip(distinct, rows, strict=True))
    return np.array([[row_of[entry] for entry in listed] for listed in entries])


def _require_ladders(examples: ExampleSet) -> None:
    steps = len(examples.examples[0].negatives)
    wrong = [fault for example in examples.examples for fault in _faults(example, steps)]
    if not steps:
        wrong = [f"{examples.name}: negatives must be listed from hard to easy, got none in the first example"]
    if wrong:
        raise DataError(f"{several(wrong)}; name a file such as test.jsonl.gz of arxiv-negatives")


def _faults(example: Example, steps: int) -> Sequence[str]:
    place = example.where or example.query_id
    faults = []
    if len(example.positives) != 1:
        faults.append(f"{place}: an example must have one positive, got {len(example.positives)}")
    if len(example.negatives) != steps:
        faults.append(f"{place}: an example must have {steps} negatives as the first has, got {len(example.negatives)}")
    return faults


def _samples(errors: Bool[np.ndarray, "q d"], similarity: Similarity) -> list[Sample]:
    return [
        Sample(f"PND, difficulty {number}", column, similarity, lower_is_better=True, proportion=True, bounds=SHARE)
        for number, column in enumerate(errors.T.astype(np.float64), start=1)
    ]
