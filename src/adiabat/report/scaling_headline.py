"""Sentences about a scaling experiment or a plan."""

import math
from collections import Counter
from collections.abc import Iterator
from operator import itemgetter

from adiabat.core.text import DASH, amount, counted, duration, flop, integer, share
from adiabat.report.format import number
from adiabat.results.scaling_result import (
    Choice,
    CrossingRecord,
    HeldOutRecord,
    KindRecord,
    ScalingResult,
    ScalingRun,
)
from adiabat.scaling_laws.fitting import CONFIDENCE

UNLIKE = 1.5
"""Maximum factor by which a machine may be faster than its runs without a note."""

ONCE_MORE = 1.05
"""Number of passes over the data from which a note mentions them; smaller values would be rounded to 1.0."""

INFINITE = "\N{INFINITY}"

LEAST_REGRET = 5e-4
"""Share above the least loss from which an option counts as worse; smaller ones would be rounded to 0."""

MISS_OVER_NOISE, LEAST_MISS = 3, 0.03
"""Error on held-out runs from which a law misses: in noises of a single run, and at least as a share."""

FAR = 4.0
"""Maximum factor of extrapolation beyond the largest budget without a warning."""


def bounds(ends: tuple[float, float] | None, *, digits: int = 4) -> str:
    """An interval.

    Args:
        ends: Its ends; None for no interval.
    """
    return "" if ends is None else f"[{number(ends[0], digits=digits)}, {number(ends[1], digits=digits)}]"


