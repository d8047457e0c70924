"""Sentences about a scaling experiment or a plan."""

from collections import Counter
from collections.abc import Iterator
from operator import itemgetter

from adiabat.core.text import DASH, amount, counted, duration, flop, integer, share
from adiabat.report.format import number
from adiabat.results.scaling_result import Choice, Correlation, CrossingRecord, KindRecord, ScalingResult, ScalingRun

UNLIKE = 1.5
"""Maximum factor by which a machine may be faster than its runs without a note."""

ONCE_MORE = 1.05
"""Number of passes over the data from which a note mentions them; smaller values would be rounded to 1.0."""

INFINITE = "\N{INFINITY}"

FAR = 4.0
"""Maximum factor of extrapolation beyond the largest budget without a warning."""


def bounds(ends: tuple[float, float] | None, *, digits: int = 4) -> str:
    """An interval.

    Args:
        ends: Its ends; None for no interval.
    """
    return "" if ends is None else f"[{number(ends[0], digits=digits)}, {number(ends[1], digits=digits)}]"


def _best_run(result: ScalingResult) -> tuple[ScalingRun, float] | None:
    """The run with the lowest loss at the largest budget, and that loss.

    Returns:
        None if no run counts.
    """
    largest = max((row.budget for row, _ in result.counted), default=0.0)
    return min((run for run in result.counted if run[0].budget == largest), key=itemgetter(1), default=None)


def headline(result: ScalingResult) -> str:
    """The headline."""
    advice = result.advice
    if advice is None:
        return _of_scaling(result)
    if advice.best is None:
        if advice.scarce:
            return "Published results favour full training of the largest model that memory allows, because tokens are scarce."
        method = advice.candidates[0].way.method
        return f"Published results favour {'full training' if method == 'full' else 'LoRA'}; they do not determine the model."
    best = advice.best
    loss = "" if best.loss is None else f": {result.loss} loss {number(best.loss)} {bounds(best.law)}"
    return f"Train {best.way.title} on {best.tokens:.3g} tokens{loss}."


def _of_scaling(result: ScalingResult) -> str:
    best_run = _best_run(result)
    if best_run is None:
        return "No run has given a loss."
    best, loss = best_run
    return f"At {flop(best.budget)} the least {result.loss} loss is {number(loss)}: {best.way.title}."


def reservations(result: ScalingResult) -> list[str]:
    """Reservations and further notes."""
    return [*_of_advice(result), *_of_runs(result), *result.notes]


def _of_advice(result: ScalingResult) -> Iterator[str]:
    advice = result.advice
    if advice is None:
        return
    best, other = advice.best, advice.runner_up
    if best is not None and other is not None and advice.sure is not None:
        yield (
            f"Runner-up: {other.way.title}, {number(other.loss or 0.0)} {bounds(other.law)}. In {share(advice.sure)} of laws "
            f"fitted to resampled runs, {best.way.kind} stays ahead."
        )
    if best is not None and best.run is not None:
        yield f"A single run is expected within {bounds(best.run)}."
    if advice.beyond is not None and advice.beyond > FAR:
        yield f"It takes {advice.beyond:.3g} times the largest budget of the runs; laws are less reliable the further they extrapolate."
    if advice.budget_seconds is not None:
        devices = Counter(row.device for row, _ in result.counted if row.seconds > 0).most_common()
        others = f"; runs on {', '.join(name for name, _ in devices[1:])} do not count" if devices[1:] else ""
        yield f"The compute of each option in {duration(advice.budget_seconds)} is taken from its fastest run on {devices[0][0]}{others}."
    if best is not None and best.flops < 0.99 * advice.budget:
        unspent = 1 - best.flops / advice.budget
        yield f"Its tokens run out: {flop(best.flops)} are spent, and {share(unspent)} of the budget is left."
    if advice.passes is not None and advice.passes >= ONCE_MORE:
        yield f"Its tokens are {advice.passes:.1f} passes over the data of the runs: check for more data, or set --data-tokens."
    if advice.seconds is not None:
        yield f"On this machine it takes about {duration(advice.seconds)} and {amount(advice.measured_memory)}, measured on a few steps."
        if advice.budget_seconds is not None and not 1 / UNLIKE < advice.seconds / advice.budget_seconds < UNLIKE:
            yield (
                f"That differs from the requested {duration(advice.budget_seconds)} because the runs had another speed. Plan with --budget "
                f"{advice.budget * advice.budget_seconds / advice.seconds:.3g}, which this machine computes in that time."
            )
    for why, names in advice.excluded.items():
        yield f"Excluded because {why}: {'; '.join(names)}."
    unknown = [candidate.way.title for candidate in advice.candidates if candidate.memory is None]
    if advice.memory is not None and unknown:
        yield f"No run measured the memory of these options, so whether they fit is unknown: {'; '.join(unknown)}."
    for kind, fraction in advice.unsound.items():
        yield f"{kind}: {share(fraction)} of laws fitted to resampled runs predict a negative loss there; intervals exclude them."


