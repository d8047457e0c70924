"""The largest learning rate whose drift stays within a limit, found by short runs without labels.

The highest rate goes first. Drift grows with rate and steps, so a rate f times too high exceeds the limit
after about one f-th of the steps; the first rate that stays within it to the end is the result. Rates a
factor f apart thus cost ``1 + 1/f + 1/f^2 + ... = f / (f - 1)`` whole runs: 1.9 with the ten default rates.
"""

from pathlib import Path

from adiabat.adiabatic.negatives import mined_negatives_note
from adiabat.adiabatic.tune_checks import LATER, SEARCH, WORDS, require_named, require_search
from adiabat.adiabatic.tuning_context import TuningContext
from adiabat.adiabatic.tuning_loop import check_settings
from adiabat.config.tuning import TuneSettings
from adiabat.core.disk import make_folder
from adiabat.core.errors import ConfigError, JobError
from adiabat.core.files import sole_writer
from adiabat.core.progress import SILENT, Watch
from adiabat.core.provenance import now, versions
from adiabat.experiments.range_test import range_test
from adiabat.experiments.rate_trials import RateTrials
from adiabat.models.device import device_name, device_of
from adiabat.results.rate_search_result import SafeRate
from adiabat.runs.output_dir import claimed_for_jobs, write_report
from adiabat.runs.run_config import FREE_RUNS, Job, Rules, is_described, require_same


def safe_rate(
    context: TuningContext,
    out: Path,
    *,
    settings: TuneSettings,
    resume: bool = False,
    command: str = "",
    watch: Watch = SILENT,
) -> SafeRate:
    """Find the largest rate whose drift stays within the guard's limit.

    The directory holds ``config.toml`` (resolved), ``trials.parquet`` (a row for each run),
    ``trials/RATE-seed-N/log.jsonl``, ``result.json``, ``report.html`` and figures. Models are not kept.
    """
    check_settings(settings)
    if settings.rate_search is None or settings.rate_search.kind != "safe":
        got = "none" if settings.rate_search is None else settings.rate_search.kind
        raise ConfigError(
            f"rate_search.kind must be safe in a search for a safe rate, got {got}; leave it out"
        )
    if settings.retain:
        raise ConfigError("retain must be left out of a search for a safe rate, which keeps no model")
    require_named(context.inputs, settings)
    begun = is_described(out, SEARCH)
    if note := require_search(out, resume=resume):
        watch.note(note)
    if begun:
        # Checked before the data: an omitted setting would otherwise cause faults that do not mention
        # resuming.
        require_same(
            Job(out), {SEARCH: context.inputs, **settings.model_dump()}, rules=RULES, unknown=RULES.words
        )
    examples = context.examples(settings.data)
    # Checked before anything is written.
    context.require_possible([settings])
    description = {
        SEARCH: {**context.inputs, **context.digests(settings, *examples)},
        **settings.model_dump(),
    }
    if begun:
        require_same(Job(out), description, rules=RULES)
    with claimed_for_jobs(out, lambda: description, begun=begun):
        # Trials are made under their own lock, as when a search is part of a job.
        pass
    trials = RateTrials(context, settings, out, watch)
    if note := _mined_note(trials):
        watch.note(note)
    return search_downwards(trials, command)


def rate_for_run(context: TuningContext, folder: Path, settings: TuneSettings, watch: Watch) -> TuneSettings:
    """Search for the rate of a run; returns the run's settings at that rate, guarded by the same limit."""
    trials = RateTrials(context, settings, folder, watch)
    if trials.by_loss:
        return range_test(trials)
    safe = search_downwards(trials)
    if safe.rate is None:
        raise JobError(
            f"one rate of the search must stay within the limit (drift {safe.limit:.3g}), got none: "
            f"the lowest, {safe.rates[0]:g}, exceeds it; lower rate_search.low, take fewer "
            "rate_search.steps, or give a larger guard.limit, and start again"
        )
    return trials.at(safe.rate, safe.limit, trials.spent)


def search_downwards(trials: RateTrials, command: str = "") -> SafeRate:
    """Try rates from the highest down to the first safe one."""
    make_folder(trials.folder)
    with sole_writer(trials.folder):
        for trial in trials.rows.every:
            trials.clear(trial.rate, trial.seed)
        found = None
        for rate in reversed(_rates(trials)):
            if _is_safe(trials, rate):
                found = rate
                break
        result = _result(trials, found, command)
        write_report(result, trials.folder)
    return result


def _rates(trials: RateTrials) -> list[float]:
    """The rates of the settings and of earlier calls, lowest first."""
    return sorted({*trials.section.values(), *(trial.rate for trial in trials.rows.every)})


def _is_safe(trials: RateTrials, rate: float) -> bool:
    # A seed that is no longer requested has exceeded the limit nevertheless.
    if any(trial.rate == rate and trial.left_at is not None for trial in trials.rows.every):
        return False
    return all(trials.stays(rate, seed) for seed in trials.seeds)


def _mined_note(trials: RateTrials) -> str | None:
    """A note on queries with negatives that their data do not list."""
    settings = trials.settings
    return mined_negatives_note(trials.context.examples(settings.data)[0], settings.tune)


def _result(trials: RateTrials, rate: float | None, command: str) -> SafeRate:
    context, settings = trials.context, trials.settings
    guard, rates, notes = context.guard(settings), _rates(trials), list[str]()
    assert guard is not None
    assert guard.limit is not None
    if rate == rates[-1]:
        notes.append(
            "even the highest rate of the search stays within the limit: larger ones may be safe too; raise "
            "rate_search.high"
        )
    elif rate is None:
        notes.append("even the lowest rate of the search exceeds the limit; lower rate_search.low")
    if note := _mined_note(trials):
        notes.append(note)
    model, data = context.inputs["model"], context.examples(settings.data)[0].name
    return SafeRate(
        title=f"The largest safe rate for tuning {model} on {data}",
        command=command,
        created=now(),
        seconds=trials.spent,
        seed=settings.run.seed,
        versions=versions(device_name(device_of(settings.run.device))),
        model=model,
        measure=guard.section.measure,
        limit=guard.limit,
        noise=dict(guard.noise),
        probes=guard.probes,
        steps=trials.section.steps,
        rates=rates,
        rate=rate,
        trials=trials.rows.every,
        settings=settings.recorded(),
        inputs={**context.inputs, "store_sha256": context.store.manifest.sha256},
        notes=notes,
    )


def _rules() -> Rules:
    """Trials are identified by rate and seed, so that a search can be extended."""
    places = (f"{SEARCH}.{name}" for name in ("model", "store", "data"))
    grown = ("rate_search.low", "rate_search.high", "rate_search.count", "rate_search.seeds")
    words = {f"{SEARCH}.{name.removeprefix('job.')}": phrase for name, phrase in WORDS.items()}
    later = frozenset(f"{SEARCH}.{name.removeprefix('job.')}" for name in LATER)
    return Rules(
        free=frozenset((*places, *grown, *FREE_RUNS)),
        words=words,
        defaults=TuneSettings().model_dump(),
        later=later,
    )


RULES = _rules()
"""Settings that may change when a search is resumed."""