def _best_run(result: ScalingResult) -> tuple[ScalingRun, float] | None:
    """The run with the lowest loss at the largest budget, and that loss; None if no run counts."""
    if not result.counted:
        return None
    largest = max(run.budget for run, _ in result.counted)
    of_largest = [(run, loss) for run, loss in result.counted if run.budget == largest]
    return min(of_largest, key=itemgetter(1))


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
        within = bounds(other.held_out or other.law)
        yield (
            f"Runner-up: {other.way.title}, {number(other.loss or 0.0)} {within}. "
            f"In {share(advice.sure)} of laws "
            f"fitted to resampled runs, {best.way.kind} stays ahead."
        )
    if best is not None and best.line is not None:
        yield (
            "The straight line through its own losses (logarithms) gives "
            f"{number(best.line)} {bounds(best.line_held_out)}."
        )
    if best is not None and best.run is not None:
        yield from _of_held_out(result.held_out, best.run)
    if advice.beyond is not None and advice.beyond > FAR:
        yield (
            f"It takes {advice.beyond:.3g} times the largest budget of its method; laws "
            "are less reliable the further they extrapolate."
        )
    if advice.budget_seconds is not None and result.runs:
        devices = Counter(row.device for row, _ in result.counted if row.seconds > 0).most_common()
        others = f"; runs on {', '.join(name for name, _ in devices[1:])} do not count" if devices[1:] else ""
        yield (
            f"The compute of each option in {duration(advice.budget_seconds)} is taken "
            f"from its fastest run on {devices[0][0]}{others}."
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
        yield (
            f"On this machine it takes about {duration(advice.seconds)} and "
            f"{amount(advice.measured_memory)}, measured on a few steps."
        )
        if (
            advice.budget_seconds is not None
            and not 1 / UNLIKE < advice.seconds / advice.budget_seconds < UNLIKE
        ):
            yield (
                f"That differs from the requested {duration(advice.budget_seconds)} as the "
                "runs had another speed. Plan with a budget of "
                f"{flop(advice.budget * advice.budget_seconds / advice.seconds)}, "
                "which this machine computes in that time."
            )
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


def _of_held_out(record: HeldOutRecord | None, run: tuple[float, float]) -> Iterator[str]:
    """What the intervals are worth, by the budgets that were held out."""
    if record is None:
        yield (
            "No budget could be held out, so that nothing shows how far laws miss beyond "
            "the runs: intervals cover only their fit. "
            f"With the noise about the law a single run lies within {bounds(run)}. "
            "Three budgets suffice for a check."
        )
        return
    every = record.coverages[0]
    checked = f"Of {counted(every.runs, 'run')} at the largest budget, predicted from smaller ones,"
    nominal = (
        f"intervals of laws at a nominal {share(CONFIDENCE)} held {every.nominal} "
        f"({share(every.nominal / every.runs)})"
    )
    if every.widened is None:
        yield (
            f"{checked} {nominal}. Intervals are widened until they hold such "
            "losses; a fourth budget would check that."
        )
    else:
        line = "" if every.line is None else f", those of straight lines {every.line} of {every.lines}"
        yield (
            f"{checked} {nominal}, widened ones {every.widened} ({share(every.widened / every.runs)}){line}."
        )
    lines = "" if every.line_error is None else f", straight lines by {share(math.expm1(every.line_error))}"
    best = "the best" if every.regret < LEAST_REGRET else f"{share(every.regret)} above the best"
    yield (
        f"There laws missed by {share(math.expm1(every.law_error))} on average{lines}; "
        f"the option that they ranked first was {best}."
    )
    for width in record.widths:
        if width.level < CONFIDENCE:
            few = counted(width.scores, "held-out run")
            yield (
                f"{width.family or 'All models'}: {few} cannot show more than {share(width.level)}, "
                "which is the level of its intervals."
            )


def _of_runs(result: ScalingResult) -> Iterator[str]:
    if result.left_out:
        name, why = next(iter(result.left_out.items()))
        few = f"{counted(len(result.left_out), 'run')} of {integer(len(result.runs))}"
        yield f"Laws exclude {few}, such as {name}: {why}. The table of runs gives each reason."
    again = [row.passes for row, _ in result.counted if row.passes >= ONCE_MORE]
    if again:
        peak = max(again)
        yield (
            f"{counted(len(again), 'run')} went over the data more than once, up to "
            f"{peak:.1f} times; laws count repeated tokens "
            "as new ones."
        )
    for record in result.kinds:
        if record.law is None:
            yield f"{record.kind}: no law; it needs {record.why_not}."
            continue
        law = record.law
        if law.passed_over:
            passed = " and ".join(law.passed_over)
            yield (
                f"{record.kind}: {passed} rejected despite smaller held-out errors: it "
                "predicts a loss below 0 at the options or beyond."
            )
        misses = []
        for what, error in (("model", law.model_error), ("budget", law.budget_error)):
            if error is not None and error > max(MISS_OVER_NOISE * law.noise, LEAST_MISS):
                misses.append(f"by {share(error)} on the largest {what} when fitted without it")
        if misses:
            yield f"{record.kind}: its law mispredicts held-out losses: {'; '.join(misses)}."


def errors(record: KindRecord) -> list[str | None]:
    """Errors of a law on the held-out runs of the largest model and of the largest budget."""
    if record.law is None:
        return [None, None]
    return [
        None if error is None else share(error) for error in (record.law.model_error, record.law.budget_error)
    ]


def family_of(family: str | None) -> str:
    """The runs of one family, or of all."""
    return "all" if family is None else family or "models as they are"


def crossing_cells(record: CrossingRecord) -> list[str]:
    """A crossing of two methods, as a row of a table."""
    crossing = record.found
    agree = DASH if crossing.agree is None else share(crossing.agree)
    interval = DASH
    if crossing.interval is not None:
        low, high = (INFINITE if end is None else f"{end:.2g}" for end in crossing.interval)
        interval = f"[{low}, {high}]"
    return [record.family, record.before, record.after, f"{crossing.budget:.2g}", interval, agree]


def choice_cells(choice: Choice) -> list[str]:
    """An option as a row of a table."""
    loss = "" if choice.loss is None else number(choice.loss)
    numbers = [f"{choice.option.size / 1e6:.3g} M", f"{choice.tokens:.3g}", f"{choice.flops:.3g}"]
    line = "" if choice.line is None else number(choice.line)
    intervals = [bounds(choice.held_out), bounds(choice.law), line, bounds(choice.line_held_out)]
    return [choice.way.title, *numbers, loss, *intervals, amount(choice.memory)]


LAW_ALONE, LINE_INTERVAL = "95 %, law alone", "line, held out"


def choice_heads(record: HeldOutRecord | None) -> tuple[str, ...]:
    """Heads of the table of options; few held-out losses show a lower level than 95 %."""
    levels = [width.level for width in record.widths] if record else []
    least = share(min(levels, default=CONFIDENCE))
    if len({share(level) for level in levels}) > 1:
        least = f"at least {least}"
    held_out = f"{least}, held out"
    numbers = ("size", "tokens", "FLOP", "loss")
    return ("option", *numbers, held_out, LAW_ALONE, "straight line", LINE_INTERVAL, "memory")
