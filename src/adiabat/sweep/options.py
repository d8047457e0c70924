"""Which models and methods a plan may choose: those that memory suffices for, and whose tokens make enough steps (mission B8)."""

from collections.abc import Mapping, Sequence

from adiabat.config.plan import PlanSection
from adiabat.errors import ConfigError
from adiabat.measure.sweep_results import SweepRun
from adiabat.plan.recipe import points_at
from adiabat.plan.runs import Option, Way
from adiabat.report.sweep.wording import amount, flop


def within(held: Mapping[Option, int | None], memory: int | None, *, takes: str, instead: str) -> list[Option]:
    """Options that memory suffices for; one that nobody has measured counts among them.

    Args:
        held: What each takes, in bytes; None where that is not known.
        memory: That there is; None sets no limit.
        takes: What the least of them does, ``{}`` in place of how much; for a message.
        instead: What else may be done than having more memory.

    Returns:
        At least one, in order.

    Raises:
        ConfigError: If it suffices for none.
    """
    if memory is None:
        return list(held)
    found = [option for option, taken in held.items() if taken is None or taken <= memory]
    if not found:
        least = amount(min(taken for taken in held.values() if taken is not None))
        raise ConfigError(
            f"plan.memory must be enough for a model, the smallest of which {takes.format(least)}, got {amount(memory)}; "
            f"raise it, or {instead}"
        )
    return found


def with_steps(options: Sequence[Option], rows: Sequence[SweepRun], section: PlanSection, budget: float) -> list[Option]:
    """Options whose tokens make as many steps as runs must have that laws are fitted to.

    Args:
        options: That memory allows.
        rows: Runs of each, which say how many tokens a step has.
        section: The tokens there are, and the least steps.
        budget: In FLOP.

    Returns:
        At least one, in order.

    Raises:
        ConfigError: If none has so many.
    """
    steps = section.least_steps
    least = {option: steps * _step(option.way, rows) for option in options}
    tokens = dict(zip(options, points_at(options, budget, section.data_tokens).tokens.tolist(), strict=True))
    found = [option for option in options if tokens[option] >= least[option]]
    if found:
        return found
    fewest = min(least.values())
    if section.data_tokens is not None and section.data_tokens < fewest:
        raise ConfigError(
            f"plan.data_tokens must make plan.least_steps = {steps} steps, {fewest:.3g} tokens in the runs, got {section.data_tokens:.3g}; "
            "raise it"
        )
    cheapest = min(option.flops_per_token * count for option, count in least.items())
    raise ConfigError(
        f"plan.budget must pay for plan.least_steps = {steps} steps, which take {flop(cheapest)} at the least in the runs, "
        f"got {flop(budget)}; raise it"
    )


def _step(way: Way, rows: Sequence[SweepRun]) -> float:
    """Tokens of a step."""
    own = [row for row in rows if row.way == way]
    return sum(row.tokens for row in own) / sum(row.steps for row in own)
