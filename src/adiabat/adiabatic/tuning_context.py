"""Inputs shared by tuning runs from one model, against one store, on one data set: read, addressed and
tokenised once.
"""

import hashlib
import json
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, ParamSpec, TypeVar, cast

import numpy as np
import torch
from jaxtyping import Int

from adiabat.adiabatic.choice import MOST_MAPPED, Judges
from adiabat.adiabatic.judged_queries import JudgedQueries, choosing_half
from adiabat.adiabatic.negatives import negative_chooser, require_scores
from adiabat.adiabatic.stored_loss import StoredDocuments
from adiabat.adiabatic.tune_checks import inputs_of
from adiabat.config.shared import RetainSection
from adiabat.config.training_choices import Method
from adiabat.config.tuning import GuardSection, TuneDataSection, TuneSection, TuneSettings
from adiabat.core.errors import ConfigError, DataError, ModelError, StoreError, several
from adiabat.core.ragged import Ragged
from adiabat.core.wording import call_of, option
from adiabat.data.examples import read_examples
from adiabat.data.records import Fingerprint, LanguageGridSet
from adiabat.data.sources import validation_source
from adiabat.data.text_hashes import held_out_documents, held_out_queries
from adiabat.losses.in_batch import Distance
from adiabat.models.bulk import TokenTable
from adiabat.models.device import device_of
from adiabat.models.embedding_head import NAMES, STATED, Similarity
from adiabat.models.encoder import Encoder
from adiabat.models.freezing import FreezeReport, freeze, frozen_parameters
from adiabat.models.static import StaticBackbone
from adiabat.models.towers import DualEncoder, trainable_copy
from adiabat.store.addressing import AddressedSet, address, sharing_answers
from adiabat.store.search import search
from adiabat.store.vector_store import Store

if TYPE_CHECKING:
    from adiabat.adiabatic.probes import ProbeSet
    from adiabat.adiabatic.regularization import Guard, Rehearsal

Validated = tuple[AddressedSet, TokenTable]
T = TypeVar("T")
P = ParamSpec("P")


