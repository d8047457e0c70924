"""All documents of a store on a GPU, taken and searched without waiting for it: no shape and no decision of
the host depends on a score.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from adiabat.models.embedding_head import Similarity
from adiabat.store.scoring import Block, FixedPoint, exact_pairs

ROWS_SCORED = 65_536
"""Documents that are scored at a time."""

SPARE = 8
"""Documents beside the hardest whose exact scores are compared: an ordinary product may misplace those that
differ in the last digits."""


@dataclass(frozen=True, slots=True)
class DeviceStore:
    """All documents of a store on a GPU.

    It serves recorded steps (`adiabat.training.captured_step`), which may not wait for the device.
    """

    documents: Block

    def take(self, rows: Int[Tensor, "*any"]) -> Float[Tensor, "*any e"]:
        """Vectors by their rows."""
        return self.documents.vectors[rows]

    def blocks(self) -> Iterator[tuple[int, Float[Tensor, "b e"]]]:
        """All vectors, block by block."""
        for part in self.documents.parts(ROWS_SCORED):
            yield part.start, part.vectors

    def hardest(
        self, query: Float[Tensor, "b e"], known: Int[Tensor, "b m"], count: int, similarity: Similarity
    ) -> Int[Tensor, "b h"]:
        """Rows of the nearest documents that are not known answers of the query, as a search finds them: of
        equal scores, the lower row.

        Quick scores find ``count + SPARE`` candidates, block by block; exact scores order these. Known
        answers have a score of minus infinity: they come last, and no shape depends on their number.
        """
        kept = min(count + SPARE, len(self.documents))
        scores = torch.full((len(query), kept), -torch.inf, device=query.device)
        rows = torch.zeros(len(query), kept, dtype=torch.int64, device=query.device)
        for part in self.documents.parts(ROWS_SCORED):
            more = without_answers(known, _quick_scores(query, part, similarity), part.start)
            numbers = torch.arange(part.start, part.start + len(part), device=query.device).expand_as(more)
            scores, best = torch.cat([scores, more], dim=1).topk(kept)
            rows = torch.cat([rows, numbers], dim=1).gather(1, best)
        rows, order = rows.sort(dim=1)
        asked, documents = FixedPoint.of(query.unsqueeze(1)), FixedPoint.of(self.take(rows))
        exact = exact_pairs(asked, documents, similarity)
        exact = exact.masked_fill(scores.gather(1, order).isneginf(), -torch.inf)
        # A stable sort leaves equal scores in the order of their rows.
        order = exact.sort(dim=1, descending=True, stable=True).indices[:, :count]
        return rows.gather(1, order)


def _quick_scores(
    query: Float[Tensor, "q e"], documents: Block, similarity: Similarity
) -> Float[Tensor, "q b"]:
    """Numbers in the order of a query's scores, whatever its length."""
    products = query @ documents.vectors.T
    if similarity == "distance":
        return 2 * products - documents.lengths.square()
    return products / documents.divisors if similarity == "cosine" else products


def without_answers(
    known: Int[Tensor, "q m"], scores: Float[Tensor, "q b"], start: int
) -> Float[Tensor, "q b"]:
    """Scores of a block of documents from the row `start` on, minus infinity for known answers; a GPU is not
    waited for.
    """
    width = scores.shape[1]
    inside = (known >= start) & (known < start + width)
    # Answers elsewhere go to a column beyond the block.
    columns = torch.where(inside, known - start, width)
    answers = torch.zeros(len(known), width + 1, dtype=torch.bool, device=scores.device).scatter_(
        1, columns, True
    )
    return scores.masked_fill_(answers[:, :width], -torch.inf)
