"""Texts of pairs as inputs of towers: tokens for trained towers, and vectors of frozen ones, each embedded
once.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from adiabat.config.dual_training import TrainSettings
from adiabat.core.errors import DataError, several
from adiabat.core.text import cut
from adiabat.core.wording import call_of, option
from adiabat.data.batch_sampler import BatchSampler
from adiabat.data.pair_sets import OfPairs, PairSet, TextColumn, TextList, Texts
from adiabat.data.records import SIDES, Side
from adiabat.dual_encoder.batches import Batch, Shard, Sides
from adiabat.models.bulk import TokenTable
from adiabat.models.device import Precision, on_device
from adiabat.models.encoder import Encoder
from adiabat.models.towers import DualEncoder
from adiabat.store.addressing import rows_of_entries
from adiabat.store.text_vectors import UNUSED, VALIDATED, EmbeddingCache
from adiabat.store.vector_store import Store
from adiabat.training.flop_count import operations_of
from adiabat.training.passes import Group, Passes


class TextCache:
    """The texts of one side for one tower: tokens if the tower is trained, otherwise vectors, each computed
    when first needed.

    The last bits of a vector depend on the texts in the same pass. Vectors in a directory outlive the
    process, so that a resumed run reads what it embedded before and equals an uninterrupted one.
    """

    def __init__(
        self,
        tower: Encoder,
        texts: TextColumn,
        *,
        side: Side,
        precision: Precision,
        tokens: TokenTable | None = None,
    ) -> None:
        """Set up without embedding or writing anything.

        Args:
            tokens: Tokens of the texts for a trained tower; None caches vectors.
        """
        self.tower = tower
        self.texts = texts
        self.side = side
        self.precision = precision
        self.tokens = tokens
        self.holds_vectors = tokens is None
        """Whether vectors are computed once and cached."""
        self.vectors = EmbeddingCache(len(texts) if self.holds_vectors else 0, tower.width)

    def embed(self, rows: Int[np.ndarray, " b"]) -> Float[Tensor, "b e"]:
        """Embeddings of some texts, without dropout: cached ones of a frozen tower, otherwise computed on all
        cores.
        """
        if self.tokens is not None:
            vectors = self.tower.encode(self.texts.take(rows), side=self.side, precision=self.precision)
            return on_device(torch.from_numpy(vectors), self.tower.device)
        # In ascending order, so that a batch of new texts does not depend on the order of the rows.
        new = np.unique(rows[~self.vectors.known[rows]])
        if len(new):
            texts = self.texts.take(new)
            self.vectors.put(new, self.tower.encode(texts, side=self.side, precision=self.precision))
        return on_device(torch.from_numpy(np.asarray(self.vectors.vectors[rows])), self.tower.device)

    def first_operations(self, rows: Int[np.ndarray, " b"], step: int) -> float:
        """Operations of embedding the texts that a step is the first to need.

        They follow from the step's number: a resumed run counts the same, though it reads vectors that the
        steps it repeats embedded.
        """
        new = rows[self.vectors.first_steps[rows] >= step]
        self.vectors.first_steps[new] = step
        lengths = self.tower.tokenize(self.texts.take(new), side=self.side).lengths
        return (
            operations_of(self.tower).of(lengths, trained=False, cached=False, checkpointed=False)
            if len(new)
            else 0.0
        )


class StoreCache(TextCache):
    """Documents whose vectors are in a store, which no tower embeds.

    Texts of these documents are ids, or texts that the store has; a document that it lacks is refused before
    the first step.
    """

    def __init__(self, tower: Encoder, texts: TextColumn, store: Store, *, precision: Precision) -> None:
        """Find documents in a store."""
        super().__init__(tower, TextList(), side="document", precision=precision)
        self.holds_vectors = False
        self._store = store
        self._rows = rows_of_entries(list(texts), store)
        if absent := [f'"{cut(entry, limit=60)}"' for entry in texts.take(np.flatnonzero(self._rows < 0))]:
            raise DataError(
                f"every document must be in the store {store.path}, it lacks "
                f"{several(absent, of='documents')}; "
                f"embed them ({call_of('embed')}, with {option('append', True)}), or leave towers.store out"
            )

    def embed(self, rows: Int[np.ndarray, " b"]) -> Float[Tensor, "b e"]:
        """Vectors of some documents."""
        return on_device(torch.from_numpy(self._store.gather(self._rows[rows])), self.tower.device)


@dataclass(frozen=True)
class PairTexts:
    """The texts of some pairs, cached on both sides for the towers, and for the guide if it is another
    model.
    """

    sides: Mapping[Side, TextCache] = field(repr=False)
    guides: Mapping[Side, TextCache] = field(repr=False)

    @classmethod
    def of(
        cls,
        texts: Texts,
        towers: DualEncoder,
        settings: TrainSettings,
        *,
        guide: DualEncoder | None = None,
        store: Store | None = None,
    ) -> "PairTexts":
        """Tokenise texts for trained towers, and create caches for the others; a store provides documents."""
        precision, columns = settings.run.precision, {"query": texts.queries, "document": texts.documents}

        def cache(side: Side) -> TextCache:
            """The texts of one side: from the store, as tokens of a trained tower, or as vectors."""
            tower = towers.tower(side)
            if side == "document" and store is not None:
                return StoreCache(tower, texts.documents, store, precision=precision)
            tokens = (
                TokenTable.of(tower, columns[side], side=side, folder=texts.folder)
                if is_trained(tower)
                else None
            )
            return TextCache(tower, columns[side], side=side, precision=precision, tokens=tokens)

        judges = {} if guide is None else {side: guide.tower(side) for side in SIDES}
        guides = {
            side: TextCache(tower, columns[side], side=side, precision=precision)
            for side, tower in judges.items()
        }
        return cls({side: cache(side) for side in SIDES}, guides)

    @property
    def tables(self) -> dict[Side, TokenTable]:
        """Tokens of each side with a trained tower."""
        return {side: cache.tokens for side, cache in self.sides.items() if cache.tokens is not None}

    @property
    def trained(self) -> list[Encoder]:
        """Trained towers; a shared one is listed once."""
        return list(dict.fromkeys(self.sides[side].tower for side in self.tables))

    def tokens(self, pairs: PairSet) -> OfPairs:
        """Tokens of each pair that pass through trained towers, both sides together."""
        tokens = np.zeros(len(pairs), dtype=np.int64)
        for side, table in self.tables.items():
            tokens += table.lengths[pairs.query if side == "query" else pairs.positive]
        return tokens

    def embed(self, batch: Batch, passes: Passes) -> Sides:
        """Embed each distinct text of a batch once, by its tower or from its cache.

        Trained towers pass both sides together (`Passes.embed_all`), so that two threads share all chunks.
        """
        distinct = {side: np.unique(rows, return_inverse=True) for side, rows in batch.sides.items()}
        groups = self.groups({side: rows for side, (rows, _) in distinct.items()})
        vectors = dict(zip(self.tables, passes.embed_all(groups), strict=True))
        vectors |= {
            side: cache.embed(distinct[side][0]) for side, cache in self.sides.items() if cache.tokens is None
        }
        query, document = (
            vectors[side][on_device(torch.from_numpy(distinct[side][1]), vectors[side].device)]
            for side in SIDES
        )
        return Sides(query, document)

    def groups(self, distinct: Mapping[Side, Int[np.ndarray, " _"]]) -> list[Group]:
        """Texts of a batch that pass through a trained tower; a shared tower passes both sides."""
        trained = self.trained
        return [
            Group(table, distinct[side], trained.index(self.sides[side].tower))
            for side, table in self.tables.items()
        ]

    def guide(self, batch: Batch) -> Sides | None:
        """The guide's embeddings of a batch's texts; None if no other model is the guide."""
        return (
            Sides(*(self.guides[side].embed(rows) for side, rows in batch.sides.items()))
            if self.guides
            else None
        )

    def keep_in(self, folder: Path, rank: int, *, resume: bool) -> None:
        """Keep vectors in files, so that a resumed run reads the same ones."""
        for name, cache in self._embedding().items():
            cache.vectors.keep_in(folder / f"{name}-{rank}", resume=resume)

    def first_operations(self, distinct: Mapping[Side, Int[np.ndarray, " _"]], step: int) -> float:
        """Operations of embedding the texts of a step that it is the first to need."""
        return math.fsum(
            cache.first_operations(distinct[cache.side], step) for cache in self._embedding().values()
        )

    def leave_uncounted(self) -> None:
        """Count the texts that a validation was the first to need towards no step."""
        for cache in self._embedding().values():
            cache.vectors.first_steps[cache.vectors.known & (cache.vectors.first_steps == UNUSED)] = VALIDATED

    def save(self) -> None:
        """Record on disk which vectors exist; call it with every checkpoint."""
        for cache in self._embedding().values():
            cache.vectors.save()

    def _embedding(self) -> dict[str, TextCache]:
        """Caches of vectors, by the name of their file."""
        frozen = {f"frozen-{side}": cache for side, cache in self.sides.items() if cache.holds_vectors}
        return frozen | {f"guide-{side}": cache for side, cache in self.guides.items()}


def is_trained(tower: Encoder) -> bool:
    """Whether any weight of a tower is trained."""
    return any(weights.requires_grad for weights in tower.parameters())


@dataclass(frozen=True)
class BatchPlan:
    """The batches of steps over the same pairs: of a whole run, or of a shard of a stream."""

    pairs: PairSet
    texts: PairTexts
    sampler: BatchSampler
    shard: Shard | None = None

    @cached_property
    def steps(self) -> range:
        """The steps of a shard, which is passed over once."""
        assert self.shard is not None
        return range(self.shard.first_step, self.shard.first_step + self.sampler.batches(0))

    def holds(self, step: int) -> bool:
        """Whether a step uses these pairs."""
        return self.shard is None or step in self.steps
