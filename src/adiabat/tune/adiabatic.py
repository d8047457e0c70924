"""Adiabatic tuning: a query tower learns, slowly, against document vectors that never change (missions A1 to A4, A14)."""

import copy
import hashlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int
from torch import Tensor

from adiabat.config import TuneDataSection, TuneSection, TuneSettings
from adiabat.data.examples import read_examples
from adiabat.data.records import LanguageGridSet
from adiabat.errors import DataError, JobError
from adiabat.provenance import now, versions
from adiabat.measure.results import Result, TuningRecord
from adiabat.model.device import device_name, device_of
from adiabat.model.directory import save
from adiabat.model.encoder import Encoder
from adiabat.model.freezing import FreezeReport, freeze
from adiabat.model.tokens import TokenTable
from adiabat.model.towers import DualEncoder
from adiabat.report.files import write_result
from adiabat.report.page import write_page
from adiabat.store.addressing import AddressedSet, Ragged, address
from adiabat.store.embeddings import Store
from adiabat.store.search import search
from adiabat.train.log import JobLog, read_log
from adiabat.train.loop import Limits, Loop, Outcome, Position
from adiabat.train.optimizers import make_optimizer
from adiabat.train.schedules import Schedule, scaled_learning_rate
from adiabat.tune.job import Job, open_job
from adiabat.tune.layers import layer_changes
from adiabat.tune.negatives import negative_chooser
from adiabat.tune.objective import StoredDocuments, pairs_of
from adiabat.watch import SILENT, Watch

MINED_NEGATIVES = 10
"""Validation negatives per query where the data lists none: the hardest for the untuned tower."""


def tune(
    load_model: Callable[[], DualEncoder],
    store_path: Path,
    data_path: str,
    out: Path,
    *,
    settings: TuneSettings | None = None,
    model_name: str,
    resume: bool = False,
    command: str = "",
    watch: Watch = SILENT,
) -> Result:
    """Tune a query tower against a store, and leave a job directory: configuration, log, checkpoints, model, result and report.

    Args:
        load_model: Gives the model; called once data and store have been read, so that their faults come first.
        store_path: Document vectors of this model.
        data_path: Examples: (query, positives, negatives).
        out: The job directory.
        settings: None takes the default regime.
        model_name: For ``config.toml`` and the report.
        resume: Go on with a job that was cut short.
        command: The command line, for the report.
        watch: Whom to tell.

    Returns:
        The result, as written to ``result.json``; the tuned pair is in ``out/model``.

    Raises:
        AdiabatError: If anything the user gave is wrong; an output directory that was not there before is then not made.
    """
    settings = settings or TuneSettings()
    store = Store.open(store_path)
    train, validation = read_data(data_path, settings.data, store)
    model = load_model()
    store.require_encoder(model.fingerprint("document"))
    tower = tunable_tower(model.query, dropout=settings.tune.dropout).to(device_of(settings.run.device))
    frozen = freeze(tower.backbone, settings.tune.freeze)
    validation = with_negatives(validation, store, tower)
    objective = _objective(tower, store, train, validation, settings)
    job = open_job(out, _description(model, model_name, store, store_path, data_path, settings), resume=resume)
    _say_what_is_tuned(watch, train, validation, frozen)
    outcome = _train(objective, settings, job, resume=resume, watch=watch)
    result = _result(objective, model, outcome, job, settings, model_name=model_name, command=command)
    _finish(job, DualEncoder(tower, model.document, str(out)), result)
    return result


def tunable_tower(tower: Encoder, *, dropout: bool) -> Encoder:
    """A copy of a query tower to be tuned; the original, which is often the document tower too, stays as it is.

    Args:
        tower: Where tuning starts.
        dropout: Whether dropout is on in training.

    Returns:
        The copy, in training mode only where dropout is wanted; a pooler head, which the vector does not pass through, is frozen.
    """
    projections = copy.deepcopy(list(tower.projections))
    twin = Encoder(copy.deepcopy(tower.backbone), tower.tokenizer, tower.settings, projections)  # type: ignore[arg-type]
    used = {id(weights) for weights in twin.used_parameters().values()}
    for weights in twin.parameters():
        weights.requires_grad_(id(weights) in used)
    return twin.train(dropout)


