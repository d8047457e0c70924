"""A recommendation for a budget from the runs of a scaling experiment (Ziarko et al. 2024)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adiabat.config.budgets import PlanSection, PlanSettings
from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import TRAIN_TABLES, checked
from adiabat.config.section import overlaid
from adiabat.config.training_choices import InBatchLoss
from adiabat.core.errors import AdiabatError, ConfigError, DataError, InterruptionError, is_out_of_memory
from adiabat.core.progress import SILENT, Watch
from adiabat.core.text import duration, flop
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
from adiabat.experiments.plan_prior import NOTES, by_prior
from adiabat.experiments.scaling_analysis import (
    PROCESSOR,
    STEP,
    Evidence,
    evidence_of,
    fitted,
    result_of,
    rows_in,
)
from adiabat.results.scaling_result import Addition, Advice, Choice, ScalingResult, ScalingRun
from adiabat.runs.run_config import Job, description_of, is_described, without_none
from adiabat.scaling_laws.laws import Option, Way
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
from collections.abc import Iterator

from adiabat.config.budgets import PRETRAINING_SHARE
from adiabat.core.text import share
from adiabat.experiments.plan_prior import PAPER
from adiabat.results.scaling_result import Reason
from adiabat.scaling_laws.fitting import CONFIDENCE

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
    _require_comparable(evidence, len(rows))
    # Laws take minutes to fit; what has none is known before.
    for kind, lack in lacking(evidence.runs).items():
        watch.note(f"{kind} is no candidate: it has no law, which needs {lack}")
    budgets, dropped = _affordable(section, evidence.rows)
    fits = fitted(
        evidence,
        asked=budgets,
        data_tokens=section.data_tokens,
        resamples=section.resamples,
        seed=settings.run.seed,
        watch=watch,
    )
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


def _require_comparable(evidence: Evidence, count: int) -> None:
    if not evidence.rows:
        first = next((f", such as {name}: {why}" for name, why in evidence.left_out.items()), "")
        raise DataError(
            f"plan.runs must hold a run that a law can be fitted to, got {count} unsuitable runs{first}"
        )
    if len(sizes := sorted({row.batch_size for row in evidence.rows})) > 1:
        listing = " and ".join(f"{size:,}" for size in sizes)
        raise DataError(
            f"plan.runs must hold runs of one batch size, got {listing}, whose losses "
            "are not comparable; use those of one experiment"
        )


def _affordable(
    section: PlanSection, rows: Sequence[ScalingRun]
) -> tuple[dict[Option, float], dict[str, list[str]]]:
    """Budget of each option that fits into memory and makes enough steps, and rejected options as in
    `Advice`.
    """
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
    run = max((row for row in rows if row.way == recommended.best.option.way), key=lambda row: row.budget)
    largest = max(row.budget for row in rows if row.way.kind == run.way.kind)
    run_settings = _run_settings(recommended.best, run, Path(str(section.runs)))
    return Advice(
        budget=recommended.budget,
        budget_seconds=section.budget_seconds,
        data_tokens=section.data_tokens,
        memory=section.memory,
        best=_choice(recommended.best, memory),
        runner_up=None if recommended.runner_up is None else _choice(recommended.runner_up, memory),
        sure=None if recommended.runner_up is None else recommended.sure,
        candidates=[_choice(candidate, memory) for candidate in recommended.candidates],
        excluded={},
        reasons=reasons_of(
            recommended,
            run,
            section,
            largest=largest,
            missed=_missed(fits, run),
            temperature=_temperature(run_settings),
        ),
        additions=_additions(rows, fits, recommended, section),
        beyond=recommended.best.flops / largest,
        settings=run_settings,
        passes=run.passes * recommended.best.tokens / run.tokens if run.passes else None,
        unsound={str(kind): fraction for kind, fraction in recommended.unsound.items()},
    )


def _missed(fits: Sequence[KindFit], run: ScalingRun) -> float | None:
    """Relative error of the law of a run's kind at the largest budget, when fitted without it."""
    choice = next(fit.choice for fit in fits if fit.kind == run.way.kind)
    return None if choice is None or choice.without_budget is None else choice.without_budget.error


