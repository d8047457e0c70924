"""Training both towers of a dual encoder: from settings to a job directory (Ziarko et al. 2024; Moiseev et
al. 2023; Reimers 2021).
"""

import hashlib
import math
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from adiabat.config.dual_training import TrainSettings
from adiabat.core.errors import BudgetError, ConfigError, DataError, JobError, StoreError, several
from adiabat.core.files import is_there, sole_writer
from adiabat.core.progress import SILENT, Watch
from adiabat.data.pair_sets import PairSet
from adiabat.dual_encoder.batches import check_negatives
from adiabat.dual_encoder.contrastive_objective import PairContrast, listed_pairs
from adiabat.dual_encoder.pair_data import cache_folder, read_pairs, read_validation
from adiabat.dual_encoder.stream import Stream
from adiabat.dual_encoder.stream_shards import ROWS
from adiabat.dual_encoder.tower_setup import Built, Loader, build, merged, optimizer_of
from adiabat.dual_encoder.train_checks import (
    RULES,
    WORDS,
    as_begun,
    behind,
    require_estimable,
    require_ready,
    steps_within,
    with_steps,
)
from adiabat.dual_encoder.train_record import (
    TIMED_STEPS,
    Estimate,
    counts_of,
    notes_of,
    passed,
    result_of_run,
    trained_by_run,
)
from adiabat.models.device import device_name, device_of, emulation_note, peak_memory, reset_peak_memory
from adiabat.models.freezing import check_patterns
from adiabat.models.towers import DualEncoder
from adiabat.results.evaluation_result import Result
from adiabat.runs.output_dir import open_job
from adiabat.runs.run_config import Job
from adiabat.runs.run_log import JobLog, require_tensorboard
from adiabat.store.vector_store import Store
from adiabat.training.checkpoint import Limits, Position
from adiabat.training.distributed import Processes, on_main, processes
from adiabat.training.loop import Loop
from adiabat.training.optimizers import Schedule, schedule_from, warmup_steps_of
from adiabat.training.run_record import finish_run
from adiabat.training.time_limit import LEAST_LEFT, seconds_of, seconds_since, writing_time

STREAM = "stream"
"""Folder of a job for the shards of its stream."""


def train(
    load: Loader,
    settings: TrainSettings,
    *,
    resume: bool = False,
    command: str = "",
    watch: Watch = SILENT,
    started: float | None = None,
) -> Result | None:
    """Train the towers of the settings and write a job directory: configuration, log, checkpoints, model,
    result and report.

    Under ``accelerate launch`` or ``torchrun`` every process has a part of each batch, and the main one
    writes. A time limit counts from `started`, a value of the monotonic clock, by default from now.

    Returns:
        The result, as written to ``result.json``, with the trained pair in ``model`` inside the job's
        directory; None in processes other than the main one.
    """
    started = time.monotonic() if started is None else started
    check(settings)
    note = require_ready(settings, resume=resume)
    settings = as_begun(settings, resume=resume)
    out = Path(str(settings.job.out))
    with processes(device_of(settings.run.device)) as group:
        main_watch = watch if group.is_main else SILENT
        # Exchange first, so that no process makes the directory before all have checked it.
        if note:
            on_main(group, partial(main_watch.note, note))
        objective, built = prepared(
            load, settings, group, main_watch, stream_folder=out / STREAM if resume else None
        )
        reserve = fit_into_time(objective, main_watch, started=started)
        left = _left(objective, started, reserve)
        loop = _loop(objective, Job(out), main_watch, seconds=left, reserve=reserve)
        rules = replace(RULES, behind=partial(behind, objective.steps))

        def claim() -> Job:
            """Write the configuration of a new job, or compare that of a resumed one."""
            return open_job(out, _description(objective, built), resume=resume, rules=rules)

        on_main(group, claim)
        _say_what_is_trained(objective, group.device, main_watch)
        with sole_writer(out) if group.is_main else nullcontext():
            if objective.stream is not None:
                objective.stream.keep_in(out / STREAM)
            objective.keep_in(out / "frozen", resume=resume)
            with objective.passing():
                outcome = loop.run(resume=resume)

            def finish() -> Result:
                """Write model, record and page."""
                plain = merged(built.towers)
                result = result_of_run(objective, built, plain, outcome, Job(out), command)
                trained = trained_by_run(objective, outcome.position.step)
                named, keep = replace(plain, name=str(out)), settings.run.keep_checkpoints
                return finish_run(Job(out), named, result, trained, keep_checkpoints=keep)

            return on_main(group, finish)


