"""A recommendation for a budget from the runs of a scaling experiment (Ziarko et al. 2024)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adiabat.config.budgets import PRETRAINING_SHARE, PlanSection, PlanSettings
from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import TRAIN_TABLES, checked
from adiabat.config.section import overlaid
from adiabat.config.training_choices import InBatchLoss
from adiabat.core.errors import (
    AdiabatError,
    ConfigError,
    DataError,
    InterruptionError,
    is_out_of_memory,
    several,
)
from adiabat.core.progress import SILENT, Watch
from adiabat.core.text import duration, flop, share
from adiabat.core.wording import option
from adiabat.dual_encoder.train_checks import require_estimable
from adiabat.experiments.grid import Tried
from adiabat.experiments.plan_constraints import (
    TOO_LARGE,
    TOO_LONG,
    TOO_SHORT,
    UNTIMED,
    budgets_of,
    enough,
    excluded,
    with_steps,
    within,
)
from adiabat.experiments.plan_prior import NOTES, PAPER, by_prior, time_reason, tokens_reason
from adiabat.experiments.scaling_analysis import (
    PROCESSOR,
    STEP,
    Evidence,
    evidence_of,
    fitted,
    result_of,
    rows_in,
)
from adiabat.results.scaling_result import Addition, Advice, Choice, Reason, ScalingResult, ScalingRun
from adiabat.runs.run_config import Job, description_of, is_described, without_none
from adiabat.scaling_laws.laws import Option
from adiabat.scaling_laws.recommendation import (
    Candidate,
    KindFit,
    Recommendation,
    lacking,
    narrowing,
    recommend,
)

if TYPE_CHECKING:
    from adiabat.dual_encoder.tower_setup import Loader

MEASURED_STEPS = 3
"""Number of steps of the run set up to measure time and memory; a budget would require drawing all of its
batches first."""


def plan(
    load: "Loader", settings: PlanSettings, *, command: str = "", watch: Watch = SILENT
) -> ScalingResult:
    """Recommend a model, tokens and method for a budget, with reasons."""
    section = settings.plan
    title = _title(section)
    if section.runs is None:
        advice = by_prior(load, settings, watch)
        return result_of(settings, title, [], Evidence([], [], {}), [], advice, command=command, notes=NOTES)
    rows = rows_in(Path(section.runs))
    evidence = evidence_of(rows, section.loss, least_steps=section.least_steps)
    _require_comparable(evidence)
    # Laws take minutes to fit; what has none is known before.
    for kind, lack in lacking(evidence.runs).items():
        watch.note(f"{kind} is no candidate: it has no law, which needs {lack}")
    budgets, dropped = _affordable(section, evidence.rows)
    fits = fitted(evidence, settings, watch, asked=budgets, data_tokens=section.data_tokens)
    advice = replace(_advice(settings, budgets, evidence.rows, fits), excluded=dropped)
    if section.measure and advice.settings:
        advice = _measured(load, advice, settings.run.device, watch)
    device = PROCESSOR if advice.seconds is None else _device(settings.run.device)
    return result_of(settings, title, rows, evidence, fits, advice, command=command, device=device)


def _device(name: str) -> str:
    from adiabat.models.device import device_name, device_of

    return device_name(device_of(name))


def _title(section: PlanSection) -> str:
    if section.budget is not None:
        return f"What to train for {flop(section.budget)}"
    if section.budget_seconds is not None:
        return f"What to train in {duration(section.budget_seconds)}"
    advice = f"add {option('budget')}, such as {option('budget', 1e17)}, or {option('budget_seconds')}"
    raise ConfigError(f"plan.budget must be given, got none; {advice}")


def _require_comparable(evidence: Evidence) -> None:
    if not evidence.rows:
        causes = [f"{name}: {why}" for name, why in evidence.left_out.items()] or ["no runs"]
        raise DataError(f"plan.runs must hold a run that a law can be fitted to, got {several(causes)}")
    sizes = sorted({row.batch_size for row in evidence.rows})
    if len(sizes) > 1:
        raise DataError(
            f"plan.runs must hold runs of one batch size, got {' and '.join(map(str, sizes))}, whose losses "
            "are not comparable; use those of one experiment"
        )


def _affordable(
    section: PlanSection, rows: Sequence[ScalingRun]
) -> tuple[dict[Option, float], dict[str, list[str]]]:
    """Budget of each option that fits into memory and makes enough steps, and rejected options as in
    `Advice`.
    """
    # Each constraint is given what the one before it left, so that an option has one reason.
    memory = _held(rows)
    instead = "make runs with a smaller train.batch_size, or with memory.cached = true"
    small = within(memory, section.memory, takes="held {}", instead=instead)
    timed = budgets_of(small, rows, section)
    long_enough = enough(timed, rows, section)
    affordable = with_steps(timed, long_enough, rows, section)
    dropped = (
        excluded(TOO_LARGE, memory, small)
        | excluded(UNTIMED, small, timed)
        | excluded(TOO_SHORT, timed, long_enough)
    )
    return affordable, dropped | excluded(TOO_LONG, long_enough, affordable)


def _advice(
    settings: PlanSettings,
    budgets: Mapping[Option, float],
    rows: Sequence[ScalingRun],
    fits: Sequence[KindFit],
) -> Advice:
    section, memory = settings.plan, _held(rows)
    recommended = recommend(fits, budgets, data_tokens=section.data_tokens, seed=settings.run.seed)
    rival = recommended.runner_up
    best = recommended.best
    # The run of the largest budget has the settings that the advice repeats.
    of_best = [row for row in rows if row.way == best.option.way]
    run = max(of_best, key=attrgetter("budget"))
    largest = max(row.budget for row in rows if row.way.kind == run.way.kind)
    run_settings = _run_settings(best, run, Path(str(section.runs)))
    temperature = run_settings["train"].get("loss", {}).get("temperature", {}).get("value")
    reasons = list(_reasons(recommended, run, section, largest=largest, temperature=temperature))
    # Passes over the same data grow with the tokens.
    passes = run.passes * best.tokens / run.tokens if run.passes else None
    return Advice(
        budget=recommended.budget,
        budget_seconds=section.budget_seconds,
        data_tokens=section.data_tokens,
        memory=section.memory,
        best=_choice(best, memory),
        runner_up=None if rival is None else _choice(rival, memory),
        sure=None if rival is None else recommended.sure,
        candidates=[_choice(candidate, memory) for candidate in recommended.candidates],
        excluded={},
        reasons=reasons,
        additions=_additions(rows, fits, recommended, section),
        beyond=best.flops / largest,
        settings=run_settings,
        passes=passes,
        unsound={str(kind): fraction for kind, fraction in recommended.unsound.items()},
    )


def _held(rows: Sequence[ScalingRun]) -> dict[Option, int | None]:
    """Peak memory of the runs of each option, if measured."""
    peaks: dict[Option, int] = {}
    for row in rows:
        peaks[row.option] = max(row.memory, peaks.get(row.option, 0))
    # A run that recorded no memory has 0.
    return {option: peak or None for option, peak in peaks.items()}


def _choice(candidate: Candidate, memory: Mapping[Option, int | None]) -> Choice:
    return Choice(
        way=candidate.option.way,
        parameters=candidate.option.parameters,
        tokens=candidate.tokens,
        flops=candidate.flops,
        loss=candidate.law.value,
        law=(candidate.law.low, candidate.law.high),
        run=(candidate.run.low, candidate.run.high),
        memory=memory[candidate.option],
        wins=candidate.wins,
        held_out=candidate.held_out,
        line=candidate.line,
        line_held_out=candidate.line_held_out,
    )


def _additions(
    rows: Sequence[ScalingRun], fits: Sequence[KindFit], recommended: Recommendation, section: PlanSection
) -> list[Addition]:
    """Candidate runs at existing budgets and the next one, well below the requested budget; with another seed
    if the run exists.

    `STEP` limits them: the maximum above the largest budget of the runs, and the minimum below the requested
    budget. Runs with too few steps for a law are excluded, because they would not help.
    """
    budgets = sorted({row.budget for row in rows})
    # One step beyond the largest budget, and one step below the requested one at most.
    wanted = [*budgets, STEP * budgets[-1]]
    affordable = [budget for budget in wanted if budget <= recommended.budget / STEP]
    options = [candidate.option for candidate in recommended.candidates]
    possible: list[tuple[Option, float]] = []
    for budget in affordable or budgets[:1]:
        possible += enough(dict.fromkeys(options, budget), rows, section).items()
    additions = []
    for run in narrowing(fits, recommended, possible, data_tokens=section.data_tokens):
        # A run that exists is proposed with the next seed.
        made = [row.seed for row in rows if (row.way, row.budget) == (run.option.way, run.budget)]
        additions.append(Addition(run.option.way.title, run.budget, max(made, default=-1) + 1, run.gain))
    return additions


def _run_settings(best: Candidate, run: ScalingRun, runs: Path) -> dict[str, Any]:
    """Settings of `adiabat train` for the advice, except its directory; for rows alone, without the common
    settings of the runs.
    """
    tables = Tried(best.option.way, run.learning_rate).tables()
    train = {"budget_flops": best.flops, "batch_size": run.batch_size}
    overlay = overlaid(TrainSettings, tables, {"train": train})
    job = Job(runs if runs.is_dir() else runs.parent)
    if not is_described(job.folder, "scaling"):
        return dict(without_none(overlay))
    before = description_of(
        job, {"scaling": {}, "common": {name: {} for name in TRAIN_TABLES}}, of="a scaling experiment"
    )
    # Only what differs from the defaults of `train` is repeated.
    plain = TrainSettings().model_dump(mode="json")
    common = {}
    for name, table in before.get("common", {}).items():
        if name in TRAIN_TABLES:
            usual = plain[name]
            common[name] = {key: value for key, value in table.items() if value != usual.get(key)}
    if "data" in before.get("scaling", {}):
        common["job"] = {"data": before["scaling"]["data"]}
    merged = overlaid(TrainSettings, common, overlay)
    try:
        settings = checked(TrainSettings, merged)
    except ConfigError as fault:
        raise ConfigError(f"{job.config}: {fault}") from fault
    record = settings.model_dump(mode="json", exclude_defaults=True)
    # State the recommended values explicitly, even if they are defaults.
    loss = settings.train.loss
    if isinstance(loss, InBatchLoss) and "temperature" in merged.get("train", {}).get("loss", {}):
        record["train"]["loss"] = {
            **loss.model_dump(mode="json", exclude_defaults=True),
            "temperature": loss.temperature.model_dump(),
        }
    return dict(without_none(record))


def _measured(load: "Loader", advice: Advice, device: str, watch: Watch) -> Advice:
    """The advice with measured time and memory on this machine; unchanged if model or data are
    unavailable.
    """
    # A budget in FLOP would draw all batches of the run first.
    few = {"run": {"device": device}, "train": {"budget_flops": None, "steps": MEASURED_STEPS}}
    try:
        run_settings = checked(TrainSettings, overlaid(TrainSettings, advice.settings, few))
        require_estimable(run_settings)
        # Torch takes seconds to load, and a plan without measurements does not need it.
        from adiabat.dual_encoder.train import estimate

        cost = estimate(load, run_settings, watch=watch)
    except InterruptionError:
        raise
    except Exception as fault:
        cause = str(fault)
        if is_out_of_memory(fault):
            cause = "the memory here is too small for a step"
        elif not isinstance(fault, AdiabatError):
            raise
        watch.note(f"time and memory are not measured: {cause}")
        return advice
    assert advice.best is not None
    seconds = cost.seconds * advice.best.flops / cost.flops
    return replace(advice, seconds=seconds, measured_memory=cost.memory_bytes)


SHOWN = 4
"""Number of options named with their share of the laws fitted to resampled runs."""

OWN = "runs of the scaling experiment"


def _reasons(
    recommended: Recommendation,
    run: ScalingRun,
    section: PlanSection,
    *,
    largest: float,
    temperature: float | None,
) -> Iterator[Reason]:
    """Reasons for each recommended value.

    Args:
        largest: The largest budget of the runs of the recommended method.
        temperature: Temperature of the runs; None if only rows are given, which do not record it.
    """
    best, other = recommended.best, recommended.runner_up
    way = best.option.way
    if section.budget_seconds is not None:
        fastest = "the speed of the fastest run of this model and method"
        yield time_reason(section.budget_seconds, recommended.budget, fastest, OWN)
    ahead = "the only one among the candidates that has a law"
    if other is not None:
        ahead = (
            f"its predicted loss of {best.law.value:.4f} is below that of "
            f"{other.option.way.title}, {other.law.value:.4f}; "
            f"{share(recommended.sure)} of laws fitted to resampled runs agree that it is ahead"
        )
    yield Reason("method", str(way.kind), ahead, OWN)
    lowest = "the lowest predicted loss of all candidates"
    size = f"{way.sized_name}, {best.option.size:,} parameters without the token embeddings"
    ranked = sorted(recommended.candidates, key=attrgetter("wins"), reverse=True)
    wins = "; ".join(f"{one.option.way.title} by {share(one.wins)}" for one in ranked[:SHOWN])
    yield Reason("model", size, f"{lowest}; best by laws fitted to resampled runs: {wins}", OWN)
    if way.rank is not None:
        usual = f"{lowest}; 32 to 128 suit most cases"
        yield Reason("rank", str(way.rank), usual, f"{OWN}; {PAPER}, section 4.6")
    if way.frozen:
        yield Reason("frozen", f"{way.frozen} leading blocks", lowest, OWN)
    yield tokens_reason(best.tokens, best.flops)
    comparable = "as in the runs: losses of other batch sizes are not comparable"
    yield Reason("batch", f"{run.batch_size} queries", comparable, OWN)
    rule = (
        "as in the runs; the paper takes 1e-3 for LoRA, 1e-2 for biases, and otherwise "
        f"{PRETRAINING_SHARE:g} of the highest rate of a model's pre-training"
    )
    yield Reason("rate", f"{run.learning_rate:g}", rule, f"{PAPER}, section 4.1 and tables 3 and 4")
    if temperature is not None:
        value, known = f"{temperature:g}", "as in the runs; the paper takes 1/40"
        yield Reason("temperature", value, known, f"{PAPER}, section 4.1")
    if best.flops > largest:
        times = f"{best.flops / largest:.3g} times the largest budget of its method"
        yield Reason("reach", times, "laws are less certain the further they extrapolate", OWN)