def _held(rows: Sequence[ScalingRun]) -> dict[Option, int | None]:
    """Peak memory of the runs of each option, if measured."""
    options = dict.fromkeys(row.option for row in rows)
    return {option: max(row.memory for row in rows if row.option == option) or None for option in options}


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
    affordable = [
        budget for budget in (*budgets, STEP * budgets[-1]) if budget <= recommended.budget / STEP
    ] or budgets[:1]
    seeds: dict[tuple[Way, float], int] = {}
    for row in rows:
        seeds[row.way, row.budget] = max(row.seed, seeds.get((row.way, row.budget), -1))
    options = [candidate.option for candidate in recommended.candidates]
    possible = [
        pair
        for budget in affordable
        for pair in enough(dict.fromkeys(options, budget), rows, section).items()
    ]
    proposed = narrowing(fits, recommended, possible, data_tokens=section.data_tokens)
    return [
        Addition(run.option.way.title, run.budget, seeds.get((run.option.way, run.budget), -1) + 1, run.gain)
        for run in proposed
    ]


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
    plain = TrainSettings().model_dump(mode="json")
    common = {
        name: {key: value for key, value in table.items() if value != plain[name].get(key)}
        for name, table in before.get("common", {}).items()
        if name in TRAIN_TABLES
    }
    data = before.get("scaling", {}).get("data")
    merged = overlaid(
        TrainSettings,
        common,
        overlaid(TrainSettings, {"job": {} if data is None else {"data": data}}, overlay),
    )
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


def _temperature(settings: Mapping[str, Any]) -> float | None:
    """The fixed temperature of the recommended run."""
    temperature: float | None = settings["train"].get("loss", {}).get("temperature", {}).get("value")
    return temperature


def _measured(load: "Loader", advice: Advice, device: str, watch: Watch) -> Advice:
    """The advice with measured time and memory on this machine; unchanged if model or data are
    unavailable.
    """
    try:
        few = {"run": {"device": device}, "train": {"budget_flops": None, "steps": MEASURED_STEPS}}
        require_estimable(
            run_settings := checked(TrainSettings, overlaid(TrainSettings, advice.settings, few))
        )
        # Torch takes seconds to load, and a plan without measurements does not need it.
        from adiabat.dual_encoder.train import estimate

        cost = estimate(load, run_settings, watch=watch)
    except InterruptionError:
        raise
    except Exception as fault:
        if not isinstance(fault, AdiabatError) and not is_out_of_memory(fault):
            raise
        cause = fault if isinstance(fault, AdiabatError) else "the memory here is too small for a step"
        watch.note(f"time and memory are not measured: {cause}")
        return advice
    assert advice.best is not None
    return replace(
        advice, seconds=cost.seconds * advice.best.flops / cost.flops, measured_memory=cost.memory_bytes
    )


SHOWN = 4
"""Number of options named if resampled runs disagree."""

OWN, RULES = "runs of the scaling experiment", f"{PAPER}, section 4.1 and tables 3 and 4"


def reasons_of(
    recommended: Recommendation,
    run: ScalingRun,
    section: PlanSection,
    *,
    largest: float,
    missed: float | None,
    temperature: float | None,
) -> list[Reason]:
    """Reasons for each recommended value.

    Args:
        missed: Relative error of this kind's law at the largest budget, when fitted without it; None if
            unknown.
        temperature: Temperature of the runs; None if only rows are given, which do not record it.
    """
    reasons = [
        *_of_time(recommended, section),
        *_of_method(recommended),
        *_of_tokens(recommended, section),
        *_of_regime(run, temperature),
    ]
    if recommended.best.flops > largest:
        times = f"{recommended.best.flops / largest:.3g} times the largest budget of its method"
        miss = (
            ""
            if missed is None
            else f"; fitted without that budget, this one missed its losses by {share(missed)}"
        )
        reasons.append(
            Reason("reach", times, f"laws are less certain the further they extrapolate{miss}", OWN)
        )
    return reasons


