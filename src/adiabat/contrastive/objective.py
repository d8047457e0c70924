"""What the training of both towers minimises (missions B2, C1 to C3, D1)."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from adiabat.config import TrainSection, TrainSettings
from adiabat.contrastive.batches import Batch, Sides, draw_batch, pairs_of, share_of
from adiabat.contrastive.criterion import criterion_of
from adiabat.contrastive.frozen import FrozenTower, StoredTower
from adiabat.contrastive.order import order_of
from adiabat.contrastive.ranks import ranks_of_answers
from adiabat.data.pairs import PairSet, TextColumn
from adiabat.data.records import SIDES, Side
from adiabat.model.encoder import Encoder
from adiabat.model.tokens import TokenTable
from adiabat.model.towers import DualEncoder
from adiabat.store.embeddings import Store
from adiabat.train.chunking import Chunking
from adiabat.train.distributed import ALONE, Processes
from adiabat.train.limits import Validation
from adiabat.train.pairs import unit_rows
from adiabat.train.partition import Temperature
from adiabat.train.passes import Group, Passes, side_passes
from adiabat.train.temperature import LearnedTemperature, scheduled_temperature

CHUNK_TOKENS = {"cpu": 4_096, "cuda": 65_536}
"""Of one pass where nobody says how many: on a CPU what stays near the caches, on a GPU what keeps it busy."""


@dataclass
class PairContrast:
    """The objective: embed a batch of pairs, and tell each query's document from the others.

    Attributes:
        towers: What is trained; a tower without trainable parameters is embedded once for each text.
        train: Pairs to learn from.
        validation: Pairs to measure on, over the same texts.
        settings: Loss, negatives, temperature, batch size, precision, and how a batch passes.
        guide: Takes candidates out of the negatives; None where there is none, or where `towers` themselves do.
        processes: Who shares a batch out.
        store: Vectors of the frozen document tower; None embeds its documents.
    """

    towers: DualEncoder
    train: PairSet
    validation: PairSet
    settings: TrainSettings
    guide: DualEncoder | None = None
    processes: Processes = ALONE
    store: Store | None = None

    def __post_init__(self) -> None:
        section = self.settings.train
        self._criterion = criterion_of(section, tile=self.settings.memory.loss_tile)
        self._learned = LearnedTemperature(section.temperature) if section.temperature_schedule == "learned" else None
        self._trained = [tower for tower in dict.fromkeys((self.towers.query, self.towers.document)) if _is_trained(tower)]
        frozen = [side for side in SIDES if not _is_trained(self.towers.tower(side))]
        self._frozen = {side: self._unchanging(side) for side in frozen}
        self._guides = {} if self.guide is None else {side: self._embedded_once(self.guide, side) for side in SIDES}
        live = [side for side in SIDES if side not in self._frozen]
        self.tables = {side: self._table(side) for side in live}
        tokens = sum(table.lengths[_rows_of(self.train, side)] for side, table in self.tables.items())
        self.order = order_of(self.train, self.settings, tokens + np.zeros(len(self.train), dtype=np.int64))
        self.passes = Passes(*self._trained, precision=self.settings.run.precision, chunking=self._chunking())
        self.module = nn.ModuleDict({"query": self.towers.query, "document": self.towers.document})
        if self._learned is not None:
            self.module["temperature"] = self._learned.to(self.towers.query.device)

    @property
    def steps(self) -> int:
        """Optimiser steps of the run."""
        return steps_of(self.settings.train, self.order.pairs)

    def _texts(self, side: Side) -> TextColumn:
        return self.train.texts.queries if side == "query" else self.train.texts.documents

    def _table(self, side: Side) -> TokenTable:
        tower, texts, folder = self.towers.tower(side), self._texts(side), self.train.texts.folder
        if folder is None:
            return TokenTable.of(tower, texts, side=side)
        return TokenTable.kept(tower, texts, side=side, folder=folder)

    def _unchanging(self, side: Side) -> FrozenTower | StoredTower:
        if side == "document" and self.store is not None:
            return StoredTower(self.store, self._texts(side), device=self.towers.document.device)
        return self._embedded_once(self.towers, side)

    def _embedded_once(self, model: DualEncoder, side: Side) -> FrozenTower:
        precision = self.settings.run.precision
        return FrozenTower(model.tower(side), self._texts(side), side=side, precision=precision)

    def keep_in(self, folder: Path, *, resume: bool) -> None:
        """Keep embeddings of towers that do not change in files, so that a resumed run reads the same.

        Args:
            folder: Made where there is such a tower.
            resume: Whether to read what stands there.
        """
        for name, tower in self._once().items():
            tower.keep_in(folder / f"{name}-{self.processes.rank}", resume=resume)

    def save(self) -> None:
        """Note on the disk what was embedded: to be called with every checkpoint."""
        for tower in self._once().values():
            tower.save()

    def _once(self) -> dict[str, FrozenTower]:
        frozen = {f"frozen-{side}": tower for side, tower in self._frozen.items() if isinstance(tower, FrozenTower)}
        return frozen | {f"guide-{side}": tower for side, tower in self._guides.items()}

    def _chunking(self) -> Chunking:
        memory = self.settings.memory
        tokens = memory.chunk_tokens or CHUNK_TOKENS[self.towers.query.device.type]
        compiled = self.settings.run.compile
        return Chunking(tokens, memory.cached, checkpointed=memory.checkpointing, buckets=memory.length_buckets, compiled=compiled)

    @contextmanager
    def passing(self) -> Iterator[None]:
        """Let threads share the passes while the block lasts.

        Yields:
            Nothing.
        """
        before = self.passes
        with side_passes(*self._trained, precision=self.settings.run.precision, chunking=self._chunking()) as self.passes:
            try:
                yield
            finally:
                self.passes = before

    def loss(self, step: int) -> Tensor:
        """The loss of one batch of pairs: over this process's part of it, against everyone's.

        Args:
            step: From 0.

        Returns:
            A scalar.
        """
        batch = self._batch(step)
        mine = self._share(batch)
        sides, guide = self._embedded(mine), self._judged(mine)
        pairs = pairs_of(batch, sides, self.train, self.settings.train, self.processes, guide=guide)
        return self._criterion(pairs, self.temperature(step))

    def temperature(self, step: int) -> Temperature:
        """What similarities are divided by.

        Args:
            step: From 0.

        Returns:
            A number, or a tensor that is learned.
        """
        section = self.settings.train
        if self._learned is not None:
            # The optimiser may have moved it out of its range.
            self._learned.clamp_()
            learned: Tensor = self._learned()
            return learned
        if section.temperature_schedule == "fixed":
            return section.temperature
        return scheduled_temperature(
            step, first=section.first_temperature, last=section.temperature, steps=section.temperature_steps or self.steps
        )

    def figures(self) -> Mapping[str, float]:
        """What the log says beside the loss.

        Returns:
            A learned temperature, as the next step will use it.
        """
        return {} if self._learned is None else {"temperature": self._validation_temperature()}

    def batch_ids(self, step: int) -> list[str]:
        """Ids of the queries of one step.

        Args:
            step: From 0.

        Returns:
            As the examples have them.
        """
        return self.train.texts.query_ids.take(self.train.query[self.rows(step)])

    def tokens_of(self, step: int) -> dict[Side, int]:
        """Tokens that pass through trained towers in one step, padding left out.

        Args:
            step: From 0.

        Returns:
            By side, over all processes; a text that stands in the batch twice counts once.
        """
        rows = _rows(self._batch(step))
        return {side: int(table.lengths[np.unique(rows[side])].sum()) for side, table in self.tables.items()}

    def rows(self, step: int) -> Int[np.ndarray, " p"]:
        """Pairs of one step's batch, as all processes see it.

        Args:
            step: From 0.

        Returns:
            Their rows in the training set.
        """
        return self.order.rows(step)

    def _batch(self, step: int) -> Batch:
        return draw_batch(self.train, self.rows(step), self.settings.train, seed=self.settings.run.seed, step=step)

    def _share(self, batch: Batch) -> Batch:
        return share_of(self.train, batch, self.settings.train, self.processes)

    def _judged(self, batch: Batch) -> Sides | None:
        """What the guide, where there is one, makes of a batch's texts."""
        return Sides(*(self._guides[side].embed(rows) for side, rows in _rows(batch).items())) if self._guides else None

    def _embedded(self, batch: Batch) -> Sides:
        """Each distinct text of a batch once, by its tower or out of what a frozen tower gave before."""
        distinct = {side: np.unique(rows, return_inverse=True) for side, rows in _rows(batch).items()}
        live = [side for side in SIDES if side in self.tables]
        groups = [Group(self.tables[side], distinct[side][0], self._trained.index(self.towers.tower(side))) for side in live]
        found = dict(zip(live, self.passes.embed_all(groups), strict=True))
        found |= {side: frozen.embed(distinct[side][0]) for side, frozen in self._frozen.items()}
        query, document = (found[side][torch.from_numpy(distinct[side][1]).to(found[side].device)] for side in SIDES)
        return Sides(query, document)

    @torch.no_grad()
    def validate(self) -> Validation:
        """Loss over batches of the training size in file order, and the rank of each query's answer among all validation documents.

        Returns:
            The loss; as errors, queries whose first document does not answer them, where a tie counts as an error; ``P@1`` and ``RR``.
        """
        asked, candidates = self.validation.asked, self.validation.candidates
        query, document = _Rows(asked, self._measured("query", asked)), _Rows(candidates, self._measured("document", candidates))
        answers = [_places(candidates, self.validation.answers[row]) for row in asked.tolist()]
        ranks = ranks_of_answers(self._comparable(query.vectors), self._comparable(document.vectors), answers, distance=self._distance())
        errors = int((ranks > 1).sum())
        measures = {"P@1": 1.0 - errors / len(asked), "RR": float((1.0 / ranks).mean())}
        return Validation(self._validation_loss(query, document), errors, len(asked), measures)

    def _measured(self, side: Side, rows: Int[np.ndarray, " n"]) -> Float[Tensor, "n e"]:
        """Embeddings without dropout, by all cores."""
        if side in self._frozen:
            return self._frozen[side].embed(rows)
        tower, texts = self.towers.tower(side), self._texts(side)
        vectors = tower.encode(texts.take(rows), side=side, precision=self.settings.run.precision)
        return torch.from_numpy(vectors).to(tower.device)

    def _comparable(self, vectors: Float[Tensor, "n e"]) -> Float[Tensor, "n e"]:
        section = self.settings.train
        measure = section.distance if section.loss == "triplet" else section.similarity
        return unit_rows(vectors) if measure == "cosine" else vectors

    def _distance(self) -> bool:
        """Whether documents are ranked by Euclidean distance, as the loss compares them; else by the product."""
        return self.settings.train.loss == "triplet" and self.settings.train.distance == "euclidean"

    def _validation_loss(self, query: "_Rows", document: "_Rows") -> float:
        """Mean over pairs; the last batch may be smaller, and is left out where it holds a single document."""
        section, total, counted = self.settings.train, 0.0, 0
        for number, start in enumerate(range(0, len(self.validation), section.batch_size)):
            picked = np.arange(start, min(start + section.batch_size, len(self.validation)))
            batch = draw_batch(self.validation, picked, section, seed=self.settings.run.seed, step=number)
            if start and len(np.unique(batch.documents)) == 1:
                continue
            sides = Sides(query.of(batch.query), document.of(batch.documents))
            pairs = pairs_of(batch, sides, self.validation, section, ALONE, guide=self._judged(batch))
            total += float(self._criterion(pairs, self._validation_temperature())) * len(picked)
            counted += len(picked)
        return total / counted

    @torch.no_grad()
    def _validation_temperature(self) -> float:
        """The temperature that losses of different steps can be compared at: the last one of a schedule, a learned one as it stands."""
        return self.settings.train.temperature if self._learned is None else float(self.temperature(0))


