"""`adiabat.sweep`, `.scaling`, `.plan` and `.safe_rate`: experiments of many runs.

Each function imports its implementation when it is called: a plan does not need torch, which takes seconds to
load.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adiabat.adiabatic.tune_checks import SEARCH, inputs_of, require_named, require_search
from adiabat.api.arguments import (
    Data,
    PathLike,
    SettingsLike,
    data_of,
    optional_name,
    optional_place,
    path_of,
    place_of,
    require_model,
    settings_of,
    settings_table,
    with_real_out,
)
from adiabat.api.call import Progress
from adiabat.api.repeated import Asked
from adiabat.api.with_page import with_page
from adiabat.config.budgets import PlanSettings, ScalingSettings
from adiabat.config.reader import SettingsError, in_file
from adiabat.config.sweeps import SWEEPS, SweepSettings, sweep_kind
from adiabat.config.tuning import TuneSection, TuneSettings
from adiabat.experiments.experiment_checks import SCALING, SWEEP, require_plan, require_scaling, require_sweep
from adiabat.models.model_paths import name_of, require_names, require_reachable
from adiabat.results.rate_search_result import SafeRate
from adiabat.results.scaling_result import ScalingResult
from adiabat.results.sweep_result import SweepResult
from adiabat.runs.output_dir import claimed, write_report

if TYPE_CHECKING:
    from adiabat.config.shared import EncoderSection
    from adiabat.models.model_paths import Model
    from adiabat.models.towers import DualEncoder


def sweep(
    settings: SettingsLike,
    *,
    out: PathLike | None = None,
    resume: bool = False,
    exist_ok: bool | None = None,
    progress: Progress = None,
    **options: Any,
) -> SweepResult:
    """Tune or train with every combination of settings, measure each model on the same tasks, and rank them.

    Variants may be settings that belong together, and in a sweep over ``train`` also data sets or models.
    Each run is an ordinary job in ``OUT/runs``; a run that diverges, runs out of memory or cannot afford a
    step leaves a row with the reason.

    Args:
        settings: `TuneSweepSettings` or `TrainSweepSettings`, a TOML file or nested dicts; ``adiabat settings
            sweep tune`` and ``adiabat settings sweep train`` list them.
        out: Directory of the sweep; None takes ``sweep.out``.
        resume: Continue an interrupted sweep; values, variants and seeds may have been added.
        exist_ok: True returns the result of the same call at once, as in `tune`. None refuses a sweep, unless
            `resume`.
        progress: None is silent without a terminal or a notebook, and shows a bar on one. True prints a line
            every half minute without one. False is silent.
        **options: Single settings, such as ``seeds=[0, 1]`` or ``device="cuda"``. Of the optional tables
            ``guard``, ``rehearsal`` and ``probes``, None keeps what `settings` say, False switches the table
            off, and True or a dict switches it on.

    Returns:
        The result: a row for each run, and the ranking.

    Example:
        >>> store = adiabat.embed("demo", "corpus.jsonl", out="store")
        >>> test = {"data": "test.jsonl", "corpus": "corpus.jsonl", "stores": ["store"]}
        >>> spec = {
        ...     "job": {"model": "demo", "store": "store", "data": "train.jsonl"},
        ...     "tune": {"max_epochs": 1, "batches_per_epoch": 2},
        ...     "grid": {"tune": {"learning_rate": [1e-6, 1e-5]}},
        ...     "tasks": [{"kind": "retrieval", **test}],
        ...     "probes": False,
        ... }
        >>> result = adiabat.sweep(spec, out="sweep", resamples=100)
        >>> [run.status for run in result.runs]
        ['done', 'done']
    """
    # A file is read once: its verb decides the class that checks it.
    if not isinstance(settings, SweepSettings):
        settings = settings_table(settings, SweepSettings)
    verb = _verb(settings, options)
    kind = sweep_kind({"sweep": {"verb": verb}})
    # The type of a settings object names a verb that its table may leave out.
    options = {**options, "verb": verb} if isinstance(settings, SweepSettings) else options
    folder = optional_name(out, "out")
    chosen = settings_of(kind, settings, {**options, "out": folder}, section="sweep", function="sweep")
    chosen = with_real_out(chosen, "sweep")
    asked = Asked.of("sweep", chosen.sweep.out, exist_ok, settings=chosen)
    if asked.is_finished(resume=resume):
        return asked.result(SweepResult)
    resume = resume or asked.resumes(SWEEP)
    try:
        require_sweep(chosen, resume=resume)
    except SettingsError as fault:
        raise (in_file(fault, Path(settings)) if isinstance(settings, str | os.PathLike) else fault) from None
    # Imported after the checks: torch takes seconds to load.
    from adiabat.experiments.sweep import sweep as run_sweep
    from adiabat.models.model_names import load_with

    with asked.carried_out(progress) as call:
        result = run_sweep(load_with, chosen, resume=resume, command=call.command, watch=call.watch)
    return with_page(result, asked.out)


def _verb(settings: SettingsLike, options: Mapping[str, Any]) -> Any:
    """The verb of keywords or settings; otherwise that of a settings object's type."""
    for section in (options, options.get("sweep"), settings_table(settings, SweepSettings).get("sweep")):
        if isinstance(section, Mapping) and section.get("verb") is not None:
            return section["verb"]
    return next((verb for verb, kind in SWEEPS.items() if isinstance(settings, kind)), "tune")


