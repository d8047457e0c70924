"""Constraints of a plan: models and methods that fit in memory and make enough steps (Ziarko et al. 2024)."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from adiabat.config.budgets import PlanSection
from adiabat.core.errors import ConfigError, DataError
from adiabat.core.text import amount, flop
from adiabat.core.wording import option
from adiabat.dual_encoder.train_checks import MOST_STEPS
from adiabat.results.scaling_result import ScalingRun
from adiabat.scaling_laws.laws import Option, Way
from adiabat.scaling_laws.recommendation import tokens_at

TOO_LARGE = "the memory is too small"
UNTIMED = "no run on the usual device recorded its duration"
TOO_SHORT = "its tokens make too few steps"
TOO_LONG = f"its tokens make more than {MOST_STEPS:,} steps"
"""Reason why an option is rejected."""


def excluded(why: str, before: Iterable[Option], after: Collection[Option]) -> dict[str, list[str]]:
    """Add rejected options with their reason.

    Returns:
        The reason with the names of the options; empty if there are none.
    """
    titles = [option.way.title for option in before if option not in after]
    return {why: titles} if titles else {}


def within(
    usages: Mapping[Option, int | None], memory: int | None, *, takes: str, instead: str
) -> list[Option]:
    """Options that fit into memory; an option without a measurement counts as fitting unless a smaller one
    does not.

    Args:
        usages: Memory of each option, in bytes; None if unknown.
        memory: Available memory; None sets no limit.
    """
    if memory is not None and all(usage is None for usage in usages.values()):
        raise DataError("plan.memory needs runs that recorded their memory, got none; leave plan.memory out")
    options = fitting(usages, memory)
    if not options:
        least = amount(min(usage for usage in usages.values() if usage is not None))
        raise ConfigError(
            f"plan.memory must be enough for the smallest model, which {takes.format(least)}, "
            f"got {amount(memory)}; raise it, or {instead}"
        )
    return options


def fitting(usages: Mapping[Option, int | None], memory: int | None) -> list[Option]:
    """The same, but possibly empty.

    Args:
        usages: Memory of each option, in bytes; None if unknown.
        memory: Available memory; None sets no limit.
    """
    if memory is None:
        return list(usages)
    large = [option for option, usage in usages.items() if usage is not None and usage > memory]
    small = []
    for one, usage in usages.items():
        # An unmeasured option needs at least as much as a smaller one of its kind.
        below = [other for other in large if other.way.kind == one.way.kind and other.size <= one.size]
        if one not in large and (usage is not None or not below):
            small.append(one)
    return small


def budgets_of(
    options: Sequence[Option], rows: Sequence[ScalingRun], section: PlanSection
) -> dict[Option, float]:
    """Budget of each option in FLOP."""
    if section.budget is not None:
        return dict.fromkeys(options, section.budget)
    assert section.budget_seconds is not None, "a plan has a budget or a time"
    timed = _of_one_device(rows)
    budgets = {}
    for one in options:
        # FLOP per second of the fastest run, including validation.
        speeds = [row.flops / row.seconds for row in timed if row.option == one]
        if speeds:
            budgets[one] = section.budget_seconds * max(speeds)
    if not budgets:
        raise DataError(
            f"{option('budget_seconds')} needs runs that recorded their duration, "
            f"got none; give {option('budget')}"
        )
    return budgets


def _of_one_device(rows: Sequence[ScalingRun]) -> list[ScalingRun]:
    """Runs on the most frequent device that recorded their duration."""
    # Speeds of different devices must not be mixed.
    timed = [row for row in rows if row.seconds > 0]
    usual = Counter(row.device for row in timed).most_common(1)
    return [row for row in timed if row.device == usual[0][0]]


def with_steps(
    budgets: Mapping[Option, float],
    long_enough: Mapping[Option, float],
    rows: Sequence[ScalingRun],
    section: PlanSection,
) -> dict[Option, float]:
    """Options whose tokens make enough steps for a law and not more than the limit of a run."""
    found = {}
    for one, budget in long_enough.items():
        if tokens_at(one, budget, section.data_tokens) <= MOST_STEPS * _step(one.way, rows):
            found[one] = budget
    if found:
        return found
    if long_enough:
        ceiling = max(option.flops_per_token * MOST_STEPS * _step(option.way, rows) for option in long_enough)
        raise ConfigError(
            f"{_name(section)} must be at most the cost of {MOST_STEPS:,} steps, "
            f"{flop(ceiling)} in the runs, got "
            f"{flop(max(budgets.values()))}; lower it, or make runs with larger models or batches"
        )
    steps, least = section.least_steps, _least(budgets, rows, section)
    fewest = min(least.values())
    if section.data_tokens is not None and section.data_tokens < fewest:
        raise ConfigError(
            f"plan.data_tokens must make plan.least_steps = {steps} steps, {fewest:.3g} "
            f"tokens in the runs, got {section.data_tokens:.3g}; "
            "raise it"
        )
    cheapest = min(option.flops_per_token * count for option, count in least.items())
    raise ConfigError(
        f"{_name(section)} must pay for plan.least_steps = {steps} steps, which "
        f"take {flop(cheapest)} at least in the runs, "
        f"got {flop(max(budgets.values()))}; raise it"
    )


def enough(
    budgets: Mapping[Option, float], rows: Sequence[ScalingRun], section: PlanSection
) -> dict[Option, float]:
    """Options whose tokens make enough steps for a law."""
    least = _least(budgets, rows, section)
    return {
        option: budget
        for option, budget in budgets.items()
        if tokens_at(option, budget, section.data_tokens) >= least[option]
    }


def _name(section: PlanSection) -> str:
    return "plan.budget" if section.budget is not None else "plan.budget_seconds"


def _least(
    options: Iterable[Option], rows: Sequence[ScalingRun], section: PlanSection
) -> dict[Option, float]:
    """Tokens of the minimum number of steps."""
    return {option: section.least_steps * _step(option.way, rows) for option in options}


def _step(way: Way, rows: Sequence[ScalingRun]) -> float:
    """Tokens of a step."""
    # Mean over the runs, whose texts have different lengths.
    runs = [row for row in rows if row.way == way]
    return sum(row.tokens for row in runs) / sum(row.steps for row in runs)