class TuningContext:
    """Model, store, examples and tokens; parts of them are prepared when a run first needs them, and then
    cached.

    Attributes:
        inputs: Names of model, store and data, as in the ``config.toml`` of a job.
    """

    def __init__(
        self, load_model: Callable[[], DualEncoder], store_path: Path, data_path: str, model_name: str = ""
    ) -> None:
        """Take the inputs; nothing is read yet."""
        self.inputs = inputs_of(model_name, store_path, data_path)
        self._load_model = load_model
        self._made: dict[Hashable, object] = {}

    def _once(self, key: Hashable, make: Callable[P, T], *given: P.args, **options: P.kwargs) -> T:
        """A cached part of the context, computed on first use."""
        if key not in self._made:
            self._made[key] = make(*given, **options)
        return cast("T", self._made[key])

    def with_data(self, data_path: str) -> "TuningContext":
        """The same model and store, with other examples; texts and sets that are read once are shared."""
        other = TuningContext(self._load_model, Path(self.inputs["store"]), data_path, self.inputs["model"])
        other.store, other._loaded = self.store, self._loaded
        other._made = {key: made for key, made in self._made.items() if _is_of_no_examples(key)}
        return other

    @cached_property
    def store(self) -> Store:
        """The store of the documents."""
        return Store.open(self.inputs["store"])

    @cached_property
    def _loaded(self) -> tuple[DualEncoder, Fingerprint, Fingerprint]:
        """The model with the fingerprints of its sides, for which weights are hashed once: a gigabyte takes
        more than a second.
        """
        model = self._load_model()
        query, document = model.fingerprints()
        self.store.require_encoder(document)
        return model, query, document

    @property
    def model(self) -> DualEncoder:
        """The model that every run starts from; its document tower built the store."""
        return self._loaded[0]

    def start_on_device(self, settings: TuneSettings) -> DualEncoder:
        """The model, its query tower moved to the device of a run."""
        self.model.query.to(device_of(settings.run.device))
        return self.model

    def store_at(self, path: str | None) -> Store:
        """The store to search with the probes; by default the one that is tuned against."""
        if path is None:
            return self.store
        store = Store.open(path)
        store.require_encoder(self._loaded[2])
        return store

    @cached_property
    def digest(self) -> str:
        """Fingerprint of everything that decides the untuned query vectors: weights, tokenizer, prompt,
        pooling and limit.
        """
        described = json.dumps(self._loaded[1].to_json(), sort_keys=True)
        return hashlib.sha256(described.encode()).hexdigest()

    def digests(self, settings: TuneSettings, *examples: AddressedSet) -> dict[str, str]:
        """SHA-256 of all inputs of a run, for its configuration."""
        digests = {
            "query_tower": self.digest,
            "store_vectors": self.store.manifest.sha256,
            "examples": examples_digest(*examples, scored=settings.tune.loss.needs_scores),
        }
        distance = self.distance(settings.tune)
        # Configurations of earlier versions, which knew only cosines, name no similarity.
        if distance != "cosine":
            digests["similarity"] = distance
        guard = self.guard(settings)
        if guard is not None:
            digests |= guard.digests
        if settings.retain:
            digests["retained"] = examples_digest(*(queries.examples for queries in self.retained(settings)))
        if settings.rehearsal is not None:
            digests["rehearsed"] = self.probes(settings.rehearsal.texts).sha256
        return digests

    def distance(self, section: TuneSection) -> Distance:
        """Similarity by which a run compares queries and documents."""
        distance = section.loss.distance or NAMES[self.model.ranks_by]
        allowed = section.loss.distances()
        if distance not in allowed:
            raise ConfigError(
                f"tune.loss.distance must be {' or '.join(map(str, allowed))} with tune.loss = "
                f"{section.loss.kind}, got {distance}, which {self.model.name} states; "
                "set it, or take tune.loss = triplet"
            )
        return distance

    def compared(self, section: TuneSection) -> TuneSection:
        """Settings that name this similarity."""
        loss = section.loss.model_copy(update={"distance": self.distance(section)})
        return section.model_copy(update={"loss": loss})

    def probes(self, source: str) -> "ProbeSet":
        """Texts of rehearsal or probes."""
        # Runs without a guard or rehearsal load none of their modules.
        from adiabat.adiabatic.probes import read_probes

        return self._once(("probes", source), read_probes, source)

    def examples(self, section: TuneDataSection) -> tuple[AddressedSet, AddressedSet]:
        """Training examples, and validation examples as they were read."""
        return self._once(("examples", section), read_data, self.inputs["data"], section, self.store)

    def with_negatives(self, settings: TuneSettings) -> tuple[AddressedSet, AddressedSet]:
        """Training and validation examples, each query with negatives."""
        similarity = STATED[self.distance(settings.tune)]
        tower = self.model.query
        train, validation = self._usable(settings.data)
        return (
            with_negatives(train, self.store, tower, similarity=similarity),
            with_negatives(validation, self.store, tower, similarity=similarity),
        )

    def _usable(self, section: TuneDataSection) -> tuple[AddressedSet, AddressedSet]:
        """Training and validation examples whose query the model can embed."""
        train, validation = self.examples(section)
        return (
            self._once(("trained", section), self._with_words, train),
            self._once(("listed", section), self._with_words, validation),
        )

    def _learned_from(self, settings: TuneSettings) -> tuple[AddressedSet, AddressedSet]:
        """These examples, with all that the loss of a run needs of them."""
        train, validation = self._usable(settings.data)
        for examples in (train, validation):
            require_scores(examples, settings.tune)
        return train, validation

    def _with_words(self, examples: AddressedSet) -> AddressedSet:
        """Queries with at least one known token; without any, a static model gives a zero vector whatever is
        tuned.
        """
        if not isinstance(self.model.query.backbone, StaticBackbone):
            return examples
        from adiabat.store.text_vectors import wordless

        left_out = wordless(self.model.query, examples.queries, side="query")
        if not left_out.any():
            return examples
        if left_out.all():
            raise DataError(
                f"{examples.name}: a query must hold a token that the static model "
                f"knows, got none in all {len(examples):,}"
            )
        note = (
            f"{int(left_out.sum()):,} of {len(examples):,} queries hold no token "
            "that the model knows, and are left out"
        )
        return _noted(examples.take(np.flatnonzero(~left_out)), note)

    def require_possible(self, runs: Sequence[TuneSettings]) -> None:
        """Check that model, store and data fit the settings, before anything is written."""
        faults = []
        adapted: set[Method] = set()
        for settings in runs:
            try:
                frozen_parameters(self.model.query.backbone, settings.tune.freeze)
                method = settings.tune.method
                if method.kind != "full" and method not in adapted:
                    adapted.add(method)
                    prepared_tower(self.model.query, settings)
                train, _ = self._learned_from(settings)
                negative_chooser(self.compared(settings.tune), train, self.store, seed=settings.run.seed)
                self.guard(settings)
                self._rehearsal(settings)
                self.retained(settings)
            except (ConfigError, DataError, ModelError, StoreError) as fault:
                faults.append(str(fault))
        if faults:
            raise ConfigError(several(list(dict.fromkeys(faults))))

    def objective(
        self,
        tower: Encoder,
        settings: TuneSettings,
        *,
        validated: bool = True,
        most_validated: int | None = None,
        steps_alone: bool = False,
    ) -> StoredDocuments:
        """The objective of a run; without validation data, only drift is measured.

        Args:
            most_validated: Number of validation queries to sample; None takes all of them.
            steps_alone: Whether it only serves to time steps: without validation data and guard, and with
                texts of rehearsal that are not embedded.
        """
        train, listed = self._learned_from(settings)
        section = self.compared(settings.tune)
        if most_validated is not None and most_validated < len(listed):
            listed = listed.take(np.linspace(0, len(listed) - 1, most_validated).astype(np.int64))
        if validated and not steps_alone:
            validation, validation_tokens = self._validation(tower, settings, listed)
        else:
            validation = train.take(np.empty(0, dtype=np.int64))
            validation_tokens = _query_tokens(tower, ())
        judged = None
        if section.keep == "ranking" and len(validation):
            judged = self.judged(settings, validation, validation_tokens)
        return StoredDocuments(
            encoder=tower,
            store=self.store,
            train=train,
            tokens=self._once(("tokens", settings.data), _query_tokens, tower, train.queries),
            settings=section,
            choose=negative_chooser(section, train, self.store, seed=settings.run.seed),
            seed=settings.run.seed,
            precision=settings.run.precision,
            rehearsal=self._rehearsal(settings, embedded=not steps_alone),
            validation=validation,
            validation_tokens=validation_tokens,
            loss_negatives=_own_negatives(listed, settings),
            guard=None if steps_alone else self.guard(settings),
            judged=judged,
        )

    def guard(self, settings: TuneSettings) -> "Guard | None":
        """The drift guard, if the settings have one; equal sections share it."""
        section = settings.watched
        if section is None:
            return None
        return self._once(("guard", section), self._guard_of, section, settings)

    def _guard_of(self, section: GuardSection, settings: TuneSettings) -> "Guard":
        from adiabat.adiabatic.regularization import Guard

        start = self.start_on_device(settings)
        return Guard.of(section, self.probes(section.probes), start, self.store_at(section.store))

    def _rehearsal(self, settings: TuneSettings, *, embedded: bool = True) -> "Rehearsal | None":
        section = settings.rehearsal
        if section is None:
            return None
        from adiabat.adiabatic.regularization import Rehearsal, at_start, require_apart

        source = section.texts
        texts = self.probes(source)
        if settings.watched is not None:
            require_apart(texts, self.probes(settings.watched.probes))
        start = self.start_on_device(settings).query
        if embedded:
            tokens, vectors = self._once(("rehearsed", source), at_start, texts, start)
        else:
            tokens = _query_tokens(start, texts.texts)
            vectors = torch.zeros(len(tokens), start.width)
        return Rehearsal(tokens, vectors, section.weight, section.texts_per_step, seed=settings.run.seed)

    def judged(self, settings: TuneSettings, validation: AddressedSet, tokens: TokenTable) -> JudgedQueries:
        """Validation queries that are ranked in the whole store."""
        similarity = STATED[self.distance(settings.tune)]
        return self._once(
            ("judged", settings.data, len(validation), similarity),
            JudgedQueries.of,
            self.store,
            validation,
            tokens,
            similarity,
        )

    def retained(self, settings: TuneSettings) -> list[JudgedQueries]:
        """The choosing half of each retention set."""
        return [self._once(("retained", each), self._retained, each, settings) for each in settings.retain]

    def _retained(self, section: RetainSection, settings: TuneSettings) -> JudgedQueries:
        store = self.store_at(section.store)
        examples = choosing_half(section, store)
        train, _ = self._usable(settings.data)
        # The target under another name would be retained by its own training.
        if 2 * (shared := trained_too(examples, train)) > len(examples):
            raise ConfigError(
                f"{option('retain')} must be another data set than {self.inputs['data']}, which has "
                f"{shared:,} of {len(examples):,} queries of {section.data}; leave it out"
            )
        tokens = _query_tokens(self.model.query, examples.queries)
        return JudgedQueries.of(store, examples, tokens, STATED[self.distance(settings.tune)])

    def judges(self, settings: TuneSettings, objective: StoredDocuments) -> Judges:
        """The queries that choose the result of a run that keeps by ranking."""
        assert objective.judged is not None, "asked of a run that keeps by ranking"
        seed, similarity = settings.run.seed, objective.judged.similarity
        # The estimate of their time asks for them too.
        mapped = self._once(
            ("mapped", settings.data, seed, similarity), self._mapped, objective.train, seed, similarity
        )
        return Judges(objective.judged, self.retained(settings), mapped)

    def _mapped(self, train: AddressedSet, seed: int, similarity: Similarity) -> JudgedQueries:
        """Training queries that linear maps are fitted on."""
        order = np.random.default_rng(seed).permutation(len(train))
        drawn = train.take(np.sort(order[:MOST_MAPPED]))
        return JudgedQueries.of(self.store, drawn, _query_tokens(self.model.query, drawn.queries), similarity)

    def _validation(self, tower: Encoder, settings: TuneSettings, listed: AddressedSet) -> Validated:
        # Training on the store's negatives is validated on them too, since listed negatives may all be easy.
        mine_all = settings.tune.negatives.kind != "examples"
        similarity = STATED[self.distance(settings.tune)]
        key = (settings.data, len(listed), similarity, mine_all)
        validation = self._once(
            ("validated", *key),
            with_negatives,
            listed,
            self.store,
            tower,
            similarity=similarity,
            mine_all=mine_all,
        )
        tokens = self._once(("validation tokens", *key), _query_tokens, tower, validation.queries)
        return validation, tokens


