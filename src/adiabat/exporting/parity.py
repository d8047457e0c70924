"""Proof that an export gives the model's own vectors: cosines over many texts, and the change in ranking."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64, Int

from adiabat.adiabatic.judged_queries import JudgedQueries
from adiabat.adiabatic.probes import REHEARSAL, read_probes
from adiabat.config.exporting import ComparedSection
from adiabat.core.errors import AdiabatError, DataError
from adiabat.core.progress import Watch
from adiabat.core.text import counted
from adiabat.data.examples import read_examples
from adiabat.data.records import ExampleSet, Side
from adiabat.data.sources import with_columns, with_split
from adiabat.exporting.job_tables import tables_of
from adiabat.models.bulk import TokenTable
from adiabat.models.openvino_graphs import CALIBRATED
from adiabat.models.towers import DualEncoder
from adiabat.results.evaluation_result import Change
from adiabat.stats.paired import paired_changes
from adiabat.store.addressing import address
from adiabat.store.vector_store import Store

TEXTS = 1_000
"""Texts that an export is compared on."""

Vectors = Float[np.ndarray, "n e"]


@dataclass(frozen=True)
class Compared:
    """Texts that vectors are compared on, drawn by a fixed seed.

    Attributes:
        source: What they are, in words.
        others: Texts of the same kind to calibrate int8 on; the compared ones where there are no others.
        judged: The same texts as queries of a store, if they have relevant documents there.
    """

    texts: Sequence[str]
    source: str
    others: Sequence[str]
    judged: JudgedQueries | None = None

    @property
    def named(self) -> str:
        """Number and source."""
        return f"{counted(len(self.texts), 'text')} ({self.source})"


@dataclass(frozen=True, slots=True)
class Parity:
    """Agreement of an export with the model.

    Attributes:
        texts: What was compared, in words.
        minimum: Least cosine of two vectors of one text.
        mean: Mean cosine.
        worst: The text of the least cosine.
        change: Paired change of the ranking of these texts as queries; None if it was not measured.
    """

    texts: str
    minimum: float
    mean: float
    worst: str
    change: Change | None = None


def compared_texts(
    model: DualEncoder, section: ComparedSection, side: Side, watch: Watch, *, most: int = TEXTS
) -> Compared:
    """The texts to compare on, at most `most`: those that are named, else those of the job, else packaged
    ones.
    """
    tables = tables_of(model.name)
    of_job, columns = tables.get("job", {}), tables.get("data", {})
    data, store = section.data, section.store or of_job.get("store")
    if data is None and (listed := of_job.get("data")):
        first = listed[0] if isinstance(listed, list) else listed
        data = with_columns(with_split(first, columns.get("split")), columns.get("columns", {}))
    try:
        if side == "document" and store is not None:
            return _documents(Store.open(store), most)
        if side == "query" and data is not None:
            return _queries(data, None if store is None else Store.open(store), model, most)
    except AdiabatError as fault:
        # What the user names must be there; the job's own inputs may have moved since.
        if section.data is not None or section.store is not None:
            raise
        watch.note(f"the job's texts cannot be read, packaged ones are compared: {fault}")
    packaged = "packaged with adiabat, in many languages"
    texts = read_probes().texts
    drawn, _ = _drawn(len(texts), most)
    return Compared([texts[row] for row in drawn], packaged, read_probes(REHEARSAL).texts[:CALIBRATED])


def _documents(store: Store, most: int) -> Compared:
    if not store.has_texts:
        raise DataError(
            f"{store.path} must keep its texts to compare document vectors on, it holds vectors only"
        )
    drawn, others = _drawn(store.count, most)
    return Compared(store.texts(drawn), f"documents of {store.path}", store.texts(others))


def _queries(data: str, store: Store | None, model: DualEncoder, most: int) -> Compared:
    examples = read_examples(data, usual_split="test")
    if not isinstance(examples, ExampleSet):
        raise DataError(f"{data} must be queries with positives, got a language grid; name examples")
    if store is None:
        queries = list(dict.fromkeys(example.query for example in examples.examples))
        rows, others = _drawn(len(queries), most)
        calibrated = [queries[row] for row in others]
        return Compared([queries[row] for row in rows], f"queries of {data}", calibrated)
    addressed = address(examples, store, missing="drop", merge_equal=True)
    rows, others = _drawn(len(addressed), most)
    drawn, calibrated = addressed.take(rows), [addressed.queries[row] for row in others]
    tokens = TokenTable.of(model.query, drawn.queries, side="query")
    judged = JudgedQueries.of(store, drawn, tokens, model.ranks_by)
    return Compared(drawn.queries, f"queries of {data}", calibrated, judged)


def _drawn(count: int, most: int) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " c"]]:
    """Rows of the texts to compare on, and of those to calibrate on, ascending."""
    order = np.random.default_rng(0).permutation(count)
    drawn, others = order[:most], order[most:][:CALIBRATED]
    if len(others) < CALIBRATED:
        others = drawn[:CALIBRATED]
    return np.sort(drawn), np.sort(others)


def parity(compared: Compared, own: Vectors, exported: Vectors, *, ranked: bool) -> Parity:
    """Compare vectors of the same texts, and with `ranked` what both rank."""
    found = cosines(own, exported)
    worst = int(np.argmin(np.where(np.isfinite(found), found, -np.inf)))
    change = _change(compared.judged, own, exported) if ranked and compared.judged is not None else None
    return Parity(compared.named, float(found[worst]), float(found.mean()), compared.texts[worst], change)


def cosines(own: Vectors, others: Vectors) -> Float64[np.ndarray, " n"]:
    """Cosine of each pair of vectors, over the dimensions that both have."""
    width = min(own.shape[1], others.shape[1])
    first, second = (vectors[:, :width].astype(np.float64) for vectors in (own, others))
    lengths = [np.linalg.norm(vectors, axis=1) for vectors in (first, second)]
    # A vector of zeros, such as that of a text without a known word, equals another one, and no other vector.
    both, either = (lengths[0] == 0) & (lengths[1] == 0), (lengths[0] == 0) | (lengths[1] == 0)
    found = np.einsum("ne,ne->n", first, second) / np.where(either, 1.0, lengths[0] * lengths[1])
    found[both] = 1.0
    return np.asarray(found)


def _change(judged: JudgedQueries, own: Vectors, exported: Vectors) -> Change:
    device = torch.device("cpu")
    after, before = (judged.sample(judged.scores(vectors, device)) for vectors in (exported, own))
    return paired_changes([after], [before], seed=0, is_retained=True)[0]