def scaling(
    settings: SettingsLike,
    *,
    out: PathLike | None = None,
    resume: bool = False,
    exist_ok: bool | None = None,
    progress: Progress = None,
    **options: Any,
) -> ScalingResult:
    """Train every size with every method to every budget, and fit laws of the loss (Ziarko et al. 2024).

    Args:
        settings: `ScalingSettings`, a TOML file or nested dicts; ``adiabat settings scaling`` lists them.
        out: Directory of the experiment; None takes ``scaling.out``.
        resume: Continue an interrupted experiment; models, methods, budgets and seeds may have been added.
        exist_ok: True returns the result of the same call at once, as in `tune`. None refuses an experiment,
            unless `resume`.
        progress: None is silent without a terminal or a notebook, and shows a bar on one. True prints a line
            every half minute without one. False is silent.
        **options: Single settings, such as ``budgets=[1e12, 4e12]`` (FLOPs) or ``device="cuda"``.

    Returns:
        The result: a row for each run, and laws, frontiers and profiles.

    Raises:
        AdiabatError: If settings, models, data or directory are unusable, or every run failed.

    Example:
        >>> spec = {
        ...     "models": [{"model": "demo", "blocks": [1], "pretraining_rate": 0.01}],
        ...     "job": {"data": "train.jsonl"},
        ...     "data": {"corpus": "corpus.jsonl", "validation_fraction": 0.4},
        ...     "train": {"batch_size": 4},
        ... }
        >>> result = adiabat.scaling(spec, out="scaling", budgets=[1e7, 2e7], least_steps=1, resamples=10)
        >>> len(result.runs)
        2
    """
    folder = optional_name(out, "out")
    chosen = settings_of(
        ScalingSettings, settings, {**options, "out": folder}, section="scaling", function="scaling"
    )
    chosen = with_real_out(chosen, "scaling")
    asked = Asked.of("scaling", chosen.scaling.out, exist_ok, settings=chosen)
    if asked.is_finished(resume=resume):
        return asked.result(ScalingResult)
    resume = resume or asked.resumes(SCALING)
    require_scaling(chosen, resume=resume)
    # Imported after the checks: torch takes seconds to load.
    from adiabat.experiments.scaling import scaling as run_scaling
    from adiabat.models.model_names import load_with

    with asked.carried_out(progress) as call:
        result = run_scaling(load_with, chosen, resume=resume, command=call.command, watch=call.watch)
    return with_page(result, asked.out)


def plan(
    *,
    runs: PathLike | None = None,
    out: PathLike | None = None,
    exist_ok: bool | None = None,
    settings: SettingsLike = None,
    progress: Progress = None,
    **options: Any,
) -> ScalingResult:
    """Recommend model, method, tokens and learning rate for a training budget, with reasons and intervals
    (Ziarko et al. 2024).

    Args:
        runs: Result or directory of a scaling experiment, or its ``runs.parquet``; None uses published
            figures.
        out: Directory for the page and ``train.toml``; None writes nothing.
        exist_ok: True returns the result of the same call at once, as in `tune`. None replaces an earlier
            plan.
        settings: `PlanSettings`, a TOML file or nested dicts; ``adiabat settings plan`` lists them.
        progress: None is silent without a terminal or a notebook, and shows a bar on one. True prints a line
            every half minute without one. False is silent.
        **options: Single settings, such as ``budget=1e17`` (FLOPs), ``budget_seconds="8h"``,
            ``memory="24GiB"`` or ``data_tokens=1e9``.

    Returns:
        The advice, with the laws behind it.

    Raises:
        AdiabatError: If settings or directory are unusable, or there are too few runs.

    Example:
        >>> advice = adiabat.plan(budget=1e17).advice
        >>> advice.candidates[0].way.method
        'lora'
    """
    options |= {"runs": optional_name(runs, "runs"), "out": optional_name(out, "out")}
    chosen = settings_of(PlanSettings, settings, options, section="plan", function="plan")
    target = optional_place(chosen.plan.out)
    asked = Asked.of("plan", target, exist_ok, settings=chosen, replaces=True)
    if asked.is_finished():
        return asked.result(ScalingResult)
    require_plan(chosen)
    from adiabat.experiments.plan import plan as make_plan

    with asked.carried_out(progress) as call, claimed(target, kind="plan") as folder:
        result = make_plan(_load, chosen, command=call.command, watch=call.watch)
        if folder is None:
            return with_page(result, None)
        write_report(result, folder)
        return with_page(result, folder)


