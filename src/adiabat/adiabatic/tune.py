"""Adiabatic tuning: a query tower is trained slowly against document vectors that never change (Vasilyev et
al. 2024).
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from adiabat.adiabatic.choice import Choice, choose
from adiabat.adiabatic.expected_time import Pace, fitted, measured_pace, time_at
from adiabat.adiabatic.judged_queries import MEASURE
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
from adiabat.results.training_record import Candidate, LayerChange, TrainingRecord
from adiabat.runs.output_dir import open_job
from adiabat.runs.run_config import Job, is_job, read_description
from adiabat.store.addressing import stored_documents
from adiabat.training.checkpoint import Limits, Outcome, Position, has_checkpoints
from adiabat.training.loop import Loop
from adiabat.training.optimizers import ROUNDED_AWAY
from adiabat.training.passes import side_passes
from adiabat.training.run_record import finish_run, layer_changes, log_fields, result_of
from adiabat.training.time_limit import LEAST_LEFT, seconds_since

LONG_JOB = 3600.0
"""Seconds from which a job without a time limit names the quick recipe."""

RATE_SEARCH = "rate-search"
"""Folder of the rate search in a job."""


def begin(
    context: TuningContext,
    out: Path,
    *,
    settings: TuneSettings,
    resume: bool = False,
    watch: Watch = SILENT,
    started: float | None = None,
    tells_time: bool = True,
) -> "TuningRun":
    """Check everything and claim a job directory, of which the run becomes configuration, log, checkpoints,
    model, result and report.

    A resumed job gives the weights of an uninterrupted one, bit for bit. The steps that a time limit allows
    are fitted to the speed that is measured at the start, and stand in ``config.toml``. Only where the
    machine turns out slower does the clock end the run, at a step that depends on its speed; it counts the
    seconds of the rate search and of all resumed parts. What is loaded, measured and set up before counts
    too, and a reserve holds what follows the last step, up to the written page.

    Args:
        started: Value of the monotonic clock from which a time limit counts; None takes now.
        tells_time: Whether to print the expected time of a new job.
    """
    started = time.monotonic() if started is None else started
    check_settings(settings)
    if note := require_ready(context.inputs, out, settings=settings, resume=resume):
        watch.note(note)
    # Report its errors before the model is loaded, which takes long.
    context.examples(settings.data)
    return TuningRun.begin(
        context,
        out,
        settings=settings,
        resume=resume,
        watch=watch,
        timed=not is_job(out),
        started=started,
        tells_time=tells_time,
    )


@dataclass(frozen=True)
class TuningRun:
    """One job, set up but without any step taken.

    Attributes:
        context: Inputs that it shares with other runs.
        settings: Settings of the run.
        job: Its directory.
        objective: Objective of the loop; holds the tower.
        frozen: Which weights are tuned.
        watch: Receives progress and notes.
        is_trial: Whether the first epoch is a trial, after which the run ends unless it is better.
    """

    context: TuningContext
    settings: TuneSettings
    job: Job
    objective: StoredDocuments
    frozen: FreezeReport
    watch: Watch
    is_trial: bool = False

    @classmethod
    def begin(
        cls,
        context: TuningContext,
        out: Path,
        *,
        settings: TuneSettings,
        resume: bool,
        watch: Watch,
        timed: bool = False,
        started: float | None = None,
        tells_time: bool = True,
    ) -> "TuningRun":
        """Claim the directory; `timed` also measures the expected time, and prints it if `tells_time`.

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
        if pace is not None and tells_time:
            expected = time_at(pace, settings)
            watch.note(expected.summary())
            if settings.tune.budget_seconds is None and expected.least_seconds > LONG_JOB:
                quick, limit = option("recipe", "quick"), option("budget_seconds")
                watch.note(
                    f"{quick} picks a learning rate and ends within 10 minutes; {limit} sets another limit"
                )
        return cls(context, settings, job, objective, frozen, watch)

    @property
    def search_folder(self) -> Path:
        """The place of the rate search, if the rate is searched for."""
        return self.job.folder / RATE_SEARCH

    @cached_property
    def loop(self) -> Loop:
        """The loop, which goes on from the newest checkpoint; made after the rate search, which may leave
        checkpoints for it.
        """
        # Jobs without a time limit, or begun by earlier versions, have no reserve.
        reserve = read_description(self.job)["job"].get(RESERVE, 0.0)
        limits = replace(limits_of(self.settings), ending_seconds=reserve, is_trial=self.is_trial)
        return _loop(self.objective, self.settings, self.job, self.watch, limits)

    def keep_start(self, why: str) -> "TunedRun":
        """Take no step, and keep the tower as it is; its validation is logged.

        No checkpoint is written, so a resumed job reads its evidence again.
        """
        with sole_writer(self.job.folder):
            try:
                self.loop.start(resume=False)
            finally:
                self.loop.close()
        return TunedRun(self, self.loop.finish(why), merged_tower(self.objective.encoder))

    @property
    def has_steps(self) -> bool:
        """Whether a run is resumed that has taken steps."""
        return has_checkpoints(self.job.checkpoints)

    def carry_out(self) -> "TunedRun":
        """Print what is tuned, and take all steps that no checkpoint holds."""
        loop = self.loop
        _say_what_is_tuned(self.watch, self.objective, self.frozen, self.settings)
        tower = self.objective.encoder
        with (
            sole_writer(self.job.folder),
            side_passes(tower, precision=self.settings.run.precision) as self.objective.passes,
        ):
            outcome = loop.run(resume=True)
            choice = self._choice(outcome)
        # Lists of runs, as in a sweep, show why each ended.
        outcome = replace(outcome, reason="; ".join(filter(None, [outcome.reason, choice.why])))
        return TunedRun(self, outcome, choice.tower, choice.candidates)

    def _choice(self, outcome: Outcome) -> Choice:
        """The resulting tower: chosen among candidates, or the best epoch's, perhaps softened."""
        if self.settings.tune.keep == "ranking":
            return self._by_ranking(outcome)
        tower, softened = self._final_tower()
        return Choice(tower, (), softened)

    def _by_ranking(self, outcome: Outcome) -> Choice:
        start = self.context.start_on_device(self.settings).query
        tuned = merged_tower(self.objective.encoder).eval() if outcome.position.best_epoch else None
        return choose(
            start,
            tuned,
            self.context.judges(self.settings, self.objective),
            guard=self.objective.guard,
            seed=self.settings.run.seed,
            watch=self.watch,
        )

    def _final_tower(self) -> tuple[Encoder, str]:
        """The best epoch's tower, and its softening if there was any."""
        guard, tower = self.objective.guard, self.objective.encoder
        if guard is None or guard.section.action != "soften":
            return merged_tower(tower), ""
        from adiabat.adiabatic.regularization import soften

        softened = soften(tower, self.context.start_on_device(self.settings).query, guard)
        drift = f"a drift ({guard.section.measure}) of {softened.drift:.3g}"
        return softened.tower, (
            f"softened: {softened.share:.1%} of the change was kept, with {drift}; "
            "loss and errors were measured before"
        )


