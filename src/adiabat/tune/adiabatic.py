"""Adiabatic tuning: a query tower learns, slowly, against document vectors that never change (missions A1 to A4, A14)."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from adiabat.config import TuneSection, TuneSettings
from adiabat.jobs.directory import Job, open_job, read_description
from adiabat.jobs.finish import finish_job
from adiabat.jobs.record import record_of, result_of
from adiabat.locks import sole_writer
from adiabat.measure.layers import layer_changes
from adiabat.measure.results import Result
from adiabat.model.building import trainable_copy
from adiabat.model.device import device_of
from adiabat.model.encoder import Encoder
from adiabat.model.freezing import FreezeReport, check_patterns, freeze
from adiabat.model.tokens import TokenTable
from adiabat.model.towers import DualEncoder
from adiabat.store.addressing import AddressedSet
from adiabat.store.embeddings import Store
from adiabat.train.limits import Limits, Outcome, Position
from adiabat.train.log import JobLog
from adiabat.train.loop import Loop
from adiabat.train.optimizers import ROUNDED_AWAY, make_optimizer
from adiabat.train.passes import side_passes
from adiabat.train.schedules import Schedule, scaled_learning_rate
from adiabat.tune.beforehand import inputs_of, require_ready
from adiabat.tune.negatives import negative_chooser, short_lists_note, similarity_of
from adiabat.tune.objective import StoredDocuments, pairs_of
from adiabat.tune.resuming import RULES, WORDS
from adiabat.tune.splits import examples_digest, read_data, trained_too, with_negatives
from adiabat.watch import SILENT, Watch


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
    _check(settings)
    inputs = inputs_of(model_name, store_path, data_path)
    if note := require_ready(inputs, out, settings=settings, resume=resume):
        watch.note(note)
    store = Store.open(store_path)
    train, validation = read_data(data_path, settings.data, store)
    model = load_model()
    store.require_encoder(model.fingerprint("document"))
    tower = tunable_tower(model.query, dropout=settings.tune.dropout).to(device_of(settings.run.device))
    frozen = freeze(tower.backbone, settings.tune.freeze)
    objective = _objective(tower, store, train, validation, settings)
    loop = _loop(objective, settings, Job(out), watch)
    job = open_job(out, _description(model, inputs, objective, settings), resume=resume, rules=RULES)
    _say_what_is_tuned(watch, objective, frozen, settings)
    with sole_writer(job.folder), side_passes(tower, precision=settings.run.precision) as objective.passes:
        outcome = loop.run(resume=resume)
        result = _result(objective, model, outcome, job, settings, model_name=model_name, command=command)
        finish_job(job, replace(model, query=tower, name=str(out)), result)
    return result


def tunable_tower(tower: Encoder, *, dropout: bool) -> Encoder:
    """A copy of a query tower to be tuned; the original, which is often the document tower too, stays as it is.

    Args:
        tower: Where tuning starts.
        dropout: Whether dropout is on in training.

    Returns:
        The `trainable_copy`, in training mode only where dropout is wanted.
    """
    return trainable_copy(tower).train(dropout)


def objective_of(tower: Encoder, store: Store, data_path: str, settings: TuneSettings) -> StoredDocuments:
    """What tuning minimises, for those who bring a loop of their own.

    Args:
        tower: To be tuned.
        store: Its documents.
        data_path: Examples, as for `tune`.
        settings: Data, loss, negatives, seed and precision.

    Returns:
        The objective.

    Raises:
        DataError: If a file is faulty, a document is missing, or there are too few queries or documents.
    """
    train, validation = read_data(data_path, settings.data, store)
    return _objective(tower, store, train, validation, settings)


def _objective(tower: Encoder, store: Store, train: AddressedSet, validation: AddressedSet, settings: TuneSettings) -> StoredDocuments:
    # What is trained on the store's own negatives is validated on them: those listed with an example may all be easy.
    mine_all = settings.tune.negatives != "examples"
    # The softmax does without listed negatives; were its validation loss to go by mined ones, it would not be the loss that is trained.
    # Only a batch of one query, which has no other's positive to be told apart from, needs them.
    section = settings.tune
    lists_suffice = section.loss == "in_batch_softmax" and section.negatives == "examples" and section.batch_size > 1
    own = validation.negatives if lists_suffice else None
    validation = with_negatives(validation, store, tower, similarity=similarity_of(settings.tune), mine_all=mine_all)
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
        loss_negatives=own,
    )


def _check(settings: TuneSettings) -> None:
    """Raise ConfigError for what can be seen to be wrong without data or model."""
    device_of(settings.run.device)
    check_patterns(settings.tune.freeze)
    schedule_of(settings)


def _description(model: DualEncoder, inputs: dict[str, str], objective: StoredDocuments, settings: TuneSettings) -> dict[str, Any]:
    """Everything that decides the run, for ``config.toml``: a resumed run must agree in all of it."""
    found = (_digest_of(model), objective.store.manifest.sha256, examples_digest(objective.train, objective.validation))
    digests = {key.removeprefix("job."): digest for key, digest in zip(WORDS, found, strict=True)}
    return {"job": {**inputs, **digests}, **settings.model_dump()}


def _digest_of(model: DualEncoder) -> str:
    """Of all that decides the query vectors where tuning starts: weights, tokenizer, prompt, pooling and limit."""
    return hashlib.sha256(json.dumps(model.fingerprint("query").to_json(), sort_keys=True).encode()).hexdigest()


def _say_what_is_tuned(watch: Watch, objective: StoredDocuments, frozen: FreezeReport, settings: TuneSettings) -> None:
    train, validation = objective.train, objective.validation
    for sentence in _notes(objective, settings):
        watch.note(sentence)
    watch.note(f"tuning {frozen.trainable:,} of {frozen.trainable + frozen.frozen:,} parameters on {len(train):,} queries of {train.name}")
    limit = objective.encoder.settings.max_tokens
    if full := int((objective.tokens.lengths >= limit).sum()):
        watch.note(f"{full:,} of {len(train):,} queries fill the limit of {limit} tokens: what goes beyond it is not read")
    watch.note(f"validating on {len(validation):,} queries, {pairs_of(validation):,} pairs")


def _notes(objective: StoredDocuments, settings: TuneSettings) -> tuple[str, ...]:
    """What a reader of the result must know: what was left out or replaced, and settings that do nothing."""
    short = short_lists_note(objective.train, settings.tune)
    decay = _decay_note(settings.tune)
    return tuple(dict.fromkeys([*objective.train.notes, *objective.validation.notes, *filter(None, (short, decay))]))


def _decay_note(section: TuneSection) -> str | None:
    """Said of a decay that someone chose: below half an ulp of every weight it is rounded away (see `make_optimizer`)."""
    chosen = section.weight_decay not in (0, TuneSection().weight_decay)
    if section.optimizer != "adamw" or not chosen or _rate(section) * section.weight_decay >= ROUNDED_AWAY:
        return None
    return f"tune.weight_decay = {section.weight_decay:g} has no effect at the learning rate {_rate(section):g} in float32"


def _rate(section: TuneSection) -> float:
    return scaled_learning_rate(
        section.learning_rate, batch_size=section.batch_size, reference_batch_size=section.reference_batch_size, rule=section.batch_scaling
    )


def _loop(objective: StoredDocuments, settings: TuneSettings, job: Job, watch: Watch) -> Loop:
    """The loop of a job, with nothing written yet."""
    section, run = settings.tune, settings.run
    rate = _rate(section)
    trainable = [weights for weights in objective.encoder.parameters() if weights.requires_grad]
    return Loop(
        objective=objective,
        optimizer=make_optimizer(section.optimizer, trainable, learning_rate=rate, weight_decay=section.weight_decay),
        learning_rate=rate,
        schedule=schedule_of(settings),
        limits=Limits(
            section.batches_per_epoch,
            section.max_epochs,
            section.idle_epochs,
            log_every=run.log_every,
            checkpoint_seconds=run.checkpoint_seconds,
            keep_checkpoints=run.keep_checkpoints,
        ),
        folder=job.checkpoints,
        log=JobLog(job.log, tensorboard=job.folder / "tensorboard" if run.tensorboard else None),
        seed=run.seed,
        watch=lambda position: watch.progress(*_standing(position, section)),
        note=watch.note,
    )


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
    tuned = {name: weights for name, weights in objective.encoder.used_parameters().items() if weights.requires_grad}
    before: dict[str, Tensor] = dict(model.query.used_parameters())
    record = record_of(
        job,
        outcome,
        settings=settings.model_dump(mode="json", exclude_none=True),
        kind="tuning",
        unit="pairs",
        trained_on=_trained_on(objective.train, objective.validation),
        parameters=sum(weights.numel() for weights in objective.encoder.parameters()),
        trainable=sum(weights.numel() for weights in tuned.values()),
        validated=pairs_of(objective.validation),
        layers=layer_changes(
            {name: before[name].detach() for name in tuned}, {name: weights.detach().cpu() for name, weights in tuned.items()}
        ),
        notes=_notes(objective, settings),
    )
    return result_of(
        job,
        record,
        title=f"Tuning the query tower of {model_name} on {objective.train.name}",
        command=command,
        seed=settings.run.seed,
        inputs=read_description(job)["job"],
        device=objective.encoder.device,
    )


def _trained_on(train: AddressedSet, validation: AddressedSet) -> str:
    shared = trained_too(validation, train)
    others = f"queries, {shared:,} of them trained on too" if shared else "others"
    source = "" if validation.name == train.name else f", from {validation.name}"
    return f"{train.name}: {len(train):,} queries, validated on {len(validation):,} {others}{source}"
