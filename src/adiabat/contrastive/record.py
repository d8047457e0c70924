"""What a training run leaves for readers: counts, notes, and the record of what it did."""

from adiabat.contrastive.building import Built, named_weights
from adiabat.contrastive.objective import PairContrast
from adiabat.jobs.directory import Job, read_description
from adiabat.measure.layers import layer_changes
from adiabat.measure.results import Result, TrainingRecord
from adiabat.model.device import device_name
from adiabat.model.towers import DualEncoder
from adiabat.provenance import now, versions
from adiabat.train.limits import Outcome
from adiabat.train.log import read_log


def notes_of(objective: PairContrast) -> tuple[str, ...]:
    """What a reader of the result must know: what was left out, and what the limits cut.

    Args:
        objective: Of the run.

    Returns:
        Sentences.
    """
    settings = objective.settings
    found = [*objective.train.notes, *objective.validation.notes]
    for side, table in objective.tables.items():
        limit = objective.towers.tower(side).settings.max_tokens
        if full := int((table.lengths >= limit).sum()):
            kind = "queries" if side == "query" else "documents"
            found.append(f"{full:,} of {len(table):,} {kind} fill the limit of {limit} tokens: what goes beyond it is not read")
    if settings.train.similarity == "dot" and objective.towers.query.settings.normalize:
        found.append(
            "embeddings have unit length, so that train.similarity = dot is the cosine; encoder.normalize = false lets lengths differ"
        )
    if len(objective.validation.candidates) == 1:
        found.append("validation has a single document to rank, so that its loss, P@1 and RR say nothing; hold out more, or list negatives")
    listed = int((objective.train.negatives.lengths[objective.train.asked] > 0).sum())
    if settings.train.negatives_per_query and settings.train.loss != "triplet" and 0 < listed < len(objective.train.asked):
        found.append(f"{listed:,} of {len(objective.train.asked):,} queries list negatives; the others have those of the batch alone")
    return tuple(dict.fromkeys(found))


def counts_of(objective: PairContrast) -> tuple[int, int]:
    """Parameters of the towers, each once.

    Args:
        objective: Of the run.

    Returns:
        All of them, adapters and a learned temperature included, and those that are trained.
    """
    sizes = [(weights.numel(), weights.requires_grad) for weights in objective.module.parameters()]
    return sum(size for size, _ in sizes), sum(size for size, trained in sizes if trained)


def result_of(objective: PairContrast, built: Built, plain: DualEncoder, outcome: Outcome, job: Job, command: str) -> Result:
    """What a run did, read off its log and its weights.

    Args:
        objective: Of the run, with the weights that are kept.
        built: What it started from.
        plain: The towers as they are saved, without adapters.
        outcome: How the loop ended.
        job: Whose log is read.
        command: The command line.

    Returns:
        The result, as it is written to ``result.json``.
    """
    settings = objective.settings
    record = _record(objective, built, plain, outcome, job)
    digests = {f"{name}_sha256": digest for name, digest in read_description(job).get("digests", {}).items()}
    return Result(
        title=f"Training {settings.job.model} on {objective.train.name}",
        command=command,
        created=now(),
        seconds=record.seconds,
        seed=settings.run.seed,
        versions=versions(device_name(objective.towers.query.device)),
        model=str(job.folder),
        training=record,
        settings=record.settings,
        inputs={"train": {**settings.job.model_dump(exclude_none=True), **digests}},
    )


def _record(objective: PairContrast, built: Built, plain: DualEncoder, outcome: Outcome, job: Job) -> TrainingRecord:
    position, rows = outcome.position, list(read_log(job.log))
    validations = [row for row in rows if "validation_loss" in row]
    parameters, trained = counts_of(objective)
    after = named_weights(plain)
    names = [name for name, weights in built.before.items() if name in after and not weights.equal(after[name].detach().cpu())]
    return TrainingRecord(
        settings=objective.settings.model_dump(mode="json", exclude_none=True),
        trained_on=f"{objective.train.name}: {len(objective.train):,} pairs, validated on {len(objective.validation.asked):,} queries",
        parameters=parameters,
        trainable=trained,
        steps=position.step,
        epochs=position.epoch,
        best_epoch=position.best_epoch,
        stop_reason=outcome.reason,
        seconds=position.seconds,
        loss=[(row["step"], row["loss"]) for row in rows if "loss" in row],
        validation_loss=[(row["epoch"], row["validation_loss"]) for row in validations],
        validation_errors=[(row["epoch"], row["validation_errors"]) for row in validations],
        validation_pairs=len(objective.validation.asked),
        layers=layer_changes({name: built.before[name] for name in names}, {name: after[name].detach().cpu() for name in names}),
        notes=notes_of(objective),
        kind="training",
        unit="queries",
        passes=position.step * objective.settings.train.batch_size / len(objective.train),
        measures={name: [(row["epoch"], row[f"validation_{name}"]) for row in validations] for name in ("P@1", "RR")},
    )
