"""Sentences about a scaling experiment or a plan."""

from collections import Counter
from collections.abc import Iterator
from operator import itemgetter

from adiabat.core.text import amount, counted, duration, flop, integer, share
from adiabat.report.format import number
from adiabat.results.record import Ends
from adiabat.results.scaling_result import (
    Advice,
    HeldOutRecord,
    KindRecord,
    ScalingResult,
)
from adiabat.scaling_laws.fitting import CONFIDENCE

UNLIKE = 1.5
"""Maximum factor by which a machine may be faster than its runs without a note."""

ONCE_MORE = 1.05
"""Number of passes over the data from which a note mentions them; smaller values would be rounded to 1.0."""

MISS_OVER_NOISE, LEAST_MISS = 3, 0.03
"""Error on held-out runs from which a law misses: in noises of a single run, and at least as a share."""

FAR = 4.0
"""Maximum factor of extrapolation beyond the largest budget without a warning."""


def bounds(ends: Ends | None, *, digits: int = 4) -> str:
    """An interval of losses or correlations; "" for None."""
    return "" if ends is None else f"[{number(ends[0], digits=digits)}, {number(ends[1], digits=digits)}]"


def headline(result: ScalingResult) -> str:
    """The headline."""
    advice = result.advice
    if advice is None:
        return _of_scaling(result)
    best = advice.best
    if best is not None:
        loss = ""
        if best.loss is not None:
            loss = f": {result.loss} loss {number(best.loss)} {bounds(best.held_out or best.law)}"
        return f"Train {best.way.title} on {best.tokens:.3g} tokens{loss}."
    if advice.scarce:
        full = "Published results favour full training of the largest model that memory allows"
        return f"{full}, because tokens are scarce."
    method = "full training" if advice.candidates[0].way.method == "full" else "LoRA"
    return f"Published results favour {method}; they do not determine the model."


def _of_scaling(result: ScalingResult) -> str:
    """The run with the lowest loss at the largest budget."""
    if not result.counted:
        return "No run has given a loss."
    # Losses of different budgets say nothing about methods.
    largest = max(run.budget for run, _ in result.counted)
    of_largest = [(run, loss) for run, loss in result.counted if run.budget == largest]
    best, loss = min(of_largest, key=itemgetter(1))
    return f"At {flop(best.budget)} the least {result.loss} loss is {number(loss)}: {best.way.title}."


def reservations(result: ScalingResult) -> list[str]:
    """Reservations and further notes."""
    return [*_of_advice(result), *_of_runs(result), *result.notes]


def _of_advice(result: ScalingResult) -> Iterator[str]:
    """What a plan rests on, and what it leaves out."""
    advice = result.advice
    if advice is None:
        return
    best, other = advice.best, advice.runner_up
    if best is not None and other is not None and advice.sure is not None:
        loss = f"{number(other.loss or 0.0)} {bounds(other.held_out or other.law)}"
        yield (
            f"Runner-up: {other.way.title}, {loss}. In {share(advice.sure)} of laws fitted to resampled "
            f"runs, {best.way.kind} stays ahead."
        )
    if best is not None and best.run is not None:
        yield _held_out(result.held_out, best.run)
    if advice.beyond is not None and advice.beyond > FAR:
        yield (
            f"It takes {advice.beyond:.3g} times the largest budget of its method; laws "
            "are less reliable the further they extrapolate."
        )
    if advice.budget_seconds is not None and result.runs:
        devices = Counter(row.device for row, _ in result.counted if row.seconds > 0).most_common()
        first, *others = (name for name, _ in devices)
        excluded = f"; runs on {', '.join(others)} do not count" if others else ""
        yield (
            f"The compute of each option in {duration(advice.budget_seconds)} is taken "
            f"from its fastest run on {first}{excluded}."
        )
    if best is not None and best.flops < 0.99 * advice.budget:
        unspent = 1 - best.flops / advice.budget
        yield f"Its tokens run out: {flop(best.flops)} are spent, and {share(unspent)} of the budget is left."
    if advice.passes is not None and advice.passes >= ONCE_MORE:
        yield (
            f"Its tokens are {advice.passes:.1f} passes over the data of the runs: "
            "check for more data, or set plan.data_tokens."
        )
    if advice.seconds is not None:
        yield from _of_machine(advice, advice.seconds)
    for why, names in advice.excluded.items():
        yield f"Excluded because {why}: {'; '.join(names)}."
    unknown = [candidate.way.title for candidate in advice.candidates if candidate.memory is None]
    if advice.memory is not None and unknown:
        yield (
            "No run measured the memory of these options, so whether they "
            f"fit is unknown: {'; '.join(unknown)}."
        )
    for kind, fraction in advice.unsound.items():
        yield (
            f"{kind}: {share(fraction)} of laws fitted to resampled runs predict a "
            "negative loss there; intervals exclude them."
        )