def _is_of_no_examples(key: Hashable) -> bool:
    """Whether a cached part of a context depends on model, store and retention sets alone."""
    return isinstance(key, tuple) and key[0] in ("probes", "guard", "rehearsed", "retained")


def _query_tokens(tower: Encoder, texts: Sequence[str]) -> TokenTable:
    return TokenTable.of(tower, texts, side="query")


def prepared_tower(tower: Encoder, settings: TuneSettings) -> tuple[Encoder, FreezeReport]:
    """A copy of a query tower, prepared for training by the settings, on the device of the run.

    The original, which is often also the document tower, is unchanged.
    """
    section = settings.tune
    copy = trainable_copy(tower).train(section.dropout).to(device_of(settings.run.device))
    if section.method.kind != "full":
        # Loaded only for training adapters or biases.
        from adiabat.models.adapters import train_part

        with torch.random.fork_rng([]):
            torch.manual_seed(settings.run.seed)
            train_part(copy.backbone, section.method)
            # Adapters and added biases take the mode of their tower.
            copy.train(section.dropout)
    return copy, freeze(copy.backbone, section.freeze)


def _own_negatives(validation: AddressedSet, settings: TuneSettings) -> Ragged | None:
    """Negatives of the validation loss, if they differ from the negatives mined for the errors.

    A loss over the batch does not need listed negatives; with mined ones, the validation loss would differ
    from the training loss. Only batches of one query need them.
    """
    section = settings.tune
    lists_suffice = (
        section.loss.negatives_from == "batch"
        and section.negatives.kind == "examples"
        and section.batch_size > 1
    )
    return validation.negatives if lists_suffice else None


