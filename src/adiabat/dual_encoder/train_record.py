"""The expected cost of a training run, and its record: counts and notes.

Notes are sentences for readers of the result. They tell what the data lacked, what was cut or left out, and
which settings had no effect.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import tomli_w
import torch

from adiabat.config.training_choices import InBatchLoss
from adiabat.core.text import amount
from adiabat.data.text_hashes import TrainedTexts
from adiabat.dual_encoder.batches import in_small_groups, left_out_note, mixture_note, unnamed
from adiabat.dual_encoder.contrastive_objective import PairContrast, listed_pairs
from adiabat.dual_encoder.pair_data import trained_pairs
from adiabat.dual_encoder.tower_setup import Built, named_weights
from adiabat.models.model_names import with_starts
from adiabat.models.towers import DualEncoder
from adiabat.results.evaluation_result import Result
from adiabat.results.training_record import LayerChange, TrainingRecord
from adiabat.runs.run_config import Job, read_description, without_none
from adiabat.training.checkpoint import Outcome
from adiabat.training.run_record import layer_changes, log_fields, result_of

TIMED_STEPS = 3
"""Steps that an estimate takes; the first one, which also sets things up, does not count for the time."""

SAMPLED_STEPS = 50
"""Batches whose tokens are counted."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Expected cost of a training run.

    Attributes:
        settings: Resolved settings.
        parameters: Number of parameters of both towers; shared ones count once.
        trained: Number of parameters that are trained.
        pairs: Number of training pairs; in a stream, those of its first shard.
        steps: Number of optimizer steps.
        tokens: Tokens that pass through trained towers in the whole run, without padding.
        flops: ``2 (N_F + N_B + N_U)`` operations per token; see `adiabat.scaling_laws.flops`.
        operations: Operations counted one by one; see `adiabat.training.flop_count`.
        memory_bytes: Peak memory of the process while loading and running `TIMED_STEPS` steps; on a GPU, its
            peak memory.
        step_seconds: Measured time of an optimizer step; with a frozen tower, it includes embedding texts
            that are then cached.
        seconds: Time of all steps, without validations and checkpoints.
        device: Device of the measurement.
        notes: Notes for the reader.
    """

    settings: dict[str, Any]
    parameters: int
    trained: int
    pairs: int
    steps: int
    tokens: float
    flops: float
    operations: float
    memory_bytes: int
    step_seconds: float
    seconds: float
    device: str
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Nested plain data, ready for `json.dump`."""
        return asdict(self)

    def summary(self) -> str:
        """The resolved settings and the expected cost, as text."""
        data = f"{self.pairs:,} pairs"
        if self.settings["data"]["stream"]:
            data = f"a stream, in shards of about {data}"
        share = f"{100 * self.trained / self.parameters:.1f} %"
        lines = [
            f"parameters: {self.parameters:,}, trained: {self.trained:,} ({share})",
            f"length: {self.steps:,} steps on {data}, {self.tokens:.3g} tokens",
            f"operations: {self.flops:.3g} FLOP by parameters and tokens, {self.operations:.3g} one by one",
            f"memory: {amount(self.memory_bytes)}, measured in {TIMED_STEPS} steps on {self.device}",
            f"time: {self.seconds:,.0f} s at {self.step_seconds:.2f} s a step, validations not counted",
            *self.notes,
        ]
        settings = tomli_w.dumps(without_none(self.settings))
        return "\n# ".join([settings, *lines])


def notes_of(objective: PairContrast) -> tuple[str, ...]:
    """Notes for readers of the result: data left out, texts truncated, settings without effect."""
    settings = objective.settings
    loss, train = settings.train.loss, objective.train
    notes = [*train.notes, *objective.validation.notes]
    for side, table in objective.tables.items():
        limit = objective.towers.tower(side).settings.limit(side)
        if full := int((table.lengths >= limit).sum()):
            kind = "queries" if side == "query" else "documents"
            notes.append(
                f"{full:,} of {len(table):,} {kind} reach the limit of {limit} tokens: longer ones are cut"
            )
    by_dot = isinstance(loss, InBatchLoss) and loss.similarity == "dot"
    if by_dot and objective.towers.query.settings.unit_length:
        notes.append(
            "embeddings have unit length, so that train.loss.similarity = dot is the cosine; "
            "encoder.normalize = false lets lengths differ"
        )
    if nameless := unnamed(train, settings):
        notes.append(nameless)
    if small := in_small_groups(train, settings):
        notes.append(
            f"{small:,} of {len(train):,} pairs have a {settings.batches.group.kind} "
            "with fewer pairs than a batch, so their batches mix several"
        )
    largest_source = np.bincount(train.sources).max()
    if settings.mixture.cap is not None and settings.mixture.cap >= largest_source:
        notes.append(f"mixture.cap = {settings.mixture.cap:,} has no effect: no source has more pairs")
    if len(objective.validation.candidates) == 1:
        notes.append(
            "validation has a single document to rank, so that its loss, P@1 and RR are "
            "meaningless; hold out more, or list negatives"
        )
    queries = len(train.query_rows)
    listed = np.count_nonzero(train.negatives.lengths[train.query_rows])
    if isinstance(loss, InBatchLoss) and loss.negatives_per_query and 0 < listed < queries:
        notes.append(
            f"{listed:,} of {queries:,} queries list negatives; the others have only in-batch negatives"
        )
    if objective.stream is not None and notes:
        notes.append("the counts of pairs and texts here cover one shard of the stream")
    return tuple(dict.fromkeys(notes))


