"""The steps of tuning as functions of inputs of fixed shapes, which a GPU records and replays
(`adiabat.training.captured_step`).

The host gives texts as padded token ids and documents as rows of the store: batch, drawn negatives and length
follow from the step's number. The device does the rest. The losses are those of
`adiabat.adiabatic.stored_loss`; only padding differs, and with it the last digits.
"""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from adiabat.adiabatic.negatives import searched
from adiabat.adiabatic.stored_loss import StoredDocuments, first_positives, teacher_scores
from adiabat.core.ragged import Ragged
from adiabat.models.device import autocast
from adiabat.models.embedding_head import STATED, Similarity
from adiabat.models.tokens import TextLayout, TokenBatch, pad
from adiabat.scaling_laws.flops import Cost
from adiabat.store.device_store import DeviceStore
from adiabat.store.stored_blocks import all_on
from adiabat.training.blocks import draws
from adiabat.training.captured_step import RECORDERS, UNCAPTURED, eager_note
from adiabat.training.flop_count import operations_of

SHORTEST = 16
"""Length to which short texts are padded; longer ones are padded to twice, four times this and so on, at most
to the tower's limit."""

KNOWN_CODE = ("transformers.models.", "adiabat.models.")
"""Where the classes of backbones are defined whose passes ask the device for nothing."""

NO_LAYOUT = TextLayout([], torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int32))
"""Of a batch that is passed with its padding."""

NO_QUERIES = torch.empty(0)
"""Given to a source of negatives that needs no query vectors."""


@dataclass(frozen=True, slots=True)
class Capture:
    """Whether a run records its steps.

    Attributes:
        steps: Its steps with inputs of fixed shapes; None takes steps operation by operation.
        note: Why not, on a device that could; "" on others.
    """

    steps: "FixedSteps | None"
    note: str = ""


def capture_of(objective: StoredDocuments) -> Capture:
    """Decide whether the steps of a run are recorded: on a GPU, unless a part of them needs the host."""
    encoder, settings = objective.encoder, objective.settings
    if encoder.device.type not in RECORDERS:
        return Capture(None)
    if draws(encoder):
        return Capture(None, eager_note("tune.dropout draws new random numbers in each step"))
    if settings.optimizer in UNCAPTURED:
        return Capture(None, eager_note(UNCAPTURED[settings.optimizer]))
    if not type(encoder.backbone).__module__.startswith(KNOWN_CODE):
        return Capture(None, eager_note("the model has code of its own, which may wait for the GPU"))
    documents = all_on(objective.store, encoder.device)
    scores_all = settings.loss.negatives_from == "store" or searched(objective.train, settings).any()
    if documents is None and scores_all:
        return Capture(
            None,
            eager_note("they score the whole store, which half of the free memory of the GPU does not hold"),
        )
    return Capture(FixedSteps(objective, None if documents is None else DeviceStore(documents)))