def _of_time(recommended: Recommendation, section: PlanSection) -> Iterator[Reason]:
    if section.budget_seconds is not None:
        speed = (
            f"{recommended.budget / section.budget_seconds:.3g} FLOP per second, the "
            "speed of the fastest run of this model and method"
        )
        yield Reason(
            "budget",
            flop(recommended.budget),
            f"the FLOPs of {duration(section.budget_seconds)} at {speed}",
            OWN,
        )


def _of_method(recommended: Recommendation) -> Iterator[Reason]:
    """Method and model, with the trained share."""
    best, other = recommended.best, recommended.runner_up
    way = best.option.way
    ahead = "the only one among the candidates that has a law"
    if other is not None:
        ahead = (
            f"its predicted loss of {best.law.value:.4f} is below that of "
            f"{other.option.way.title}, {other.law.value:.4f}; "
            f"{share(recommended.sure)} of laws fitted to resampled runs agree that it is ahead"
        )
    yield Reason("method", str(way.kind), ahead, OWN)
    size = f"{best.option.size:,} parameters without the token embeddings"
    yield Reason(
        "model",
        f"{way.sized_name}, {size}",
        f"the lowest predicted loss of all candidates; {_wins(recommended)}",
        OWN,
    )
    tried = {
        (one.option.way.rank, one.option.way.frozen)
        for one in recommended.candidates
        if one.option.way.kind == way.kind
    }
    why = (
        "the lowest predicted loss of the settings in the runs"
        if len(tried) > 1
        else "the only one in the runs"
    )
    if way.rank is not None:
        yield Reason(
            "rank", str(way.rank), f"{why}; 32 to 128 suit most cases", f"{OWN}; {PAPER}, section 4.6"
        )
    if way.frozen:
        yield Reason("frozen", f"{way.frozen} leading blocks", why, OWN)


def _wins(recommended: Recommendation) -> str:
    """The best options of resampled laws, with their tokens: as many as are needed to cover 95 % of these
    laws.
    """
    ranked, leading, coverage = (
        sorted(recommended.candidates, key=lambda candidate: -candidate.wins),
        list[Candidate](),
        0.0,
    )
    while coverage < CONFIDENCE and len(leading) < len(ranked):
        leading.append(ranked[len(leading)])
        coverage += leading[-1].wins
    tokens = sorted(candidate.tokens for candidate in leading)
    reach = f"{tokens[0]:.3g} tokens" if len(leading) == 1 else f"{tokens[0]:.3g} to {tokens[-1]:.3g} tokens"
    listing = "; ".join(
        f"{candidate.option.way.title} by {share(candidate.wins)}" for candidate in leading[:SHOWN]
    )
    more = f" and {len(leading) - SHOWN} others" if len(leading) > SHOWN else ""
    return f"best by laws fitted to resampled runs: {listing}{more} ({reach})"


def _of_tokens(recommended: Recommendation, section: PlanSection) -> Iterator[Reason]:
    best = recommended.best
    why = f"all that the budget pays for, at {best.option.flops_per_token:.3g} FLOP a token"
    if section.data_tokens is not None and best.tokens >= section.data_tokens:
        why = f"all available tokens; they take {best.flops:.3g} FLOP, and the rest of the budget is unspent"
    yield Reason("tokens", f"{best.tokens:.3g}", why, "Kaplan et al. 2020: C = 2 (N_F + N_B + N_U) D")


def _of_regime(run: ScalingRun, temperature: float | None) -> Iterator[Reason]:
    yield Reason(
        "batch",
        f"{run.batch_size} queries",
        "as in the runs: losses of other batch sizes are not comparable",
        OWN,
    )
    rules = {"lora": "1e-3 for LoRA", "bias": "1e-2 for biases"}
    rule = rules.get(run.way.method, f"{PRETRAINING_SHARE:g} of the highest rate of a model's pre-training")
    yield Reason("rate", f"{run.learning_rate:g}", f"as in the runs; the paper takes {rule}", RULES)
    if temperature is not None:
        yield Reason(
            "temperature", f"{temperature:g}", "as in the runs; the paper takes 1/40", f"{PAPER}, section 4.1"
        )