def read_data(path: str, settings: TuneDataSection, store: Store) -> tuple[AddressedSet, AddressedSet]:
    """Read the examples, find their documents in the store, and part training from validation.

    Args:
        path: Of the examples.
        settings: Splits, columns, and where validation comes from.
        store: Holds the documents.

    Returns:
        Training and validation examples.

    Raises:
        DataError: If a file is faulty, a document is missing, or one of the two parts would be empty.
    """
    everything = _read(path, settings.split, settings, store)
    if settings.validation:
        return everything, _read(settings.validation, settings.validation_split or settings.split, settings, store)
    held_out = held_out_queries(everything.queries, settings.validation_fraction, settings.max_validation)
    kept = np.setdiff1d(np.arange(len(everything)), held_out)
    if not len(held_out) or not len(kept):
        raise DataError(
            f"{path}: {len(everything)} queries are too few to hold out data.validation_fraction = {settings.validation_fraction}; "
            "raise the fraction, or name a data.validation file"
        )
    return everything.take(kept), everything.take(held_out)


def _read(path: str, split: str | None, settings: TuneDataSection, store: Store) -> AddressedSet:
    examples = read_examples(path, split=split, columns=settings.columns.given())
    if isinstance(examples, LanguageGridSet):
        raise DataError(f"{path} must hold queries with positives, got a language grid; use it with adiabat evaluate")
    return address(examples, store, missing=settings.missing)


def held_out_queries(queries: list[str], fraction: float, most: int) -> Int[np.ndarray, " n"]:
    """Which queries are held out: those whose text hashes lowest, so that the same query is always on the same side.

    Args:
        queries: Texts.
        fraction: Share of all possible hashes that is held out.
        most: Limit.

    Returns:
        Their numbers, ascending.
    """
    hashes = np.array([int.from_bytes(hashlib.sha256(query.encode("utf-8", "surrogatepass")).digest()[:8]) for query in queries], dtype=np.uint64)
    low = np.flatnonzero(hashes < np.uint64(int(fraction * 2**64)))
    chosen: Int[np.ndarray, " n"] = np.sort(low[np.argsort(hashes[low], kind="stable")][:most])
    return chosen


def with_negatives(validation: AddressedSet, store: Store, tower: Encoder) -> AddressedSet:
    """Give each validation query that lists no negatives the hardest documents for the tower before tuning.

    Args:
        validation: Some or all queries may lack negatives.
        store: Where they are mined.
        tower: Before tuning.

    Returns:
        The same queries, each with negatives.
    """
    bare = np.flatnonzero(validation.negatives.lengths == 0)
    if not len(bare):
        return validation
    vectors = tower.encode([validation.queries[row] for row in bare], side="query", precision="fp32")
    hits = search(store, vectors, MINED_NEGATIVES, similarity="cosine", excluded=[validation.positives[int(row)] for row in bare])
    mined = {int(row): found[found >= 0] for row, found in zip(bare, hits.rows, strict=True)}
    lists = [mined.get(row, validation.negatives[row]) for row in range(len(validation))]
    return replace(validation, negatives=Ragged.of(lists))


def _objective(tower: Encoder, store: Store, train: AddressedSet, validation: AddressedSet, settings: TuneSettings) -> StoredDocuments:
    return StoredDocuments(
        encoder=tower,
        store=store,
        train=train,
        tokens=TokenTable.of(tower, train.queries, side="query"),
        validation=validation,
        validation_tokens=TokenTable.of(tower, validation.queries, side="query"),
        settings=settings.tune,
        choose=negative_chooser(settings.tune, train, store, seed=settings.run.seed),
        seed=settings.run.seed,
        precision=settings.run.precision,
    )


def _description(
    model: DualEncoder, name: str, store: Store, store_path: Path, data_path: str, settings: TuneSettings
) -> dict[str, Any]:
    """Everything that decides the run, for ``config.toml``: a resumed run must agree in all of it."""
    inputs = {"model": name, "store": str(store_path), "data": data_path}
    digests = {"query_weights": model.query.weights_digest(), "store_vectors": store.manifest.sha256}
    return {"job": {**inputs, **digests}, **settings.model_dump()}


def _say_what_is_tuned(watch: Watch, train: AddressedSet, validation: AddressedSet, frozen: FreezeReport) -> None:
    for sentence in dict.fromkeys((*train.notes, *validation.notes)):
        watch.note(sentence)
    watch.note(f"tuning {frozen.trainable:,} of {frozen.trainable + frozen.frozen:,} parameters on {len(train):,} queries")
    watch.note(f"validating on {len(validation):,} queries, {pairs_of(validation):,} pairs")