@dataclass(frozen=True, slots=True)
class _Rows:
    """Embeddings of some texts, found by the rows of the texts."""

    rows: Int[np.ndarray, " n"]
    vectors: Float[Tensor, "n e"]

    def of(self, wanted: Int[np.ndarray, " k"]) -> Float[Tensor, "k e"]:
        return self.vectors[torch.from_numpy(np.searchsorted(self.rows, wanted)).to(self.vectors.device)]


def _places(rows: Int[np.ndarray, " n"], wanted: Int[np.ndarray, " k"]) -> Int[np.ndarray, " _"]:
    """Where some of ascending rows stand; those that are not among them are left out."""
    places = np.minimum(np.searchsorted(rows, wanted), len(rows) - 1)
    found: Int[np.ndarray, " _"] = places[rows[places] == wanted]
    return found


def _rows(batch: Batch) -> dict[Side, Int[np.ndarray, " _"]]:
    return {"query": batch.query, "document": batch.documents}


def steps_of(section: TrainSection, pairs: int) -> int:
    """Optimiser steps of a run.

    Args:
        section: Its settings.
        pairs: Trained on.

    Returns:
        `TrainSection.steps`, or as many as the passes over the data need, rounded up.
    """
    return section.steps or max(1, math.ceil(section.epochs * pairs / section.batch_size - 1e-9))


def _rows_of(pairs: PairSet, side: Side) -> Int[np.ndarray, " pairs"]:
    return pairs.query if side == "query" else pairs.positive


def _is_trained(tower: Encoder) -> bool:
    return any(weights.requires_grad for weights in tower.parameters())
