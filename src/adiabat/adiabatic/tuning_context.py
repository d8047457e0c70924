"""What tuning runs from one model, against one store, on one data set have in common: read, found and tokenised once."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from adiabat.adiabatic.drift_guard import Guard
from adiabat.adiabatic.negatives import negative_chooser
from adiabat.adiabatic.probes import ProbeSet, read_probes
from adiabat.adiabatic.regularization import Rehearsal, RehearsedTexts, require_apart
from adiabat.adiabatic.stored_loss import DriftingDocuments, StoredDocuments
from adiabat.adiabatic.tune_data import examples_digest, read_data, with_negatives
from adiabat.adiabatic.tune_setup import prepared_tower
from adiabat.config.training_choices import Method
from adiabat.config.tuning import GuardSection, TuneDataSection, TuneSection, TuneSettings
from adiabat.core.errors import ConfigError, DataError, ModelError, StoreError, several
from adiabat.core.ragged import Ragged
from adiabat.losses.in_batch import Distance
from adiabat.models.bulk import TokenTable
from adiabat.models.device import device_of
from adiabat.models.embedding_head import NAMES, STATED, Similarity
from adiabat.models.encoder import Encoder
from adiabat.models.freezing import frozen_parameters
from adiabat.models.towers import DualEncoder
from adiabat.store.addressing import AddressedSet
from adiabat.store.text_vectors import wordless
from adiabat.store.vector_store import Store

Validated = tuple[AddressedSet, TokenTable]


class TuningContext:
    """Model, store, examples and tokens; a run takes what its settings ask for, and what another run has asked for is there already."""

    def __init__(self, load_model: Callable[[], DualEncoder], store_path: Path, data_path: str) -> None:
        """Nothing is read yet."""
        self._load_model = load_model
        self._store_path = store_path
        self._data_path = data_path
        self._examples: dict[TuneDataSection, tuple[AddressedSet, AddressedSet]] = {}
        self._worded: dict[TuneDataSection, tuple[AddressedSet, AddressedSet]] = {}
        self._tokens: dict[TuneDataSection, TokenTable] = {}
        self._validated: dict[tuple[TuneDataSection, Similarity, bool], Validated] = {}
        self._guards: dict[GuardSection, Guard] = {}
        self._probes: dict[str, ProbeSet] = {}
        self._rehearsed: dict[str, RehearsedTexts] = {}

    @cached_property
    def store(self) -> Store:
        """Of the documents."""
        return Store.open(self._store_path)

    @cached_property
    def model(self) -> DualEncoder:
        """Where every run starts; its document tower made the store."""
        model = self._load_model()
        self.store.require_encoder(model.fingerprint("document"))
        return model

    def store_at(self, path: str | None) -> Store:
        """Where probes are looked for.

        Args:
            path: Of document vectors of this model; None takes those that are tuned against.
        """
        if path is None:
            return self.store
        store = Store.open(path)
        store.require_encoder(self.model.fingerprint("document"))
        return store

    @cached_property
    def digest(self) -> str:
        """Of all that decides the query vectors where tuning starts: weights, tokenizer, prompt, pooling and limit."""
        return hashlib.sha256(json.dumps(self.model.fingerprint("query").to_json(), sort_keys=True).encode()).hexdigest()

    def digests(self, settings: TuneSettings, *examples: AddressedSet) -> dict[str, str]:
        """SHA-256 of everything that a run begins with, for its description."""
        digests = {"query_tower": self.digest, "store_vectors": self.store.manifest.sha256, "examples": examples_digest(*examples)}
        if (distance := self.distance(settings.tune)) != "cosine":
            digests["similarity"] = distance
        if settings.watched.use:
            digests |= self.guard(settings).digests
        if settings.rehearsal.use:
            digests["rehearsed"] = self.probes(settings.rehearsal.texts).sha256
        return digests

    def distance(self, section: TuneSection) -> Distance:
        """What queries and documents are compared by in a run."""
        distance = section.loss.distance or NAMES[self.model.ranks_by]
        if distance == "euclidean" and section.loss.kind != "triplet":
            raise ConfigError(
                f"tune.loss.distance must be cosine or dot with tune.loss = {section.loss.kind}, got euclidean, which {self.model.name} "
                "states; set it, or take tune.loss = triplet"
            )
        return distance

    def compared(self, section: TuneSection) -> TuneSection:
        """Settings that name what is compared by."""
        loss = section.loss.model_copy(update={"distance": self.distance(section)})
        return section.model_copy(update={"loss": loss})

    def probes(self, source: str) -> ProbeSet:
        """Texts that are rehearsed, or looked at."""
        if source not in self._probes:
            self._probes[source] = read_probes(source)
        return self._probes[source]

    def examples(self, section: TuneDataSection) -> tuple[AddressedSet, AddressedSet]:
        """What is trained on, and what is validated on as it was read."""
        if section not in self._examples:
            self._examples[section] = read_data(self._data_path, section, self.store)
        return self._examples[section]

    def with_negatives(self, settings: TuneSettings) -> tuple[AddressedSet, AddressedSet]:
        """What is trained on and what is validated on, each query with negatives."""
        similarity = STATED[self.distance(settings.tune)]
        train, validation = (
            with_negatives(examples, self.store, self.model.query, similarity=similarity) for examples in self._usable(settings.data)
        )
        return train, validation

    def _usable(self, section: TuneDataSection) -> tuple[AddressedSet, AddressedSet]:
        """Training and validation examples whose query the model can embed."""
        if section not in self._worded:
            train, validation = self.examples(section)
            self._worded[section] = self._with_words(train), self._with_words(validation)
        return self._worded[section]

    def _with_words(self, examples: AddressedSet) -> AddressedSet:
        """Queries of which the model knows a token: those of which a static one knows none have a vector of zeros, whatever is tuned."""
        left_out = wordless(self.model.query, examples.queries, side="query")
        if not left_out.any():
            return examples
        if left_out.all():
            raise DataError(f"{examples.name}: a query must hold a token that the static model knows, got none in all {len(examples):,}")
        note = f"{int(left_out.sum()):,} of {len(examples):,} queries hold no token that the model knows, and are left out"
        worded = examples.take(np.flatnonzero(~left_out))
        return replace(worded, notes=(*worded.notes, note))

    def require_possible(self, runs: Sequence[TuneSettings]) -> None:
        """Refuse what model, store and data cannot give, before anything is written."""
        faults = []
        adapted: set[Method] = set()
        for settings in runs:
            try:
                frozen_parameters(self.model.query.backbone, settings.tune.freeze)
                method = settings.tune.method
                if method.kind != "full" and method not in adapted:
                    adapted.add(method)
                    prepared_tower(self.model.query, settings)
                negative_chooser(self.compared(settings.tune), self._usable(settings.data)[0], self.store, seed=settings.run.seed)
                self._require_probes(settings)
            except (ConfigError, DataError, ModelError, StoreError) as fault:
                faults.append(str(fault))
        if faults:
            raise ConfigError(several(list(dict.fromkeys(faults))))

    def _require_probes(self, settings: TuneSettings) -> None:
        if settings.watched.use:
            self.guard(settings)
        if settings.rehearsal.use:
            self._rehearsal(settings)

    def objective(self, tower: Encoder, settings: TuneSettings) -> StoredDocuments:
        """What a run minimises."""
        validation, validation_tokens = self._validation(tower, settings)
        return StoredDocuments(
            validation=validation,
            validation_tokens=validation_tokens,
            loss_negatives=_own_negatives(self._usable(settings.data)[1], settings),
            guard=self.guard(settings) if settings.watched.use else None,
            **self._learned(tower, settings),
        )

    def drifting(self, tower: Encoder, settings: TuneSettings) -> DriftingDocuments:
        """What a run minimises that is only to show how far it drifts."""
        return DriftingDocuments(guard=self.guard(settings), **self._learned(tower, settings))

    def guard(self, settings: TuneSettings) -> Guard:
        """A watch over drift; equal sections have the same."""
        section = settings.watched
        if section not in self._guards:
            self.model.query.to(device_of(settings.run.device))
            self._guards[section] = Guard.of(section, self.probes(section.probes), self.model, self.store_at(section.store))
        return self._guards[section]

    def _learned(self, tower: Encoder, settings: TuneSettings) -> dict[str, Any]:
        train, section = self._usable(settings.data)[0], self.compared(settings.tune)
        return {
            "encoder": tower,
            "store": self.store,
            "train": train,
            "tokens": self._trained_tokens(tower, settings.data),
            "settings": section,
            "choose": negative_chooser(section, train, self.store, seed=settings.run.seed),
            "seed": settings.run.seed,
            "precision": settings.run.precision,
            "rehearsal": self._rehearsal(settings) if settings.rehearsal.use else None,
        }

    def _rehearsal(self, settings: TuneSettings) -> Rehearsal:
        section, source = settings.rehearsal, settings.rehearsal.texts
        texts = self.probes(source)
        if settings.watched.use:
            require_apart(texts, self.probes(settings.watched.probes))
        if source not in self._rehearsed:
            self._rehearsed[source] = RehearsedTexts.of(texts, self.model.query)
        return Rehearsal(self._rehearsed[source], section.weight, section.texts_per_step, seed=settings.run.seed)

    def _trained_tokens(self, tower: Encoder, section: TuneDataSection) -> TokenTable:
        if section not in self._tokens:
            self._tokens[section] = TokenTable.of(tower, self._usable(section)[0].queries, side="query")
        return self._tokens[section]

    def _validation(self, tower: Encoder, settings: TuneSettings) -> Validated:
        # What is trained on the store's own negatives is validated on them: those listed with an example may all be easy.
        mine_all = settings.tune.negatives.kind != "examples"
        similarity = STATED[self.distance(settings.tune)]
        key = (settings.data, similarity, mine_all)
        if key not in self._validated:
            validation = with_negatives(self._usable(settings.data)[1], self.store, tower, similarity=similarity, mine_all=mine_all)
            self._validated[key] = validation, TokenTable.of(tower, validation.queries, side="query")
        return self._validated[key]


def _own_negatives(validation: AddressedSet, settings: TuneSettings) -> Ragged | None:
    """Of the validation loss, where it takes others than are mined for the errors.

    The softmax does without listed negatives; were its validation loss to go by mined ones, it would not be the loss that is trained. Only
    a batch of one query, which has no other's positive to be told apart from, needs them.
    """
    section = settings.tune
    lists_suffice = section.loss.kind == "in_batch_softmax" and section.negatives.kind == "examples" and section.batch_size > 1
    return validation.negatives if lists_suffice else None