MINED_NEGATIVES = 10
"""Validation negatives per query if the data lists none: the hardest for the untuned tower."""


def read_data(path: str, settings: TuneDataSection, store: Store) -> tuple[AddressedSet, AddressedSet]:
    """Read the examples, address their documents in the store, and split them into training and
    validation.
    """
    everything = _read(path, settings.split, settings, store, usual="train")
    validation_path = validation_source(settings, [path])
    if validation_path is not None:
        listed = _read(validation_path, None, settings, store, usual="dev")
        train, validation = sharing_answers(everything, listed)
        shared = trained_too(validation, train)
        if shared:
            note = (
                f"{shared:,} of {len(validation):,} validation queries are also trained "
                "on, so validation looks better than it is"
            )
            validation = _noted(validation, note)
        return train, validation
    held_out, notes = queries_held_out(
        everything, settings.hold_out, settings.validation_fraction, settings.max_validation
    )
    trained_rows = np.setdiff1d(np.arange(len(everything)), held_out)
    if not len(held_out) or not len(trained_rows):
        raise DataError(
            f"{path}: data.validation_fraction = {settings.validation_fraction} must leave "
            f"queries on both sides, got {len(held_out)} of "
            f"{len(everything)} held out; choose another fraction, or name a data.validation file"
        )
    return everything.take(trained_rows), _noted(everything.take(held_out), *notes)