def estimate(
    load: Loader, settings: TrainSettings, *, watch: Watch, started: float | None = None
) -> Estimate:
    """Set up a run, take a few steps without lasting effect, and estimate the cost of the whole.

    A time limit counts from `started`, by default from now.
    """
    started = time.monotonic() if started is None else started
    check(settings)
    require_estimable(settings)
    device = device_of(settings.run.device)
    # Before the towers are loaded, whose memory counts.
    reset_peak_memory(device)
    objective, _ = prepared(load, settings, Processes(device=device), watch)
    fit_into_time(objective, watch, started=started)
    steps = objective.steps
    parameters, trained = counts_of(objective)
    tokens, flops, operations = passed(objective, steps)
    seconds = step_seconds(objective, watch)
    return Estimate(
        settings=objective.settings.model_dump(mode="json", exclude={"digests"}),
        parameters=parameters,
        trained=trained,
        pairs=len(objective.train),
        steps=steps,
        tokens=tokens,
        flops=flops,
        operations=operations,
        memory_bytes=peak_memory(device),
        step_seconds=seconds,
        seconds=seconds * steps,
        device=device_name(device),
        notes=notes_of(objective),
    )


def check(settings: TrainSettings) -> None:
    """Checks that need neither data nor model."""
    device_of(settings.run.device)
    check_patterns(settings.train.freeze)
    if settings.run.tensorboard:
        require_tensorboard()


def prepared(
    load: Loader,
    settings: TrainSettings,
    group: Processes,
    watch: Watch = SILENT,
    *,
    stream_folder: Path | None = None,
) -> tuple[PairContrast, Built]:
    """Read the data, or a shard of a stream, and build the towers.

    Args:
        stream_folder: Folder of the shards of a resumed stream; None reads the first shard into memory.
    """
    group.share(settings.train.batch_size)
    if settings.batches.token_budget is not None and group.count > 1:
        raise ConfigError(
            "batches.token_budget must be left out for several processes, which "
            "share batches of one size; leave it out"
        )
    store = None if settings.towers.vectors is None else Store.open(settings.towers.vectors)
    cache = cache_folder(settings.data.cache)
    training: PairSet | Stream
    if settings.data.stream is not None:
        has_shards = stream_folder is not None and is_there(stream_folder / ROWS, error=JobError)
        validation = read_validation(settings.job.data, settings.data, cache=cache, watch=watch)
        _check_validation(validation, settings)
        id_store = store if settings.reads_ids else None
        training = Stream(
            settings,
            validation=validation.texts.queries,
            store=id_store,
            folder=stream_folder if has_shards else None,
            processes=group,
            watch=watch,
        )
    else:
        training, validation = read_pairs(
            settings.job.data, settings.data, stored=settings.reads_ids, cache=cache, watch=watch
        )
        check_pairs(training, validation, settings)
    built = build(settings, load)
    if built.note:
        watch.note(built.note)
    if store is not None:
        _require_fitting(store, built.towers, settings)
    built.towers.to(group.device)
    if built.guide is not None:
        built.guide.to(group.device)
    objective = PairContrast(built.towers, training, validation, settings, built.guide, group, store)
    if objective.stream is None:
        # Refuse rules that leave no batch before the directory is made; a stream has planned its first shard
        # already.
        objective.rows(0)
    return objective, built


def _require_fitting(store: Store, towers: DualEncoder, settings: TrainSettings) -> None:
    """Refuse vectors of another encoder than the frozen one, or targets that the student's embeddings cannot
    reach.
    """
    if settings.towers.targets is None:
        store.require_encoder(towers.fingerprint("document"))
    elif store.width != towers.width:
        raise StoreError(
            f"{store.path}: targets must be as wide as the student's embeddings, "
            f"{towers.width}, got {store.width}; "
            f"set towers.projection_width = {store.width}, or make narrower targets"
        )


def check_pairs(training: PairSet, validation: PairSet, settings: TrainSettings) -> None:
    """Refuse data that cannot be used for training or validation.

    These checks need the data but no model, so they come before one is loaded.
    """
    check_batch_size(training.name, len(training), settings.train.batch_size)
    check_negatives(training, settings.train)
    _check_validation(validation, settings)