@dataclass(frozen=True)
class TunedRun:
    """A job whose steps are taken, before its model is written.

    Attributes:
        run: The job.
        outcome: How its loop ended.
        tower: The resulting query tower.
        candidates: Those that it was chosen among, if its run keeps by ranking.
    """

    run: TuningRun
    outcome: Outcome
    tower: Encoder
    candidates: tuple[Candidate, ...] = ()

    @cached_property
    def start(self) -> DualEncoder:
        """The model before tuning."""
        return self.run.context.start_on_device(self.run.settings)

    @cached_property
    def model(self) -> DualEncoder:
        """The model after tuning."""
        tuned_by = self.run.context.distance(self.run.settings.tune)
        # Unit vectors rank alike by every similarity; others must be ranked by the similarity that tuned
        # them.
        root = self.start.root
        if not self.start.unit:
            root = {**root, "similarity_fn_name": tuned_by}
        return replace(self.start, query=self.tower, name=str(self.run.job.folder), root=root)

    def finish(
        self,
        *,
        command: str,
        power: Power | None = None,
        expected: tuple[float, float, float] | None = None,
    ) -> Result:
        """Write the model, the result and its page.

        Args:
            command: That made the job.
            power: What the validation queries could show.
            expected: Gain in percent that the evidence promised, with its ends.
        """
        run, store = self.run, self.run.context.store
        result = replace(_result(self, command=command, expected=expected), power=[power] if power else [])
        store.require_unchanged()
        # Texts used for training, and for choosing the resulting weights.
        sets = (run.objective.train, run.objective.validation)
        rows = np.unique(np.concatenate([examples.positives.values for examples in sets]))
        chose = run.context.retained(run.settings) if self.candidates else []
        asked = (*sets, *(queries.examples for queries in chose))
        queries = chain.from_iterable(examples.queries for examples in asked)
        texts = TrainedTexts.of(queries, **stored_documents(store, rows))
        trained = with_starts(texts, read_description(run.job)["job"]["model"])
        with sole_writer(run.job.folder):
            return finish_run(
                run.job, self.model, result, trained, keep_checkpoints=run.settings.run.keep_checkpoints
            )