def _of_machine(advice: Advice, seconds: float) -> Iterator[str]:
    """The time and memory measured on this machine, and the budget that fits the requested time."""
    yield (
        f"On this machine it takes about {duration(seconds)} and "
        f"{amount(advice.measured_memory)}, measured on a few steps."
    )
    if advice.budget_seconds is None:
        return
    # Time grows with FLOPs: the budget over this factor takes the requested time.
    slower = seconds / advice.budget_seconds
    if not 1 / UNLIKE < slower < UNLIKE:
        yield (
            f"That differs from the requested {duration(advice.budget_seconds)} as the "
            f"runs had another speed. Plan with a budget of {flop(advice.budget / slower)}, "
            "which this machine computes in that time."
        )


def _held_out(record: HeldOutRecord | None, run: Ends) -> str:
    """What the intervals are worth, by the budgets that were held out; the page has a table of the rest."""
    if record is None:
        return (
            "No budget could be held out, so that nothing shows how far laws miss beyond "
            "the runs: intervals cover only their fit. "
            f"With the noise about the law a single run lies within {bounds(run)}. "
            "Three budgets suffice for a check."
        )
    # The first coverage is that of all families together.
    checked = record.coverages[0]
    widened = "a fourth budget would check widened ones"
    if checked.widened is not None:
        widened = f"widened ones {checked.widened}"
    return (
        f"Of {counted(checked.runs, 'run')} at the largest budget, predicted from smaller ones, intervals of "
        f"laws at a nominal {share(CONFIDENCE)} held {checked.nominal}, {widened}; the option ranked first "
        f"was {share(checked.regret)} above the best."
    )


def _of_runs(result: ScalingResult) -> Iterator[str]:
    """Which runs do not count, and which laws are not to be trusted."""
    if result.left_out:
        name, why = next(iter(result.left_out.items()))
        few = f"{counted(len(result.left_out), 'run')} of {integer(len(result.runs))}"
        yield f"Laws exclude {few}, such as {name}: {why}. The table of runs gives each reason."
    again = [row.passes for row, _ in result.counted if row.passes >= ONCE_MORE]
    if again:
        yield (
            f"{counted(len(again), 'run')} went over the data more than once, up to "
            f"{max(again):.1f} times; laws count repeated tokens as new ones."
        )
    for record in result.kinds:
        yield from _of_law(record)


def _of_law(record: KindRecord) -> Iterator[str]:
    """Why a family and method has no law, or why its law is doubtful."""
    law = record.law
    if law is None:
        yield f"{record.kind}: no law; it needs {record.why_not}."
        return
    if law.passed_over:
        passed = " and ".join(law.passed_over)
        yield (
            f"{record.kind}: {passed} rejected despite smaller held-out errors: it "
            "predicts a loss below 0 at the options or beyond."
        )
    # Errors within the noise of single runs say nothing about the law.
    least = max(MISS_OVER_NOISE * law.noise, LEAST_MISS)
    for what, error in (("model", law.model_error), ("budget", law.budget_error)):
        if error is not None and error > least:
            yield (
                f"{record.kind}: its law misses held-out losses of the largest {what} by {share(error)} "
                "when fitted without it."
            )


def family_of(family: str | None) -> str:
    """The runs of one family, or of all."""
    return "all" if family is None else family or "models as they are"