def check_batch_size(name: str, pairs: int, batch_size: int) -> None:
    """Refuse a batch size above the number of pairs."""
    if batch_size > pairs:
        raise DataError(
            f"{name}: train.batch_size must be at most the {pairs:,} pairs trained "
            f"on, got {batch_size}; lower it, or add data"
        )


def _check_validation(validation: PairSet, settings: TrainSettings) -> None:
    """Refuse validation data that give no loss, or cannot select the best weights."""
    section = settings.train
    check_negatives(validation, section)
    if section.keep != "last" and len(validation.candidates) == 1:
        raise DataError(
            f"{validation.name}: validation must have two documents to tell apart where "
            f'train.keep is "{section.keep}", got one; hold out '
            "more (data.validation_fraction), or keep the last"
        )
    if section.error_unit == "pairs" and not listed_pairs(validation):
        raise DataError(
            f"{validation.name}: validation must list negatives where train.error_unit is "
            '"pairs", got none; list some, or leave it out'
        )


def schedule_of(settings: TrainSettings, *, total_steps: int, steps_per_pass: int) -> Schedule:
    """The schedule of the settings."""
    section = settings.train
    warmup_steps = section.warmup_steps
    if warmup_steps is None:
        warmup_steps = warmup_steps_of(section.warmup_fraction, total_steps=total_steps)
    return schedule_from(
        section.schedule,
        total_steps=total_steps,
        steps_per_epoch=steps_per_pass,
        warmup_steps=warmup_steps,
    )


def _description(objective: PairContrast, built: Built) -> dict[str, Any]:
    """Everything that decides the run, for ``config.toml``; a resumed run must agree with all of it."""
    stream = objective.stream
    # All shards of a stream follow from its settings and its first one.
    trained = objective.train.digest() if stream is None else stream.rows[0].sha256
    examples = [trained, objective.validation.digest()]
    if objective.store is not None:
        examples.append(objective.store.manifest.sha256)
    digests = {
        "model": built.digest,
        "examples": hashlib.sha256(" ".join(examples).encode()).hexdigest(),
    }
    stated = objective.settings.digests.model_dump(exclude_none=True)
    differing = [
        f"digests.{name} must match the inputs, but {WORDS[f'digests.{name}']}"
        for name in stated
        if stated[name] != digests[name]
    ]
    if differing:
        raise ConfigError(f"{several(differing)}; restore the inputs, or leave [digests] out")
    return {**objective.settings.model_dump(), "digests": digests}


def _loop(
    objective: PairContrast, job: Job, watch: Watch, *, seconds: float | None, reserve: float = 0.0
) -> Loop:
    """The loop of a run, with seconds for its steps, None without a limit, and a reserve for what follows."""
    settings = objective.settings
    section, run = settings.train, settings.run
    total = objective.steps
    board = job.board if run.tensorboard else None

    def show(position: Position) -> None:
        label, best = "training", position.best
        if best is not None:
            label += f" (validation loss {best.loss:.4f}, P@1 {best.measures.get('P@1', 0.0):.3f})"
        watch.progress(label, position.step, total)

    # The exponential schedule falls once for each pass over the pairs.
    steps_per_pass = math.ceil(objective.sampler.pairs / section.batch_size)
    return Loop(
        objective=objective,
        optimizer=optimizer_of(objective.module, section),
        learning_rate=section.learning_rate,
        schedule=schedule_of(settings, total_steps=total, steps_per_pass=steps_per_pass),
        limits=Limits(
            section.validate_every,
            max_epochs=None,
            idle_epochs=section.idle_epochs,
            max_steps=total,
            max_seconds=seconds,
            ending_seconds=reserve,
            keep="loss" if section.keep == "best" else section.keep,
            max_grad_norm=section.max_grad_norm or None,
            log_every=run.log_every,
            checkpoint_seconds=run.checkpoint_seconds,
            keep_checkpoints=run.keep_checkpoints,
        ),
        folder=job.checkpoints,
        log=JobLog(job.log, tensorboard=board, silent=not objective.processes.is_main),
        seed=run.seed,
        watch=show,
        note=watch.note,
        figures=objective.figures,
        relieve=objective.relieve,
        saving=objective.save,
        ending=objective.ending,
        cost=objective.cost,
        processes=objective.processes,
    )