def _lengths_within(settings: TuneSettings, pace: Pace | None, out: Path, spent: float) -> dict[str, float]:
    """The steps of the rate search and the epochs that a time limit allows: of an earlier start, or at the
    measured speed.
    """
    if settings.tune.budget_seconds is None:
        return {}
    if pace is None:
        before = read_description(Job(out))["job"]
        searched = {SEARCH_STEPS: before[SEARCH_STEPS]} if SEARCH_STEPS in before else {}
        # Jobs begun by earlier versions have no reserve.
        return {EPOCHS: before[EPOCHS], RESERVE: before.get(RESERVE, 0.0), **searched}
    within = fitted(settings, pace, spent=spent)
    searched = {} if within.rate_search is None else {SEARCH_STEPS: within.rate_search.steps}
    return {**searched, EPOCHS: within.tune.max_epochs, RESERVE: round(pace.ending_seconds, 3)}


def _with_lengths(settings: TuneSettings, lengths: Mapping[str, float], spent: float) -> TuneSettings:
    """The settings with the lengths that a time limit allows, and with what is left of it for steps."""
    budget = settings.tune.budget_seconds
    if budget is None:
        return settings
    search = settings.rate_search and settings.rate_search.model_copy(update={"steps": lengths[SEARCH_STEPS]})
    # On a slow machine nothing may be left; the loop then ends after its first validation.
    left = max(LEAST_LEFT, budget - spent - lengths[RESERVE])
    tune = settings.tune.model_copy(update={"max_epochs": lengths[EPOCHS], "budget_seconds": left})
    return settings.model_copy(update={"tune": tune, "rate_search": search})


def _say_what_is_tuned(
    watch: Watch, objective: StoredDocuments, frozen: FreezeReport, settings: TuneSettings
) -> None:
    train, validation = objective.train, objective.validation
    emulation = emulation_note(objective.encoder.device, settings.run.precision)
    for sentence in filter(None, (*_notes(objective, settings), emulation)):
        watch.note(sentence)
    watch.note(
        f"tuning {frozen.trainable:,} of {frozen.trainable + frozen.frozen:,} parameters "
        f"on {len(train):,} queries of {train.name}"
    )
    limit = objective.encoder.settings.limit("query")
    full = int((objective.tokens.lengths >= limit).sum())
    if full:
        watch.note(
            f"{full:,} of {len(train):,} queries reach the limit of {limit} tokens: longer ones are cut"
        )
    watch.note(f"validating on {len(validation):,} queries, {pairs_of(validation):,} pairs")


def _notes(objective: StoredDocuments, settings: TuneSettings) -> tuple[str, ...]:
    """Notes for readers of the result: data left out or replaced, and settings without effect."""
    compared = f"queries and documents are compared by {IN_WORDS[STATED[objective.distance]]}"
    notes = (
        *objective.train.notes,
        *objective.validation.notes,
        mined_negatives_note(objective.train, settings.tune),
        short_lists_note(objective.train, settings.tune),
        _decay_note(settings.tune),
        compared if objective.distance != "cosine" else None,
        objective.capture.note,
    )
    # Both sets may have the same note.
    return tuple(dict.fromkeys(filter(None, notes)))


