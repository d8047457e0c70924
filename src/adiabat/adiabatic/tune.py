"""Adiabatic tuning: a query tower is trained slowly against document vectors that never change (Vasilyev et
al. 2024).
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from adiabat.adiabatic.expected_time import Pace, fitted, measured_pace, time_at
from adiabat.adiabatic.negatives import mined_negatives_note, short_lists_note
from adiabat.adiabatic.stored_loss import StoredDocuments, pairs_of
from adiabat.adiabatic.tune_checks import EPOCHS, RESERVE, RULES, SEARCH_STEPS, require_ready
from adiabat.adiabatic.tuning_context import TuningContext, prepared_tower, trained_too
from adiabat.adiabatic.tuning_loop import check_settings, learning_rate_of, limits_of, make_loop
from adiabat.config.tuning import TuneSection, TuneSettings
from adiabat.core.files import sole_writer
from adiabat.core.progress import SILENT, Watch
from adiabat.core.text import IN_WORDS, counted, duration
from adiabat.core.wording import option
from adiabat.data.text_hashes import TrainedTexts
from adiabat.models.device import emulation_note
from adiabat.models.embedding_head import STATED
from adiabat.models.encoder import Encoder
from adiabat.models.freezing import FreezeReport
from adiabat.models.model_names import with_starts
from adiabat.models.towers import DualEncoder, merged_tower
from adiabat.results.evaluation_result import Result
from adiabat.results.power_record import Power
from adiabat.results.training_record import LayerChange
from adiabat.runs.output_dir import open_job
from adiabat.runs.run_config import Job, is_job, read_description
from adiabat.store.addressing import AddressedSet, stored_documents
from adiabat.store.vector_store import Store
from adiabat.training.checkpoint import Outcome, Position
from adiabat.training.loop import Loop
from adiabat.training.optimizers import ROUNDED_AWAY
from adiabat.training.passes import side_passes
from adiabat.training.run_record import finish_run, layer_changes, record_of, result_of
from adiabat.training.time_limit import LEAST_LEFT, seconds_since

RateSearch = Callable[[TuningContext, Path, TuneSettings, Watch], TuneSettings]
"""Finds the rate where `tune.learning_rate` is a word; the search leaves its files in the given folder."""

LONG_JOB = 3600.0
"""Seconds from which a job without a time limit names the quick recipe."""

MeasurePower = Callable[[DualEncoder, DualEncoder, Store, AddressedSet], Power | None]
"""What as many test queries as the validation queries could show, from the model before and after tuning."""

RATE_SEARCH = "rate-search"
"""Folder of the rate search in a job."""


def tune(
    context: TuningContext,
    out: Path,
    *,
    settings: TuneSettings,
    find_rate: RateSearch | None = None,
    measure_power: MeasurePower | None = None,
    resume: bool = False,
    command: str = "",
    watch: Watch = SILENT,
    started: float | None = None,
) -> Result:
    """Tune a query tower against a store and write a job directory: configuration, log, checkpoints, model,
    result and report.

    A resumed job gives the weights of an uninterrupted one, bit for bit. The steps that a time limit allows
    are fitted to the speed that is measured at the start, and stand in ``config.toml``. Only where the
    machine turns out slower does the clock end the run, at a step that depends on its speed; it counts the
    seconds of the rate search and of all resumed parts. What is loaded, measured and set up before counts
    too, and a reserve holds what follows the last step, up to the written page.

    Args:
        find_rate: The rate search; None if the rate is a number.
        measure_power: Measures the power of the validation queries; None for none.
        started: Value of the monotonic clock from which a time limit counts; None takes now.
    """
    started = time.monotonic() if started is None else started
    check_settings(settings)
    if note := require_ready(context.inputs, out, settings=settings, resume=resume):
        watch.note(note)
    # Report its errors before the model is loaded, which takes long.
    context.examples(settings.data)
    options: dict[str, Any] = {"settings": settings, "resume": resume, "watch": watch, "find_rate": find_rate}
    run = TuningRun.begin(context, out, **options, timed=not is_job(out), started=started)
    return run.carry_out(command=command, measure_power=measure_power)


@dataclass(frozen=True, slots=True)
class TuningRun:
    """One job with its loop, set up but without any step taken.

    Attributes:
        context: Inputs that it shares with other runs.
        settings: Settings of the run.
        job: Its directory.
        objective: Objective of the loop; holds the tower.
        loop: Takes the steps.
    """

    context: TuningContext
    settings: TuneSettings
    job: Job
    objective: StoredDocuments
    loop: Loop

    @classmethod
    def begin(
        cls,
        context: TuningContext,
        out: Path,
        *,
        settings: TuneSettings,
        resume: bool,
        watch: Watch,
        find_rate: RateSearch | None = None,
        timed: bool = False,
        started: float | None = None,
    ) -> "TuningRun":
        """Claim the directory and print what will be tuned; `timed` also measures and prints the expected
        time.

        A time limit counts from `started`, a value of the monotonic clock.
        """
        # A time limit is fitted once: a resumed run has the steps of the interrupted one. Measured first,
        # since it may be too short.
        pace = measured_pace(context, settings, started=started, watch=watch) if timed else None
        tower, frozen = prepared_tower(context.model.query, settings)
        objective = context.objective(tower, settings)
        spent = 0.0 if started is None else seconds_since(started)
        lengths = _lengths_within(settings, pace, out, spent)
        # Everything that decides the run; a resumed run must agree with all of it.
        digests = context.digests(settings, objective.train, objective.validation)
        description = {"job": {**context.inputs, **digests, **lengths}, **settings.model_dump()}
        job = open_job(out, description, resume=resume, rules=RULES)
        settings = _with_lengths(settings, lengths, spent)
        if pace is not None:
            expected = time_at(pace, settings)
            watch.note(expected.summary())
            if settings.tune.budget_seconds is None and expected.least_seconds > LONG_JOB:
                quick, limit = option("recipe", "quick"), option("budget_seconds")
                watch.note(
                    f"{quick} picks a learning rate and ends within 10 minutes; {limit} sets another limit"
                )
        if settings.searches:
            assert find_rate is not None
            settings = find_rate(context, job.folder / RATE_SEARCH, settings, watch)
        loop = _loop(objective, settings, job, watch)
        _say_what_is_tuned(watch, objective, frozen, settings)
        return cls(context, settings, job, objective, loop)

    def carry_out(self, *, command: str, measure_power: MeasurePower | None = None) -> Result:
        """Take all steps that no checkpoint holds, then finish."""
        tower = self.objective.encoder
        with (
            sole_writer(self.job.folder),
            side_passes(tower, precision=self.settings.run.precision) as self.objective.passes,
        ):
            return self.end(self.loop.run(resume=True), command=command, measure_power=measure_power)

    def end(self, outcome: Outcome, *, command: str, measure_power: MeasurePower | None = None) -> Result:
        """Write the model, the result and its page."""
        tower, softened = self._final_tower()
        # Lists of runs, as in a sweep, show why each ended.
        outcome = replace(outcome, reason="; ".join(filter(None, [outcome.reason, softened])))
        result = _result(self, outcome, tower, command=command)
        start, tuned_by = (
            self.context.start_on_device(self.settings),
            self.context.distance(self.settings.tune),
        )
        # Unit vectors rank alike by every similarity; others must be ranked by the similarity that tuned
        # them.
        root = start.root if start.unit else {**start.root, "similarity_fn_name": tuned_by}
        model = replace(start, query=tower, name=str(self.job.folder), root=root)
        self.context.store.require_unchanged()
        power = measure_power and measure_power(start, model, self.context.store, self.objective.validation)
        result = replace(result, power=[power] if power else [])
        # Texts used for training, and for choosing the resulting weights.
        sets = (self.objective.train, self.objective.validation)
        rows = np.unique(np.concatenate([examples.positives.values for examples in sets]))
        queries = chain.from_iterable(examples.queries for examples in sets)
        texts = TrainedTexts.of(queries, **stored_documents(self.context.store, rows))
        trained = with_starts(texts, read_description(self.job)["job"]["model"])
        return finish_run(
            self.job, model, result, trained, keep_checkpoints=self.settings.run.keep_checkpoints
        )

    def _final_tower(self) -> tuple[Encoder, str]:
        """The resulting tower, and its softening if there was any."""
        guard, tower = self.objective.guard, self.objective.encoder
        if guard is None or guard.section.action != "soften":
            return merged_tower(tower), ""
        from adiabat.adiabatic.regularization import soften

        softened = soften(tower, self.context.start_on_device(self.settings).query, guard)
        share = f"{softened.share:.1%}" if softened.share < 1 else "all"
        drift = f"a drift ({guard.section.measure}) of {softened.drift:.3g}"
        return (
            softened.tower,
            f"softened: {share} of the change was kept, with {drift}; loss and errors were measured before",
        )


def _lengths_within(settings: TuneSettings, pace: Pace | None, out: Path, spent: float) -> dict[str, float]:
    """The steps of the rate search and the epochs that a time limit allows: of an earlier start, or at the
    measured speed.
    """
    if settings.tune.budget_seconds is None:
        return {}
    if pace is None:
        before = read_description(Job(out))["job"]
        # Jobs begun by earlier versions have no reserve.
        return {SEARCH_STEPS: before[SEARCH_STEPS], EPOCHS: before[EPOCHS], RESERVE: before.get(RESERVE, 0.0)}
    within = fitted(settings, pace, spent=spent)
    return {
        SEARCH_STEPS: within.rate_search.steps,
        EPOCHS: within.tune.max_epochs,
        RESERVE: round(pace.ending_seconds, 3),
    }


def _with_lengths(settings: TuneSettings, lengths: Mapping[str, float], spent: float) -> TuneSettings:
    """The settings with the lengths that a time limit allows, and with what is left of it for steps."""
    budget = settings.tune.budget_seconds
    if budget is None:
        return settings
    search = settings.rate_search.model_copy(update={"steps": lengths[SEARCH_STEPS]})
    # On a slow machine nothing may be left; the loop then ends after its first validation.
    left = max(LEAST_LEFT, budget - spent - lengths[RESERVE])
    tune = settings.tune.model_copy(update={"max_epochs": lengths[EPOCHS], "budget_seconds": left})
    return settings.model_copy(update={"tune": tune, "rate_search": search})


def _say_what_is_tuned(
    watch: Watch, objective: StoredDocuments, frozen: FreezeReport, settings: TuneSettings
) -> None:
    train, validation = objective.train, objective.validation
    for sentence in filter(
        None, (*_notes(objective, settings), emulation_note(objective.encoder.device, settings.run.precision))
    ):
        watch.note(sentence)
    watch.note(
        f"tuning {frozen.trainable:,} of {frozen.trainable + frozen.frozen:,} parameters "
        f"on {len(train):,} queries of {train.name}"
    )
    limit = objective.encoder.settings.limit("query")
    if full := int((objective.tokens.lengths >= limit).sum()):
        watch.note(
            f"{full:,} of {len(train):,} queries reach the limit of {limit} tokens: longer ones are cut"
        )
    watch.note(f"validating on {len(validation):,} queries, {pairs_of(validation):,} pairs")


def _notes(objective: StoredDocuments, settings: TuneSettings) -> tuple[str, ...]:
    """Notes for readers of the result: data left out or replaced, and settings without effect."""
    mined, short = (note(objective.train, settings.tune) for note in (mined_negatives_note, short_lists_note))
    decay = _decay_note(settings.tune)
    compared = (
        None
        if objective.distance == "cosine"
        else f"queries and documents are compared by {IN_WORDS[STATED[objective.distance]]}"
    )
    found = filter(None, (mined, short, decay, compared, objective.capture.note))
    return tuple(dict.fromkeys([*objective.train.notes, *objective.validation.notes, *found]))


def _decay_note(section: TuneSection) -> str | None:
    """A note on a weight decay that the user set but rounding removes: it is below half an ulp of every
    weight (see `make_optimizer`).
    """
    chosen = section.weight_decay not in (0, TuneSection().weight_decay)
    if (
        section.optimizer != "adamw"
        or not chosen
        or learning_rate_of(section) * section.weight_decay >= ROUNDED_AWAY
    ):
        return None
    return (
        f"tune.weight_decay = {section.weight_decay:g} has no effect at the learning "
        f"rate {learning_rate_of(section):g} in float32"
    )


def _loop(objective: StoredDocuments, settings: TuneSettings, job: Job, watch: Watch) -> Loop:
    section = settings.tune

    def show(position: Position) -> None:
        last = (
            section.max_epochs
            if section.keep == "last"
            else min(section.max_epochs, position.best_epoch + section.idle_epochs)
        )
        bound = "" if last == section.max_epochs else "at least "
        state = "validating"
        if position.best is not None:
            kept = "last" if section.keep == "last" else "best"
            state = f"{kept}: epoch {position.best_epoch}, {counted(position.best.errors, 'error')}"
        if section.keep != "last" and position.idle:
            state += (
                f"; {position.idle} of at most {counted(section.idle_epochs, 'epoch')} without a better one"
            )
        epoch = min(position.epoch + 1, section.max_epochs)
        watch.progress(
            f"epoch {epoch} of {bound}{last} ({state})", position.step, last * section.batches_per_epoch
        )

    return make_loop(objective, settings, job.folder, limits=limits_of(settings), watch=show, note=watch.note)


def _result(run: TuningRun, outcome: Outcome, tower: Encoder, *, command: str) -> Result:
    objective, description = run.objective, read_description(run.job)
    parameters = [*objective.encoder.parameters()]
    inputs = description["job"]
    notes = _how_tuned(run, description)
    # The time limit as it was stated, without what the search took of it.
    tune = run.context.compared(run.settings.tune).model_copy(
        update={"budget_seconds": description["tune"].get("budget_seconds")}
    )
    settings = run.settings.model_copy(update={"tune": tune})
    record = record_of(
        run.job,
        outcome,
        settings=settings.recorded(),
        kind="tuning",
        unit="pairs",
        trained_on=_trained_on(objective),
        parameters=sum(weights.numel() for weights in parameters),
        trainable=sum(weights.numel() for weights in parameters if weights.requires_grad),
        validated=pairs_of(objective.validation),
        layers=_layers(run, tower),
        notes=(*notes, *_notes(objective, run.settings)),
        total=run.settings.tune.max_epochs * run.settings.tune.batches_per_epoch,
        measures=() if objective.guard is None else objective.guard.measures,
    )
    return result_of(
        run.job,
        record,
        title=f"Tuning the query tower of {inputs['model']} on {objective.train.name}",
        command=command,
        seed=run.settings.run.seed,
        inputs=inputs,
        device=objective.encoder.device,
    )


def _how_tuned(run: TuningRun, description: Mapping[str, Any]) -> tuple[str, ...]:
    """Recipe, choice of the learning rate and time limit, for readers of the result."""
    tune, rate = description["tune"], run.settings.tune.learning_rate
    recipe = tune.get("recipe", "paper")
    budget = tune.get("budget_seconds")
    limit = "" if budget is None else f", within {duration(budget)} with its rate search"
    notes = {
        "safe": f"the learning rate is the largest safe one that {RATE_SEARCH}/report.html found",
        "range": f"the learning rate {rate:g} had the lowest validation loss within "
        "the drift limit in a range test of "
        f"{tune_rates(description)} ({RATE_SEARCH}/trials.parquet)",
    }
    told = f"tuned by the recipe {recipe}{limit}" if recipe != "paper" or limit else ""
    return tuple(filter(None, (told, notes.get(str(tune["learning_rate"]), ""))))


def tune_rates(description: Mapping[str, Any]) -> str:
    """The rates of a range test, by their ends."""
    search = description["rate_search"]
    return f"{search['count']} rates from {search['low']:g} to {search['high']:g}"


def _layers(run: TuningRun, tower: Encoder) -> list[LayerChange]:
    """Changes of the tensors of the resulting tower that were tuned, or that adapters were merged into."""
    before: dict[str, Tensor] = {
        name: weights.detach().cpu() for name, weights in run.context.model.query.used_parameters().items()
    }
    after = {name: weights.detach().cpu() for name, weights in tower.used_parameters().items()}
    # Biases added by the method were zero.
    before |= {name: torch.zeros_like(after[name]) for name in after.keys() - before.keys()}
    tuned = {
        name for name, weights in run.objective.encoder.used_parameters().items() if weights.requires_grad
    }
    if run.settings.tune.method.kind == "lora":
        tuned = {name for name, weights in after.items() if not torch.equal(weights, before[name])}
    return layer_changes(
        {name: before[name] for name in after if name in tuned},
        {name: after[name] for name in after if name in tuned},
    )


def _trained_on(objective: StoredDocuments) -> str:
    train, validation = objective.train, objective.validation
    shared = trained_too(validation, train)
    others = f"queries, {shared:,} of them trained on too" if shared else "others"
    source = "" if validation.name == train.name else f", from {validation.name}"
    return f"{train.name}: {len(train):,} queries, validated on {len(validation):,} {others}{source}"