def _say_what_is_trained(objective: PairContrast, device: torch.device, watch: Watch) -> None:
    """Print notes on data and settings, and the numbers of parameters, pairs and queries."""
    emulated = emulation_note(device, objective.settings.run.precision)
    for sentence in filter(None, (*notes_of(objective), emulated)):
        watch.note(sentence)
    parameters, trained = counts_of(objective)
    amount = f"{len(objective.train):,} pairs"
    if objective.stream is not None:
        amount = f"shards of about {amount}"
    watch.note(f"training {trained:,} of {parameters:,} parameters on {amount} of {objective.train.name}")
    watch.note(f"validating on {len(objective.validation.query_rows):,} queries")


def step_seconds(objective: PairContrast, watch: Watch) -> float:
    """Take a few steps, and restore weights and random numbers afterwards."""
    seconds = []
    with _unchanged(objective.module), objective.passing():
        optimizer = optimizer_of(objective.module, objective.settings.train)

        def take(step: int) -> None:
            torch.autograd.backward(objective.loss(step))
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        for step in range(TIMED_STEPS):
            watch.progress("measuring steps", step, TIMED_STEPS)
            seconds.append(seconds_of(partial(take, step), objective.towers.query.device))
    watch.progress("measuring steps", TIMED_STEPS, TIMED_STEPS)
    # The first step also allocates memory and loads kernels.
    return statistics.median(seconds[1:])


def fit_into_time(objective: PairContrast, watch: Watch, *, started: float) -> float:
    """Set the number of steps and the share of validations of a run limited only by time; other runs are
    unchanged.

    The time limit counts from `started`.

    Returns:
        Seconds of it that are held back for what follows the last step; 0 without a limit.
    """
    section = objective.settings.train
    if section.budget_seconds is None:
        return 0.0
    validation = _validation_seconds(objective)
    reserve = _reserve(objective, validation)
    if not section.goes_by_time:
        return reserve
    # A validation comes every `validate_every` steps, so each step bears its share.
    each = _mean(objective, step_seconds(objective, watch) + validation / section.validate_every)
    # What precedes the first step, and what follows the last one.
    around = _mean(objective, seconds_since(started) + reserve)
    if section.budget_seconds < around + each:
        raise BudgetError(
            f"train.budget_seconds must pay for a step, which takes {each:.3g} s, got "
            f"{section.budget_seconds:.3g}; raise it, or lower "
            f"train.batch_size: loading, measuring and writing take {around:.3g} s of it"
        )
    steps = steps_within(
        section.budget_seconds - around, lambda step: each, setting="budget_seconds", unit="s"
    )
    objective.settings = with_steps(objective.settings, steps)
    watch.note(
        f"{section.budget_seconds:g} s are enough for about {steps:,} steps "
        f"of {each:.3g} s, including validations"
    )
    return reserve


def _left(objective: PairContrast, started: float, reserve: float) -> float | None:
    """Seconds of the time limit that are left for steps; None without one.

    ``budget - spent - reserve``: loading, measuring and setting up are spent, and `reserve` is held back.
    """
    budget = objective.settings.train.budget_seconds
    if budget is None:
        return None
    # Where nothing is left, the run ends after its first validation.
    return max(LEAST_LEFT, budget - seconds_since(started) - reserve)


def _reserve(objective: PairContrast, validation_seconds: float) -> float:
    """Seconds of a time limit that are held back for the validation, the checkpoint, the model and the page
    after the last step.
    """
    writing = writing_time([objective.towers.query, objective.towers.document])
    return validation_seconds + writing.checkpoint + writing.ending


def _mean(objective: PairContrast, seconds: float) -> float:
    """The mean over all processes, which must agree on the number of steps."""
    return float(objective.processes.mean(torch.tensor(seconds, device=objective.processes.device)))


def _validation_seconds(objective: PairContrast) -> float:
    """Seconds of one validation, which also embeds the texts of frozen towers for the first time."""
    with objective.passing():
        return seconds_of(objective.validate, objective.towers.query.device)


@contextmanager
def _unchanged(module: nn.Module) -> Iterator[None]:
    """Restore trained weights and torch's random numbers at the end of the block."""
    trained = [weights for weights in module.parameters() if weights.requires_grad]
    before = [weights.detach().clone() for weights in trained]
    devices = {weights.device for weights in trained if weights.device.type == "cuda"}
    with torch.random.fork_rng(list(devices)):
        try:
            yield
        finally:
            with torch.no_grad():
                for weights, value in zip(trained, before, strict=True):
                    weights.copy_(value)