def _decay_note(section: TuneSection) -> str | None:
    """A note on a weight decay that the user set but rounding removes: it is below half an ulp of every
    weight (see `make_optimizer`).
    """
    rate, decay = learning_rate_of(section), section.weight_decay
    is_chosen = section.optimizer == "adamw" and decay not in (0, TuneSection().weight_decay)
    if not is_chosen or rate * decay >= ROUNDED_AWAY:
        return None
    return f"tune.weight_decay = {decay:g} has no effect at the learning rate {rate:g} in float32"


def _loop(objective: StoredDocuments, settings: TuneSettings, job: Job, watch: Watch, limits: Limits) -> Loop:
    section = settings.tune

    def show(position: Position) -> None:
        # A run that stops early takes at least this many epochs.
        last = section.max_epochs
        if section.keep != "last":
            last = min(last, position.best_epoch + section.idle_epochs)
        state = "validating"
        if position.best is not None:
            state = f"kept: epoch {position.best_epoch}, {counted(position.best.errors, 'error')}"
            if section.keep != "last":
                most = counted(section.idle_epochs, "epoch")
                state += f"; {position.idle} of at most {most} without a better one"
        epoch = min(position.epoch + 1, section.max_epochs)
        label = f"epoch {epoch} of at most {section.max_epochs} ({state})"
        watch.progress(label, position.step, last * section.batches_per_epoch)

    return make_loop(objective, settings, job.folder, limits=limits, watch=show, note=watch.note)


def _result(tuned: TunedRun, *, command: str, expected: tuple[float, float, float] | None) -> Result:
    run, outcome = tuned.run, tuned.outcome
    objective, description = run.objective, read_description(run.job)
    parameters = [*objective.encoder.parameters()]
    inputs = description["job"]
    # A job that kept its start has not searched for a rate either.
    notes = _how_tuned(run, description) if outcome.position.step else ()
    # The time limit as it was stated, without what the search took of it.
    tune = run.context.compared(run.settings.tune).model_copy(
        update={"budget_seconds": description["tune"].get("budget_seconds")}
    )
    settings = run.settings.model_copy(update={"tune": tune})
    total = run.settings.tune.max_epochs * run.settings.tune.batches_per_epoch
    measures = () if objective.guard is None else tuple(objective.guard.measures)
    if objective.judged is not None:
        measures = (MEASURE, *measures)
    record = TrainingRecord(
        **log_fields(run.job, outcome, total=total, measures=measures),
        settings=settings.recorded(),
        kind="tuning",
        unit="pairs",
        trained_on=_trained_on(objective),
        parameters=sum(weights.numel() for weights in parameters),
        trainable=sum(weights.numel() for weights in parameters if weights.requires_grad),
        validation_pairs=pairs_of(objective.validation),
        layers=_layers(run, tuned.tower),
        candidates=tuned.candidates,
        expected=expected,
        notes=(*notes, *_notes(objective, run.settings)),
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
    tune = description["tune"]
    rate = run.settings.tune.learning_rate
    search = description.get("rate_search", {})
    recipe = tune.get("recipe", "paper")
    budget = tune.get("budget_seconds")
    limit = "" if budget is None else f", within {duration(budget)}"
    notes = {}
    if search:
        rates = f"{search['count']} rates from {search['low']:g} to {search['high']:g}"
        notes = {
            "safe": f"the learning rate is the largest safe one that {RATE_SEARCH}/report.html found",
            "range": f"the learning rate {rate:g} was the best within the drift limit "
            f"in a range test of {rates} ({RATE_SEARCH}/trials.parquet)",
        }
    told = f"tuned by the recipe {recipe}{limit}" if recipe != "paper" or limit else ""
    return tuple(filter(None, (told, notes.get(search.get("kind", ""), ""))))


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