class FixedSteps:
    """The steps of an objective, with inputs of a few different shapes.

    Inputs are ``ids`` and masks of the texts, ``positives`` and ``negatives`` as rows of the store (-1 for a
    negative that the step searches, or that fills up), the ``known`` answers of each query, and rows of
    ``rehearsed`` texts. Vectors of a store that is not on the device are inputs too; a thread reads those of
    the next step.
    """

    def __init__(self, objective: StoredDocuments, store: DeviceStore | None) -> None:
        """Set up."""
        self._objective = objective
        self._store = store
        encoder, settings = objective.encoder, objective.settings
        # Another thread asks for other steps, and a sampler keeps the order of one pass.
        self._sampler = copy(objective.sampler)
        self._rehearsed = None if objective.rehearsal is None else copy(objective.rehearsal.sampler)
        self._taught = None if objective.rehearsal is None else objective.rehearsal.vectors.to(encoder.device)
        self._searched = searched(objective.train, settings)
        self._similarity: Similarity = STATED[objective.distance]
        self._answers = int(objective.train.known.lengths.max())
        self._skipped = encoder.unpooled_tokens("query")
        self._operations: dict[tuple[int, int], float] = {}
        self._reader = None if store is not None else ThreadPoolExecutor(1, "adiabat")
        self._ahead: tuple[int, Future[dict[str, np.ndarray]]] | None = None

    # --- On the host ---

    def inputs(self, step: int) -> dict[str, np.ndarray]:
        """Everything that differs from step to step."""
        if self._reader is None:
            return self._inputs(step)
        waiting = self._ahead
        this = (
            waiting[1]
            if waiting is not None and waiting[0] == step
            else self._reader.submit(self._inputs, step)
        )
        self._ahead = step + 1, self._reader.submit(self._inputs, step + 1)
        return this.result()

    def close(self) -> None:
        """Stop reading ahead."""
        if self._reader is not None:
            self._reader.shutdown(cancel_futures=True)

    def _inputs(self, step: int) -> dict[str, np.ndarray]:
        objective, settings = self._objective, self._objective.settings
        rows = self._sampler.rows(step)
        taught = None if self._rehearsed is None else self._rehearsed.rows(step)
        inputs = self._tokens(rows, taught)
        inputs["positives"] = first_positives(objective.train, rows)
        if taught is not None:
            inputs["rehearsed"] = taught
        if settings.loss.draws_negatives():
            inputs["negatives"] = self._drawn(rows, step)
        if settings.loss.needs_scores:
            # Every query lists negatives, so none is searched.
            inputs["scores"] = teacher_scores(objective.train, rows, Ragged.of(inputs["negatives"]))
        if settings.loss.negatives_from in ("batch", "store") or self._searched.any():
            inputs["known"] = filled(objective.train.known.take(rows), self._answers)
        if self._store is None:
            inputs["positive_vectors"] = objective.store.gather(inputs["positives"])
            if "negatives" in inputs:
                inputs["negative_vectors"] = objective.store.gather(inputs["negatives"].clip(0).reshape(-1))
        return inputs

    def _tokens(
        self, rows: Int[np.ndarray, " b"], taught: Int[np.ndarray, " r"] | None
    ) -> dict[str, np.ndarray]:
        """Token ids and masks of queries and rehearsed texts, in one batch of one of the lengths."""
        objective = self._objective
        texts = objective.tokens.take(rows)
        if taught is not None and objective.rehearsal is not None:
            texts = joined(texts, objective.rehearsal.tokens.take(taught))
        length = self._length(int(texts.lengths.max()))
        batch = pad(texts, pad_token_id=objective.encoder.pad_token_id, length=length, skipped=self._skipped)
        inputs = {"ids": batch.input_ids.numpy(), "attended": batch.attention_mask.numpy()}
        return inputs | ({"pooled": batch.pooling_mask.numpy()} if self._skipped else {})

    def _length(self, longest: int) -> int:
        """The smallest of the lengths that holds a text."""
        length = SHORTEST
        while length < longest:
            length *= 2
        return min(length, self._objective.encoder.settings.limit("query"))

    def _drawn(self, rows: Int[np.ndarray, " b"], step: int) -> Int[np.ndarray, "b h"]:
        """Negatives that do not depend on the tower; -1 for others, and behind a list that is too short."""
        settings = self._objective.settings
        negatives = np.full((len(rows), settings.negatives.per_query), -1, dtype=np.int64)
        drawn = ~self._searched[rows]
        if drawn.any():
            lists = self._objective.choose(rows[drawn], step, NO_QUERIES)
            of_drawn = negatives[drawn]
            of_drawn[np.arange(negatives.shape[1]) < lists.lengths[:, None]] = lists.values
            negatives[drawn] = of_drawn
        return negatives

    def cost(self, step: int) -> Cost:
        """Cost of a step, with its padding."""
        groups = self._objective.groups(step)
        shape = (
            sum(len(group.rows) for group in groups),
            self._length(max(int(group.table.lengths[group.rows].max()) for group in groups)),
        )
        if shape not in self._operations:
            counted = operations_of(self._objective.encoder)
            self._operations[shape] = counted.of(
                np.full(*shape, dtype=np.int64), trained=True, cached=False, checkpointed=False
            )
        return Cost(self._objective.flops(groups), self._operations[shape])

    # --- On the device ---

    def loss(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """The loss of queries and rehearsed texts."""
        objective, count = self._objective, len(inputs["positives"])
        tokens = TokenBatch(
            inputs["ids"], inputs["attended"], inputs["pooled" if self._skipped else "attended"], NO_LAYOUT
        )
        # The cache of converted weights would be filled once, and not in replays.
        with autocast(objective.encoder.device, objective.precision, cached=False):
            embeddings: Tensor = objective.encoder(tokens)
        loss = self._loss(embeddings[:count], inputs)
        if objective.rehearsal is None or self._taught is None:
            return loss
        return loss + objective.rehearsal.pull(embeddings[count:], self._taught[inputs["rehearsed"]])

    def _loss(self, query: Float[Tensor, "b e"], inputs: Mapping[str, Tensor]) -> Tensor:
        objective, source = self._objective, self._objective.settings.loss.negatives_from
        positive = (
            inputs["positive_vectors"] if self._store is None else self._store.take(inputs["positives"])
        )
        if source == "store":
            assert self._store is not None, "capture_of needs the store on the device"
            return objective.against_all(query, positive, inputs["known"], self._store.blocks)
        if source == "none":
            return objective.contrast(query, positive, positive[:0])
        negatives = inputs["negatives"]
        if self._searched.any():
            assert self._store is not None, "capture_of needs the store on the device"
            found = self._store.hardest(query.detach(), inputs["known"], negatives.shape[1], self._similarity)
            negatives = torch.where(negatives < 0, found, negatives)
        rows = negatives.flatten()
        negative = inputs["negative_vectors"] if self._store is None else self._store.take(rows.clamp(min=0))
        if source == "query":
            return objective.contrast(query, positive, negative, scores=inputs.get("scores"))
        documents = torch.cat([inputs["positives"], rows])
        # What fills up a short list counts as known, and so as no negative.
        known = among(inputs["known"], documents) | (documents < 0)
        return objective.contrast(query, positive, negative, known=known)


def joined(first: Ragged, then: Ragged) -> Ragged:
    """The lists of both."""
    return Ragged(
        np.concatenate([first.values, then.values]),
        np.concatenate([first.offsets, first.offsets[-1] + then.offsets[1:]]),
    )


def filled(lists: Ragged, width: int) -> Int[np.ndarray, "b m"]:
    """Lists, none empty, in ascending order and of one length: a number of shorter ones is repeated."""
    # Places beyond a list repeat its last number.
    places = np.minimum(np.arange(width), lists.lengths[:, None] - 1)
    return np.sort(lists.values[lists.offsets[:-1, None] + places], axis=1)


def among(known: Int[Tensor, "b m"], documents: Int[Tensor, " n"]) -> Bool[Tensor, "b n"]:
    """Which documents are in the ascending list of each row."""
    # A binary search in each row, and then whether the number found is the one sought.
    wanted = documents.expand(len(known), -1).contiguous()
    places = torch.searchsorted(known, wanted).clamp(max=known.shape[1] - 1)
    return known.gather(1, places) == wanted