def _train(objective: StoredDocuments, settings: TuneSettings, job: Job, *, resume: bool, watch: Watch) -> Outcome:
    section, run = settings.tune, settings.run
    rate = scaled_learning_rate(
        section.learning_rate, batch_size=section.batch_size, reference_batch_size=section.reference_batch_size, rule=section.batch_scaling
    )
    trainable = [weights for weights in objective.encoder.parameters() if weights.requires_grad]
    log = JobLog(job.log, tensorboard=job.folder / "tensorboard" if run.tensorboard else None)
    loop = Loop(
        objective=objective,
        optimizer=make_optimizer(section.optimizer, trainable, learning_rate=rate, weight_decay=section.weight_decay),
        learning_rate=rate,
        schedule=schedule_of(settings),
        limits=Limits(
            section.batches_per_epoch, section.max_epochs, section.idle_epochs, run.log_every, run.checkpoint_seconds, run.keep_checkpoints
        ),
        folder=job.checkpoints,
        log=log,
        watch=lambda position: watch.progress(*_standing(position, section)),
        warn=watch.note,
    )
    try:
        return loop.run(resume=resume)
    finally:
        log.close()


def _standing(position: Position, section: TuneSection) -> tuple[str, int, int]:
    """Label, steps done in this epoch and steps of an epoch, for a progress display."""
    done = position.step - position.epoch * section.batches_per_epoch
    best = f"best {position.best_epoch}: {position.best.errors:,} errors" if position.best else "validating"
    return f"epoch {position.epoch + 1} ({best}; idle {position.idle}/{section.idle_epochs})", done, section.batches_per_epoch


def schedule_of(settings: TuneSettings) -> Schedule:
    """The schedule that settings describe, over the longest the run may last.

    Args:
        settings: `TuneSection.schedule` and what belongs to it.

    Returns:
        The schedule.
    """
    section = settings.tune
    return Schedule(
        name=section.schedule,
        total_steps=section.max_epochs * section.batches_per_epoch,
        steps_per_epoch=section.batches_per_epoch,
        gamma=section.gamma,
        warmup_steps=section.warmup_steps,
        final_fraction=section.final_fraction,
    )


def _result(
    objective: StoredDocuments, model: DualEncoder, outcome: Outcome, job: Job, settings: TuneSettings, *, model_name: str, command: str
) -> Result:
    record = _record(objective, model, outcome, job, settings)
    return Result(
        title=f"Tuning the query tower of {model_name} on {objective.train.name}",
        command=command,
        created=now(),
        seconds=record.seconds,
        seed=settings.run.seed,
        versions=versions(device_name(objective.encoder.device)),
        model=str(job.folder),
        tuning=record,
    )


def _record(objective: StoredDocuments, model: DualEncoder, outcome: Outcome, job: Job, settings: TuneSettings) -> TuningRecord:
    position, rows = outcome.position, list(read_log(job.log))
    validations = [row for row in rows if "validation_loss" in row]
    tuned = {name: weights for name, weights in objective.encoder.used_parameters().items() if weights.requires_grad}
    before: dict[str, Tensor] = dict(model.query.used_parameters())
    return TuningRecord(
        settings=settings.model_dump(mode="json", exclude_none=True),
        trained_on=f"{objective.train.name}: {len(objective.train):,} queries, validated on {len(objective.validation):,} others",
        parameters=sum(weights.numel() for weights in objective.encoder.parameters()),
        trainable=sum(weights.numel() for weights in tuned.values()),
        steps=position.step,
        epochs=position.epoch,
        best_epoch=position.best_epoch,
        stop_reason=outcome.reason,
        seconds=position.seconds,
        loss=[(row["step"], row["loss"]) for row in rows if "loss" in row],
        validation_loss=[(row["epoch"], row["validation_loss"]) for row in validations],
        validation_errors=[(row["epoch"], row["validation_errors"]) for row in validations],
        validation_pairs=pairs_of(objective.validation),
        layers=layer_changes({name: before[name].detach() for name in tuned}, {name: weights.detach().cpu() for name, weights in tuned.items()}),
    )


def _finish(job: Job, tuned: DualEncoder, result: Result) -> None:
    """Write model, result and report; the model under its own name only once it is whole."""
    partial = job.folder / ".model"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        save(tuned.to("cpu"), partial)
        shutil.rmtree(job.model, ignore_errors=True)
        partial.rename(job.model)
    except OSError as fault:
        shutil.rmtree(partial, ignore_errors=True)
        raise JobError(f"{job.model} could not be written: {fault}; free some space and run the same command with --resume") from fault
    write_result(result, job.result)
    write_page(result, job.report)
