"""The ranking of a sweep's variants in sentences and cells, which say no more than its intervals allow."""

from adiabat.core.text import DASH, MINUS, NO_BREAK, counted
from adiabat.report.format import bounds, decimals_for, joined, listed, marked, named, signed_pair
from adiabat.report.page import Tone
from adiabat.results.ranking_result import Contrast, Level, Ranking, Speed, Standing, Start


def headline(ranking: Ranking) -> str:
    """Who is ahead, and of whom that is known."""
    first, *others = ranking.standings
    worse = [standing.name for standing in others if standing.to_best is not None and standing.to_best.verdict == "worse"]
    even = [standing.name for standing in others if standing.name not in worse]
    seeds = f"mean of {counted(len(ranking.seeds), 'seed')}" if len(ranking.seeds) > 1 else "one seed"
    on = f"on {counted(len(ranking.tasks), 'task')}"
    head = f"{named(first.name)} is {'best' if not even else 'ahead'}: {ranking.measure} {level(first.overall)}, {seeds} {on}"
    clauses = [head]
    if worse:
        clauses.append(f"measurably above {'all others' if not even and worse[1:] else listed([*map(named, worse)])}")
    if even:
        clauses.append(f"no evidence of a difference to {listed([*map(named, even)])}")
    return "; ".join(clauses) + "."


def tone(ranking: Ranking) -> Tone:
    """Whether one variant is above all others."""
    alone = all(standing.to_best is None or standing.to_best.verdict == "worse" for standing in ranking.standings)
    return "good" if alone and len(ranking.seeds) > 1 and ranking.standings[0].gain.verdict == "better" else "plain"


def reservations(ranking: Ranking) -> list[str]:
    """What the head line leaves out and an honest reader should know."""
    return [sentence for sentence in (_about_starts(ranking), _about_runs(ranking), _about_tasks(ranking), *ranking.notes) if sentence]


def _about_starts(ranking: Ranking) -> str:
    """Variants that training made worse are no good choice, however they rank."""
    below = [standing.name for standing in ranking.standings if standing.gain.verdict == "worse"]
    above = [standing.name for standing in ranking.standings if standing.gain.verdict == "better"]
    if below:
        return f"Training made {listed([*map(named, below)])} worse than the untrained start."
    if not above:
        return "No variant is measurably better than its untrained start."
    return ""


def _about_runs(ranking: Ranking) -> str:
    if ranking.run_deviation is None:
        return (
            "Every variant was trained once, so that intervals hold what differs from query to query, not from run to run: "
            "with other seeds the order may be another. List several in sweep.seeds."
        )
    return (
        f"Runs of one variant differ by {difference_size(ranking.run_deviation)} in standard deviation, all variants taken together; "
        "that is in every interval."
    )


def _about_tasks(ranking: Ranking) -> str:
    if len(ranking.tasks) == 1:
        return f"All of this is about one task, {named(ranking.tasks[0].name)}; another may rank otherwise."
    return f"All of this is about these {len(ranking.tasks)} tasks, which count equally; others may rank otherwise."


def level(score: Level, *, decimals: int = 3) -> str:
    """A score with its interval."""
    return f"{score.score:.{decimals}f} {level_interval(score, decimals=decimals)}".replace("-", MINUS)


def level_interval(score: Level, *, decimals: int = 3) -> str:
    """The interval of a score."""
    return bounds(score.interval, f"{{:.{decimals}f}}".format).replace("-", MINUS)


def contrast(difference: Contrast | None, *, decimals: int = 3) -> str:
    """A difference with its interval, with as many digits as keep an end of it from looking like zero; a dash for the best."""
    return DASH if difference is None else joined(*signed_pair(difference.difference, difference.interval, least=decimals, most=6))


def difference_size(value: float) -> str:
    """A distance between scores."""
    return f"{value:.{decimals_for([value], least=3, most=6)}f}"


def verdict(standing: Standing, ranking: Ranking) -> str:
    """What may be said of a variant beside the first."""
    if standing.to_best is None:
        return "best" if all(other.to_best is None or other.to_best.verdict == "worse" for other in ranking.standings) else "ahead"
    return marked(standing.to_best.verdict)


def start_name(start: Start) -> str:
    """What an untrained model is called beside the variants."""
    return f"{named(start.case or start.model)}, untrained"


def rate(speed: Speed | None) -> str:
    """Texts encoded per second, such as ``1,204``."""
    return DASH if speed is None else _per_second(speed.texts_per_second)


def rate_range(speed: Speed | None) -> str:
    """Texts per second in the slowest and the fastest round."""
    return "" if speed is None else f"{_per_second(speed.slowest)}{DASH}{_per_second(speed.fastest)}"


def _per_second(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def step_time(seconds: float | None) -> str:
    """Time of an optimiser step."""
    if seconds is None:
        return DASH
    return f"{seconds:.2f}{NO_BREAK}s" if seconds >= 0.995 else f"{1000 * seconds:.3g}{NO_BREAK}ms"
