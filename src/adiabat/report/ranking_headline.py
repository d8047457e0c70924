"""The ranking of a sweep's variants in sentences and cells, which say no more than its intervals allow."""

from adiabat.core.text import DASH, MINUS, NO_BREAK, counted
from adiabat.report.format import VERDICT_MARKS, decimals_for, interval, listed, named, signed
from adiabat.report.page import Tone
from adiabat.results.sweep_result import Contrast, Level, Ranking, Speed, Standing, Start


def headline(found: Ranking) -> str:
    """Who is ahead, and of whom that is known."""
    first, *others = found.standings
    worse = [one.name for one in others if one.to_best is not None and one.to_best.verdict == "worse"]
    even = [one.name for one in others if one.name not in worse]
    seeds = f"mean of {counted(len(found.seeds), 'seed')}" if len(found.seeds) > 1 else "one seed"
    on = f"on {counted(len(found.tasks), 'task')}"
    head = f"{named(first.name)} is {'best' if not even else 'ahead'}: {found.measure} {level(first.overall)}, {seeds} {on}"
    parts = [head]
    if worse:
        parts.append(f"measurably above {'all others' if not even and worse[1:] else listed([*map(named, worse)])}")
    if even:
        parts.append(f"no evidence of a difference to {listed([*map(named, even)])}")
    return "; ".join(parts) + "."


def tone(found: Ranking) -> Tone:
    """Whether one variant is above all others."""
    alone = all(one.to_best is None or one.to_best.verdict == "worse" for one in found.standings)
    return "good" if alone and len(found.seeds) > 1 and found.standings[0].gain.verdict == "better" else "plain"


def reservations(found: Ranking) -> list[str]:
    """What the head line leaves out and an honest reader should know."""
    return [sentence for sentence in (_about_starts(found), _about_runs(found), _about_tasks(found), *found.notes) if sentence]


def _about_starts(found: Ranking) -> str:
    """Variants that training made worse are no good choice, however they rank."""
    below = [one.name for one in found.standings if one.gain.verdict == "worse"]
    above = [one.name for one in found.standings if one.gain.verdict == "better"]
    if below:
        return f"Training made {listed([*map(named, below)])} worse than the untrained start."
    if not above:
        return "No variant is measurably better than its untrained start."
    return ""


def _about_runs(found: Ranking) -> str:
    if found.run_deviation is None:
        return (
            "Every variant was trained once, so that intervals hold what differs from query to query, not from run to run: "
            "with other seeds the order may be another. List several in sweep.seeds."
        )
    return (
        f"Runs of one variant differ by {difference_size(found.run_deviation)} in standard deviation, all variants taken together; "
        "that is in every interval."
    )


def _about_tasks(found: Ranking) -> str:
    if len(found.tasks) == 1:
        return f"All of this is about one task, {named(found.tasks[0].name)}; another may rank otherwise."
    return f"All of this is about these {len(found.tasks)} tasks, which count equally; others may rank otherwise."


def level(one: Level, *, decimals: int = 3) -> str:
    """A score with its interval."""
    return f"{one.score:.{decimals}f} {level_interval(one, decimals=decimals)}".replace("-", MINUS)


def level_interval(one: Level, *, decimals: int = 3) -> str:
    """The interval of a score."""
    low, high = one.interval
    return f"[{low:.{decimals}f},{NO_BREAK}{high:.{decimals}f}]".replace("-", MINUS)


def contrast(one: Contrast | None, *, decimals: int = 3) -> str:
    """A difference with its interval, with as many digits as keep an end of it from looking like zero.

    Args:
        one: The difference; None for the best, which differs from nothing.
    """
    if one is None:
        return DASH
    shown = decimals_for([one.difference, *one.interval], least=decimals, most=6)
    return f"{signed(one.difference, decimals=shown)} {interval(one.interval, decimals=shown)}"


def difference_size(value: float) -> str:
    """A distance between scores."""
    return f"{value:.{decimals_for([value], least=3, most=6)}f}"


def verdict(one: Standing, found: Ranking) -> str:
    """What may be said of a variant beside the first."""
    if one.to_best is None:
        return "best" if all(other.to_best is None or other.to_best.verdict == "worse" for other in found.standings) else "ahead"
    return f"{VERDICT_MARKS[one.to_best.verdict]}{NO_BREAK}{one.to_best.verdict.replace(' ', NO_BREAK)}"


def start_name(start: Start) -> str:
    """What an untrained model is called beside the variants."""
    return f"{named(start.case or start.model)}, untrained"


def rate(speed: Speed | None) -> str:
    """How fast texts are encoded.

    Args:
        speed: None where it was not measured.

    Returns:
        For instance ``1,204``, texts per second.
    """
    return DASH if speed is None else _per_second(speed.texts_per_second)


def rate_range(speed: Speed | None) -> str:
    """The slowest and the fastest round.

    Args:
        speed: None where it was not measured.
    """
    return "" if speed is None else f"{_per_second(speed.slowest)}{DASH}{_per_second(speed.fastest)}"


def _per_second(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def step_time(seconds: float | None) -> str:
    """Time of an optimiser step.

    Args:
        seconds: None where it was not measured.
    """
    if seconds is None:
        return DASH
    return f"{seconds:.2f}{NO_BREAK}s" if seconds >= 0.995 else f"{1000 * seconds:.3g}{NO_BREAK}ms"