def _load(name: str, section: "EncoderSection") -> "DualEncoder":
    # A plan that measures nothing loads no model.
    from adiabat.models.model_names import load_with

    return load_with(name, section)


def safe_rate(
    model: "Model",
    store: PathLike,
    data: Data,
    out: PathLike,
    *,
    resume: bool = False,
    exist_ok: bool | None = None,
    settings: SettingsLike = None,
    progress: Progress = None,
    **options: Any,
) -> SafeRate:
    """Find the largest learning rate at which the drift of results on unlabelled probe texts stays within
    noise.

    Args:
        model: Model whose query tower is tuned; its document tower made the store.
        store: Document vectors of that model.
        data: Tuning data: queries with positives and optionally negatives.
        out: Directory of the search.
        resume: Continue an interrupted search; rates and seeds may have been added.
        exist_ok: True returns the result of the same call at once, as in `tune`. None refuses a search,
            unless `resume`.
        settings: `TuneSettings`, a TOML file or nested dicts; ``adiabat settings safe-rate`` lists them.
            Their learning rate and ``guard = False`` are not used.
        progress: None is silent without a terminal or a notebook, and shows a bar on one. True prints a line
            every half minute without one. False is silent.
        **options: Single settings, such as ``rate_search={"low": 1e-7, "high": 1e-4}`` or ``device="cuda"``.
            Of the optional table ``rehearsal``, None keeps what `settings` say, False switches it off, and
            True or a dict switches it on. ``guard`` takes no False: the search is for the largest rate within
            the guard's limit.

    Returns:
        The result, with a row for each trial.

    Example:
        >>> store = adiabat.embed("demo", "corpus.jsonl", out="store")
        >>> rates = {"low": 1e-7, "high": 1e-6, "count": 2, "steps": 2, "checks": 1}
        >>> options = {"rate_search": rates, "guard": {"depth": 10}}
        >>> result = adiabat.safe_rate("demo", store, "train.jsonl", "search", **options)
        >>> len(result.rates)
        2
    """
    # A settings file of tune works too, whatever its rate and guard.
    tune = options.get("tune")
    if not (isinstance(tune, Mapping) and "learning_rate" in tune):
        options = {"learning_rate": TuneSection().learning_rate, **options}
    options = {**options, "rate_search": _safe(options.get("rate_search"))}
    if options.get("guard") is None and _is_unguarded(settings):
        options = {**options, "guard": True}
    chosen = settings_of(TuneSettings, settings, options, section="tune", function="safe_rate")
    require_model(model, "model")
    folder = place_of(out)
    source = data_of(data, "data")
    asked = Asked.of("safe_rate", folder, exist_ok, settings=chosen, model=model, store=store, data=source)
    if asked.is_finished(resume=resume):
        return asked.result(SafeRate)
    resume = resume or asked.resumes(SEARCH)
    require_named(inputs_of(name_of(model), path_of(store, "store"), source), chosen)
    require_search(folder, resume=resume)
    require_names(model)
    require_reachable(model)
    # Imported after the checks: torch takes seconds to load.
    from adiabat.api.tune_verb import context_of
    from adiabat.experiments.rate_search import safe_rate as find_safe_rate

    with asked.carried_out(progress) as call:
        # Said rather than refused, since a file of tune has both.
        for note in replaced_notes(settings):
            call.watch.note(note)
        context = context_of(model, store, source, chosen)
        result = find_safe_rate(
            context, folder, settings=chosen, resume=resume, command=call.command, watch=call.watch
        )
    return with_page(result, folder)


def _safe(search: object) -> object:
    """The settings of a search, as one for a safe rate."""
    return {"kind": "safe", **search} if isinstance(search, Mapping) else search or "safe"


def replaced_notes(settings: SettingsLike) -> Iterator[str]:
    """Note on tuning settings that a search ignores."""
    tune = settings_table(settings, TuneSettings).get("tune")
    if isinstance(tune, Mapping) and "learning_rate" in tune:
        yield f"the search tries its own rates: tune.learning_rate = {tune['learning_rate']} is ignored"
    if _is_unguarded(settings):
        yield "the search measures drift: guard = false is ignored"


def _is_unguarded(settings: SettingsLike) -> bool:
    return settings_table(settings, TuneSettings).get("guard", True) in (False, None)
