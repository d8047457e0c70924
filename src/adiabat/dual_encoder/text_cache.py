"""The texts of pairs as towers take them: tokens for a tower that is trained, and vectors of one that is not, each embedded once."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from adiabat.config.dual_training import TrainSettings
from adiabat.core.errors import DataError, several
from adiabat.core.text import cut
from adiabat.data.pair_sets import PairSet, TextColumn, Texts
from adiabat.data.records import SIDES, Side
from adiabat.dual_encoder.batch_plan import Order
from adiabat.dual_encoder.batches import Batch, Sides
from adiabat.models.device import Precision
from adiabat.models.encoder import Encoder
from adiabat.models.token_cache import TokenTable
from adiabat.models.towers import DualEncoder
from adiabat.store.addressing import rows_of_entries
from adiabat.store.embedding_cache import KeptVectors
from adiabat.store.vector_store import Store
from adiabat.training.flop_count import operations_of
from adiabat.training.passes import Group, Passes


class FrozenTower:
    """Reads what it has embedded before: float32, 4 bytes a number for as many texts as there are, in memory or in a job's directory.

    The last bits of a vector depend on the texts that pass beside it. In a directory vectors outlive the process, so that a run that was
    resumed reads what it embedded before, and is equal to one that never stopped.
    """

    def __init__(self, encoder: Encoder, texts: TextColumn, *, side: Side, precision: Precision) -> None:
        """Set up; nothing is embedded yet, and nothing written."""
        self.encoder = encoder
        self._texts = texts
        self._side = side
        self._precision = precision
        self._kept = KeptVectors(len(texts), encoder.width)
        self._spent = 0.0

    def keep_in(self, place: Path, *, resume: bool) -> None:
        """Keep vectors in files from here on."""
        self._kept.keep_in(place, resume=resume)

    def save(self) -> None:
        """Note on the disk which texts are embedded, where vectors are kept in files: to be called with every checkpoint."""
        self._kept.save()

    def embed(self, rows: Int[np.ndarray, " b"]) -> Float[Tensor, "b e"]:
        """Embeddings of some texts."""
        kept = self._kept
        new = np.unique(rows[~kept.known[rows]])
        if len(new):
            texts = self._texts.take(new)
            kept.vectors[new] = self.encoder.encode(texts, side=self._side, precision=self._precision)
            kept.known[new] = True
            self._spent += self._operations(texts)
        return torch.from_numpy(np.asarray(kept.vectors[rows])).to(self.encoder.device)

    def spent(self) -> float:
        """What was embedded since this was last asked."""
        spent, self._spent = self._spent, 0.0
        return spent

    def _operations(self, texts: Sequence[str]) -> float:
        lengths = np.array([len(ids) for ids in self.encoder.tokenize(texts, side=self._side)], dtype=np.int64)
        return operations_of(self.encoder).of(lengths, trained=False, cached=False, checkpointed=False)


class StoredTower:
    """Reads the vectors of a store."""

    def __init__(self, store: Store, documents: TextColumn, *, device: torch.device) -> None:
        """Find documents in a store."""
        self._store = store
        self._rows = rows_of_entries(list(documents), store)
        self._device = device
        if absent := [f'"{cut(entry, limit=60)}"' for entry in documents.take(np.flatnonzero(self._rows < 0))]:
            raise DataError(
                f"every document must be in the store {store.path}, it lacks {several(absent, of='documents')}; "
                "embed them (adiabat embed, or --append to the store), or leave towers.store out"
            )

    def embed(self, rows: Int[np.ndarray, " b"]) -> Float[Tensor, "b e"]:
        """Vectors of some documents."""
        return torch.from_numpy(self._store.gather(self._rows[rows])).to(self._device)


@dataclass(frozen=True)
class Models:
    """What passes over texts.

    Attributes:
        towers: What is trained; a tower without trainable parameters is embedded once for each text.
        guide: Takes candidates out of the negatives; None where there is none, or where `towers` themselves do.
        store: Vectors that take the place of document embeddings; None embeds documents.
    """

    towers: DualEncoder
    guide: DualEncoder | None = None
    store: Store | None = None

    @property
    def trained(self) -> list[Encoder]:
        """Towers that are trained, one that both sides share once."""
        return list(dict.fromkeys(self.towers.tower(side) for side in self.live))

    @property
    def live(self) -> list[Side]:
        """Sides whose texts pass through a tower that is trained."""
        stored = [] if self.store is None else ["document"]
        return [side for side in SIDES if side not in stored and is_trained(self.towers.tower(side))]


@dataclass(frozen=True)
class Bank:
    """The texts of some pairs.

    Attributes:
        texts: What rows mean.
        models: What passes over them.
        tables: Of each side whose tower is trained.
        frozen: Of each side whose tower is not.
        guides: Of both sides, where another model is the guide.
    """

    texts: Texts
    models: Models
    tables: Mapping[Side, TokenTable] = field(repr=False)
    frozen: Mapping[Side, FrozenTower | StoredTower] = field(repr=False)
    guides: Mapping[Side, FrozenTower] = field(repr=False)

    @classmethod
    def of(cls, texts: Texts, models: Models, settings: TrainSettings) -> "Bank":
        """Tokenise texts, and make room for vectors."""
        towers, precision = models.towers, settings.run.precision

        def once(model: DualEncoder, side: Side) -> FrozenTower:
            return FrozenTower(model.tower(side), _column(texts, side), side=side, precision=precision)

        def unchanging(side: Side) -> FrozenTower | StoredTower:
            if side == "document" and models.store is not None:
                return StoredTower(models.store, texts.documents, device=towers.document.device)
            return once(towers, side)

        live = models.live
        frozen = {side: unchanging(side) for side in SIDES if side not in live}
        guides = {} if models.guide is None else {side: once(models.guide, side) for side in SIDES}
        return cls(texts, models, {side: _table(texts, towers.tower(side), side) for side in live}, frozen, guides)

    def column(self, side: Side) -> TextColumn:
        """Texts of one side."""
        return _column(self.texts, side)

    def tokens(self, pairs: PairSet) -> Int[np.ndarray, " pairs"]:
        """Tokens of pairs that pass through trained towers."""
        found = np.zeros(len(pairs), dtype=np.int64)
        for side, table in self.tables.items():
            found += table.lengths[pairs.query if side == "query" else pairs.positive]
        return found

    def embedded(self, batch: Batch, passes: Passes) -> Sides:
        """Each distinct text of a batch once, by its tower or out of what a frozen tower gave before."""
        distinct = {side: np.unique(rows, return_inverse=True) for side, rows in batch.sides.items()}
        found = dict(zip(self.tables, passes.embed_all(self.groups({side: rows for side, (rows, _) in distinct.items()})), strict=True))
        found |= {side: frozen.embed(distinct[side][0]) for side, frozen in self.frozen.items()}
        query, document = (found[side][torch.from_numpy(distinct[side][1]).to(found[side].device)] for side in SIDES)
        return Sides(query, document)

    def groups(self, distinct: Mapping[Side, Int[np.ndarray, " _"]]) -> list[Group]:
        """Texts of a batch that pass through a trained tower."""
        towers, trained = self.models.towers, self.models.trained
        return [Group(table, distinct[side], trained.index(towers.tower(side))) for side, table in self.tables.items()]

    def judged(self, batch: Batch) -> Sides | None:
        """What the guide makes of a batch's texts.

        Returns:
            Its embeddings; None where there is no other model.
        """
        return Sides(*(self.guides[side].embed(rows) for side, rows in batch.sides.items())) if self.guides else None

    def measured(self, side: Side, rows: Int[np.ndarray, " n"], settings: TrainSettings) -> Float[Tensor, "n e"]:
        """Embeddings without dropout, by all cores."""
        if side in self.frozen:
            return self.frozen[side].embed(rows)
        tower = self.models.towers.tower(side)
        vectors = tower.encode(self.column(side).take(rows), side=side, precision=settings.run.precision)
        return torch.from_numpy(vectors).to(tower.device)

    def keep_in(self, folder: Path, rank: int, *, resume: bool) -> None:
        """Keep embeddings of towers that do not change in files, so that a resumed run reads the same."""
        for name, tower in self._once().items():
            tower.keep_in(folder / f"{name}-{rank}", resume=resume)

    def spent_once(self) -> float:
        """What towers that do not change, a guide among them, have embedded since this was last asked."""
        return math.fsum(tower.spent() for tower in self._once().values())

    def save(self) -> None:
        """Note on the disk what was embedded: to be called with every checkpoint."""
        for tower in self._once().values():
            tower.save()

    def _once(self) -> dict[str, FrozenTower]:
        frozen = {f"frozen-{side}": tower for side, tower in self.frozen.items() if isinstance(tower, FrozenTower)}
        return frozen | {f"guide-{side}": tower for side, tower in self.guides.items()}


@dataclass(frozen=True)
class Stretch:
    """Steps that draw on the same pairs: a whole run, or those of a window of a stream.

    Attributes:
        pairs: Trained on.
        bank: Of their texts.
        order: Which of them make the batch of each step.
        steps: The steps; None where all are.
        window: Number of the window; None where there is no stream.
    """

    pairs: PairSet
    bank: Bank
    order: Order
    steps: range | None = None
    window: int | None = None

    def holds(self, step: int) -> bool:
        """Whether a step draws on these pairs."""
        return self.steps is None or step in self.steps


def is_trained(tower: Encoder) -> bool:
    """Whether any weight of a tower is trained."""
    return any(weights.requires_grad for weights in tower.parameters())


def _column(texts: Texts, side: Side) -> TextColumn:
    return texts.queries if side == "query" else texts.documents


def _table(texts: Texts, tower: Encoder, side: Side) -> TokenTable:
    if texts.folder is None:
        return TokenTable.of(tower, _column(texts, side), side=side)
    return TokenTable.kept(tower, _column(texts, side), side=side, folder=texts.folder)