def counts_of(objective: PairContrast) -> tuple[int, int]:
    """Numbers of all and of trained parameters of the towers; shared ones count once."""
    parameters = list(objective.module.parameters())
    trained = [weights for weights in parameters if weights.requires_grad]
    return sum(map(torch.numel, parameters)), sum(map(torch.numel, trained))


def passed(objective: PairContrast, steps: int) -> tuple[float, float, float]:
    """Tokens and both counts of operations of a run, estimated from a sample of its batches."""
    counts = []
    with objective.passing():
        for step in range(min(steps, SAMPLED_STEPS)):
            cost = objective.cost_of_passes(step)
            counts.append((sum(objective.tokens_of(step).values()), cost.flops, cost.operations))
    # The mean step, as often as the run takes one.
    tokens, flops, operations = (steps * np.mean(counts, axis=0)).tolist()
    return tokens, flops, operations


def result_of_run(
    objective: PairContrast, built: Built, plain: DualEncoder, outcome: Outcome, job: Job, command: str
) -> Result:
    """The result of a run, from its log and weights.

    Args:
        built: The towers with their initial weights.
        plain: The trained towers without adapters, compared with the initial ones tensor by tensor.
        command: The command line; "" for a call from Python.
    """
    settings = objective.settings
    parameters, trained = counts_of(objective)
    steps = outcome.position.step
    if objective.stream is None:
        passes: float | None = steps * settings.train.batch_size / objective.sampler.pairs
        amount_read = f"{len(objective.train):,} pairs"
        drawn = mixture_note(objective.sampler, objective.train, settings, steps=steps)
        outcome_notes = [left_out_note(objective.sampler, steps=steps), drawn]
    else:
        last = objective.at(max(0, steps - 1))
        amount_read = f"{objective.stream.drawn(steps, last).sum():,} pairs of a stream"
        outcome_notes = [*objective.stream.notes(steps, last)]
        # Shards of a stream are passed over once, and together have no size.
        passes = None
    queries = len(objective.validation.query_rows)
    by_pairs = settings.train.error_unit == "pairs"
    budget = settings.train.budget_flops
    record = TrainingRecord(
        **log_fields(job, outcome, total=objective.steps, planned=budget, measures=("P@1", "RR")),
        settings=settings.recorded(),
        kind="training",
        unit=settings.train.error_unit,
        trained_on=f"{objective.train.name}: {amount_read}, validated on {queries:,} queries",
        parameters=parameters,
        trainable=trained,
        validation_pairs=listed_pairs(objective.validation) if by_pairs else queries,
        layers=layers_changed(built, plain),
        notes=(*notes_of(objective), *filter(None, outcome_notes)),
        passes=passes,
    )
    digests = {f"{name}_sha256": digest for name, digest in read_description(job).get("digests", {}).items()}
    return result_of(
        job,
        record,
        title=f"Training {settings.job.model} on {objective.train.name}",
        command=command,
        seed=settings.run.seed,
        inputs={**settings.job.model_dump(exclude_none=True), **digests},
        device=objective.towers.query.device,
    )


def trained_by_run(objective: PairContrast, steps: int) -> TrainedTexts:
    """Texts that the run, and the training of its initial models, used for training or validation."""
    settings = objective.settings
    store = objective.store if settings.reads_ids else None
    sets = [trained_pairs(objective.validation, store)]
    if objective.stream is None:
        sets.append(trained_pairs(objective.train, store))
    else:
        # A stream has kept the texts of its shards, which are no longer in memory.
        sets += objective.stream.trained(steps)
    return with_starts(TrainedTexts.joined(sets), settings.job.model, settings.towers.document_model)


def layers_changed(built: Built, plain: DualEncoder) -> list[LayerChange]:
    """Changes of the tensors that were trained."""
    before, after = {}, {}
    for name, weights in named_weights(plain).items():
        now = weights.detach().cpu()
        start = built.before.get(name, torch.zeros_like(now))
        if not now.equal(start):
            before[name], after[name] = start, now
    return layer_changes(before, after)