def _of_runs(result: ScalingResult) -> Iterator[str]:
    if result.left_out:
        name, why = next(iter(result.left_out.items()))
        few = f"{counted(len(result.left_out), 'run')} of {integer(len(result.runs))}"
        yield f"Laws exclude {few}, such as {name}: {why}. The table of runs gives each reason."
    again = [row.passes for row, _ in result.counted if row.passes >= ONCE_MORE]
    if again:
        peak = max(again)
        yield (
            f"{counted(len(again), 'run')} went over the data more than once, up to {peak:.1f} times; laws count repeated tokens "
            "as new ones."
        )
    for record in result.kinds:
        if record.law is None:
            yield f"{record.kind}: no law; it needs {record.why_not}."
            continue
        law = record.law
        if law.passed_over:
            passed = " and ".join(law.passed_over)
            yield f"{record.kind}: {passed} rejected despite smaller held-out errors: it predicts a loss below 0 at the options or beyond."
        missed = {f"the largest {what}": error for what, error in (("model", law.model_error), ("budget", law.budget_error))}
        large = {what: error for what, error in missed.items() if error is not None and error > max(3 * law.noise, 0.03)}
        if large:
            misses = "; ".join(f"by {share(error)} on {what} when fitted without it" for what, error in large.items())
            yield f"{record.kind}: its law mispredicts held-out losses: {misses}."


def errors(record: KindRecord) -> list[str]:
    """Error of a law on held-out runs."""
    law_errors = (None, None) if record.law is None else (record.law.model_error, record.law.budget_error)
    return [DASH if error is None else share(error) for error in law_errors]


def family_of(correlation: Correlation) -> str:
    """The runs of a correlation, in words."""
    return "all" if correlation.family is None else correlation.family or "models as they are"


def crossing_cells(record: CrossingRecord) -> list[str]:
    """A crossing of two methods, as a row of a table."""
    crossing = record.found
    agree = DASH if crossing.agree is None else share(crossing.agree)
    within = (
        DASH if crossing.interval is None else "[{}, {}]".format(*(INFINITE if end is None else f"{end:.2g}" for end in crossing.interval))
    )
    return [record.family, record.before, record.after, f"{crossing.budget:.2g}", within, agree]


def law_facts(record: KindRecord) -> list[tuple[str, str]]:
    """Coefficients of a law with their intervals."""
    assert record.law is not None
    return [
        (coefficient.name, f"{coefficient.value:.3g} [{coefficient.low:.3g}, {coefficient.high:.3g}]")
        for coefficient in record.law.coefficients
    ]


def choice_cells(choice: Choice) -> list[str]:
    """An option as a row of a table."""
    loss = "" if choice.loss is None else number(choice.loss)
    numbers = [f"{choice.option.size / 1e6:.3g} M", f"{choice.tokens:.3g}", f"{choice.flops:.3g}"]
    return [choice.way.title, *numbers, loss, bounds(choice.law), bounds(choice.run), amount(choice.memory)]


CHOICE_HEAD = ("option", "size", "tokens", "FLOP", "loss", "of the law", "of one run", "memory")
