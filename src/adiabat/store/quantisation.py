"""int8 for the documents of a corpus: the graph that stays with their vectors, and what it changes."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int64

from adiabat.core.arrays import VectorArray
from adiabat.core.disk import sync
from adiabat.core.progress import Watch
from adiabat.core.provenance import digest_of
from adiabat.models.embedding_head import Similarity
from adiabat.models.openvino_graphs import CALIBRATED, OpenVinoRuntime, write_quantised
from adiabat.models.towers import DualEncoder
from adiabat.stats.paired import paired_changes
from adiabat.stats.samples import Sample
from adiabat.store.build import INT8, Encoding
from adiabat.store.corpus_files import StringColumn
from adiabat.store.manifest import GRAPH_FILE, GRAPH_FILES, GRAPH_WEIGHTS_FILE, Quantisation

COMPARED = 1_000
"""Documents that are embedded in int8 and in float32 to compare both."""

CUTOFF = 10
"""Of nDCG."""

SENTENCE_ENDS = (". ", "? ", "! ", "\n", "。")


def quantised_encoding(
    model: DualEncoder, texts: StringColumn, folder: Path, seed: int, watch: Watch
) -> tuple[Encoding, DualEncoder]:
    """Quantise the document tower on texts of a corpus, write its graph into a folder, and compare it.

    Returns:
        The encoding, and the model whose documents the graph embeds.
    """
    watch.note(f"quantising the document tower on {min(CALIBRATED, len(texts))} documents")
    order = np.random.default_rng(seed).permutation(len(texts))
    calibrated = texts.take(np.sort(order[:CALIBRATED]))
    write_quantised(model.document, "document", calibrated, folder / GRAPH_FILE)
    for name in GRAPH_FILES:
        sync(folder / name)
    digests = {name: digest_of(folder / name) for name in GRAPH_FILES}
    quantised = by_graph(model, folder)
    # Others than the calibrated ones, as far as there are any.
    compared = texts.take(np.sort(np.roll(order, -CALIBRATED)[:COMPARED]))
    effect = effect_of(model, quantised, compared, len(calibrated))
    watch.note(effect.told)
    identity = f"int8 {digests[GRAPH_WEIGHTS_FILE].sha256}"
    return Encoding(INT8, identity, digests, effect), quantised


def by_graph(model: DualEncoder, folder: Path) -> DualEncoder:
    """A model whose documents the quantised graph of a folder embeds."""
    return model.with_runtime(OpenVinoRuntime(folder / GRAPH_FILE, "int8"), "document")


def effect_of(
    model: DualEncoder, quantised: DualEncoder, texts: Sequence[str], calibrated: int
) -> Quantisation:
    """What int8 changes: cosines of documents, and how well their own first sentences find them.

    Where a document has several sentences, the first one is a query, and only the rest is embedded as the
    document. It is the one relevant document among all.
    """
    parts = [parted(text) for text in dict.fromkeys(texts)]
    documents = [rest for _, rest in parts]
    exact = model.encode(documents, side="document", precision="fp32")
    rounded = quantised.encode(documents, side="document", precision="fp32")
    cosines = _cosines(exact, rounded)
    asking = np.array([row for row, (query, _) in enumerate(parts) if query], dtype=np.int64)
    figures = Quantisation(calibrated, len(documents), float(cosines.min()), float(cosines.mean()))
    if not len(asking):
        return figures
    queries = model.encode([parts[row][0] for row in asking.tolist()], side="query", precision="fp32")
    before, after = (
        known_item_gains(_scores(queries, vectors, model.ranks_by), asking) for vectors in (exact, rounded)
    )
    change = paired_changes([_sample(after)], [_sample(before)], seed=0)[0]
    return Quantisation(
        calibrated,
        len(documents),
        figures.minimum_cosine,
        figures.mean_cosine,
        len(asking),
        float(before.mean()),
        float(after.mean()),
        change.difference_interval,
    )


def parted(text: str) -> tuple[str, str]:
    """The first sentence of a text and the rest; "" and the text if there is no rest."""
    ends = [place + len(end) for end in SENTENCE_ENDS if (place := text.find(end)) > 0]
    if not ends:
        return "", text
    query, rest = text[: min(ends)].strip(), text[min(ends) :].strip()
    return (query, rest) if query and rest else ("", text)


def known_item_gains(
    scores: Float64[np.ndarray, "q n"], relevant: Int64[np.ndarray, " q"]
) -> Float64[np.ndarray, " q"]:
    """nDCG@10 of queries with one relevant document each: ``1 / log2(1 + rank)``, 0 beyond rank 10.

    A document of an equal score counts as ranked before the relevant one.
    """
    own = scores[np.arange(len(relevant)), relevant]
    rank = (scores >= own[:, None]).sum(axis=1)
    return np.where(rank <= CUTOFF, math.log(2) / np.log1p(rank), 0.0)


def _sample(gains: Float64[np.ndarray, " q"]) -> Sample:
    return Sample(f"nDCG@{CUTOFF}", gains, bounds=(0.0, 1.0))


def _cosines(vectors: VectorArray, others: VectorArray) -> Float64[np.ndarray, " n"]:
    return np.asarray(np.einsum("ne,ne->n", _unit(vectors), _unit(others)))


def _unit(vectors: VectorArray) -> Float64[np.ndarray, "n e"]:
    exact = vectors.astype(np.float64)
    return np.asarray(exact / np.linalg.norm(exact, axis=1, keepdims=True))


def _scores(
    queries: VectorArray, documents: VectorArray, similarity: Similarity
) -> Float64[np.ndarray, "q n"]:
    """Scores by which documents are ranked; by distance, nearer ones score higher."""
    if similarity == "cosine":
        return np.asarray(_unit(queries) @ _unit(documents).T)
    products = queries.astype(np.float64) @ documents.astype(np.float64).T
    if similarity == "dot":
        return np.asarray(products)
    # |q - d|^2 = |q|^2 - 2 q d + |d|^2, of which the first part is the same for all documents.
    lengths = np.square(documents, dtype=np.float64).sum(axis=1)
    return np.asarray(2.0 * products - lengths)
