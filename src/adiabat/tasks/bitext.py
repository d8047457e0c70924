"""Parallel sentences: each should find its translation among all sentences of the other language.

Scores are as `adiabat.store.scoring` defines them, the same however the work is cut into blocks, so that a tie is a tie. Quick products
settle most pairs; the exact score decides those that their error leaves open. No table of all pairs is ever held.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int

from adiabat.data.labelled import ParallelTexts
from adiabat.data.records import Side
from adiabat.measure.samples import SHARE, Sample, TaskScores
from adiabat.model.towers import DualEncoder
from adiabat.store.scoring import Block, FixedPoint, Queries, Similarity, exact_pairs
from adiabat.tasks.texts import embed_texts, require_directions
from adiabat.watch import SILENT, Watch

BLOCK_ROWS = 4096
TILE_ROWS = 256
"""Sentences that look for their translation at a time; with `BLOCK_ROWS`, 4 MB of scores."""


def score_bitext(model: DualEncoder, sentences: ParallelTexts, *, side: Side, name: str, watch: Watch) -> TaskScores:
    """Share of sentences whose translation is the nearest, by the model's similarity, among all sentences of the other side, both ways."""
    texts = [*sentences.a, *sentences.b]
    vectors = embed_texts(model, texts, side=side, name=name, watch=watch)
    require_directions(vectors, texts, name=name)
    a, b = vectors[: len(sentences)], vectors[len(sentences) :]
    there = finds_own(a, b, sentences.b, similarity=model.ranks_by, name=name, watch=watch).astype(np.float64)
    back = finds_own(b, a, sentences.a, similarity=model.ranks_by, name=name, watch=watch).astype(np.float64)
    sample = partial(Sample, similarity=model.ranks_by, bounds=SHARE)
    return TaskScores(
        task=name,
        kind="bitext",
        unit="pair",
        units=[str(number) for number in range(len(sentences))],
        samples=[sample("accuracy", (there + back) / 2), sample("accuracy a to b", there), sample("accuracy b to a", back)],
        texts=[f"{one}\n{other}" for one, other in zip(sentences.a, sentences.b, strict=True)],
        documents=len(sentences),
        notes=_notes(sentences),
    )


def finds_own(
    queries: Float32[np.ndarray, "n e"],
    answers: Float32[np.ndarray, "n e"],
    texts: Sequence[str],
    *,
    similarity: Similarity = "cosine",
    name: str = "",
    watch: Watch = SILENT,
    block_rows: int = BLOCK_ROWS,
    tile_rows: int = TILE_ROWS,
) -> Bool[np.ndarray, " n"]:
    """Which queries are closer to their own answer than to every other.

    Args:
        queries: One row per pair, none zero.
    """
    row_of: dict[str, int] = {}
    right = np.array([row_of.setdefault(text, len(row_of)) for text in texts])
    distinct = answers[np.unique(right, return_index=True)[1]]
    found = np.empty(len(queries), dtype=np.bool_)
    for start in range(0, len(queries), tile_rows):
        tile = slice(start, min(start + tile_rows, len(queries)))
        asked = Queries(queries[tile], similarity)
        own = exact_pairs(asked.exact, FixedPoint.of(answers[tile]), similarity)
        found[tile] = ~_beaten(asked, right[tile], own, _blocks(distinct, block_rows))
        watch.progress(f"matching {name}", tile.stop, len(queries))
    return found


def _blocks(vectors: Float32[np.ndarray, "d e"], rows: int) -> Iterator[Block]:
    for start in range(0, len(vectors), rows):
        block = torch.from_numpy(vectors[start : start + rows])
        yield Block(start, block, torch.linalg.vector_norm(block, dim=1))


def _beaten(
    queries: Queries, right: Int[np.ndarray, " q"], own: Float32[np.ndarray, " q"], blocks: Iterator[Block]
) -> Bool[np.ndarray, " q"]:
    """Whether some answer but the right one scores at least `own`."""
    beaten = np.zeros(len(right), dtype=np.bool_)
    for block in blocks:
        quick, error = block.approximate(queries)
        inside = np.flatnonzero((right >= block.start) & (right < block.start + len(block)))
        quick[inside, right[inside] - block.start] = -np.inf
        # Most queries are settled by their best rival alone.
        best = quick.max(axis=1)
        beaten |= best >= (own + error).astype(np.float32)
        low = (own - error).astype(np.float32)
        open_queries = np.flatnonzero(~beaten & (best >= low))
        row, place = np.nonzero(quick[open_queries] >= low[open_queries, None])
        if len(row):
            query = open_queries[row]
            beaten[query[block.exact(queries, query, place) >= own[query]]] = True
    return beaten


def _notes(sentences: ParallelTexts) -> tuple[str, ...]:
    a, b = sentences.columns
    repeated = [
        f'{len(texts) - len(set(texts)):,} of {len(texts):,} sentences of "{column}" repeat another: equal sentences are one answer'
        for column, texts in ((a, sentences.a), (b, sentences.b))
        if len(set(texts)) < len(texts)
    ]
    return (f'a is "{a}", b is "{b}"; a tie with another sentence is an error', *repeated)