def _noted(examples: AddressedSet, *notes: str) -> AddressedSet:
    return replace(examples, notes=(*examples.notes, *notes))


def queries_held_out(
    examples: AddressedSet, hold_out: Literal["queries", "documents"], fraction: float, most: int
) -> tuple[Int[np.ndarray, " n"], list[str]]:
    """Numbers of the queries to hold out, and a note if documents could not be held out."""
    notes = []
    if hold_out == "documents":
        held_out = held_out_documents(examples.queries, examples.positives, fraction, most)
        if held_out is not None:
            return held_out, []
        notes.append(
            "relevance ties most queries together, so validation queries have documents "
            "that are also trained on"
        )
    return held_out_queries(examples.queries, fraction, most), notes


def trained_too(validation: AddressedSet, train: AddressedSet) -> int:
    """Number of validation queries whose text is also in training."""
    trained = set(train.queries)
    return sum(query in trained for query in validation.queries)


def _read(
    path: str, split: str | None, settings: TuneDataSection, store: Store, *, usual: str
) -> AddressedSet:
    examples = read_examples(path, split=split, columns=settings.columns.given(), usual_split=usual)
    if isinstance(examples, LanguageGridSet):
        raise DataError(
            f"{path} must hold queries with positives, got a language grid; use it with {call_of('evaluate')}"
        )
    return address(examples, store, missing=settings.missing, ids=settings.ids)


def with_negatives(
    validation: AddressedSet, store: Store, tower: Encoder, *, similarity: Similarity, mine_all: bool = False
) -> AddressedSet:
    """Give each validation query without listed negatives the hardest documents for the untuned tower."""
    bare = np.flatnonzero((validation.negatives.lengths == 0) | mine_all)
    if not len(bare):
        return validation
    vectors = tower.encode([validation.queries[row] for row in bare], side="query", precision="fp32")
    excluded = [validation.known[int(row)] for row in bare]
    hits = search(
        store, vectors, MINED_NEGATIVES, similarity=similarity, device=tower.device, excluded=excluded
    )
    mined = {int(row): hit_rows[hit_rows >= 0] for row, hit_rows in zip(bare, hits.rows, strict=True)}
    # A store may hold nothing but the positives of a query.
    lonely = sum(not len(hit_rows) for hit_rows in mined.values())
    if lonely:
        raise DataError(
            f"{store.path} must hold a document beside a validation query's "
            f"positives, got none for {lonely:,} of them; "
            "list negatives in the data, or add documents to the store"
        )
    lists = [mined.get(row, validation.negatives[row]) for row in range(len(validation))]
    replaced = int((validation.negatives.lengths[bare] > 0).sum())
    if replaced:
        note = (
            f"the negatives that {replaced:,} of {len(validation):,} validation queries list are replaced by "
            f"the store's {MINED_NEGATIVES} hardest, since training takes its negatives from the store too"
        )
        validation = _noted(validation, note)
    return replace(validation, negatives=Ragged.of(lists))


def examples_digest(*sets: AddressedSet, scored: bool = False) -> str:
    """SHA-256 over queries, positives and negatives of data sets, in their order, and over a teacher's scores
    where the loss learns from them (`scored`).
    """
    digest = hashlib.sha256()
    for examples in sets:
        # Lengths tell apart texts that are equal when joined.
        lengths = np.array([len(examples), *map(len, examples.queries)], dtype=np.int64)
        digest.update(lengths.data)
        digest.update("".join(examples.queries).encode("utf-8", "surrogatepass"))
        for lists in (examples.positives, examples.negatives):
            digest.update(np.concatenate([lists.offsets, lists.values]).astype(np.int64).data)
        if scored:
            digest.update(json.dumps([list(of_query.items()) for of_query in examples.scores]).encode())
    return digest.hexdigest()
