"""Small rankings for the tests of the report room."""

from collections.abc import Sequence

from adiabat.results.evaluation_result import Verdict
from adiabat.results.ranking_result import Contrast, Level, RankedTask, Ranking, Speed, Standing, Start


def make_level(score: float, half_width: float = 0.02) -> Level:
    return Level(score, (score - half_width, score + half_width))


def make_contrast(difference: float, half_width: float) -> Contrast:
    low, high = difference - half_width, difference + half_width
    verdict: Verdict = "better" if low > 0 else "worse" if high < 0 else "undecided"
    return Contrast(difference, (low, high), verdict)


def make_standing(
    name: str,
    score: float,
    *,
    best: float,
    half_width: float = 0.02,
    tasks: int = 2,
    speed: float | None = None,
) -> Standing:
    return Standing(
        name=name,
        trained_on=f"{name}.jsonl",
        model="start",
        overall=make_level(score),
        best_share=0.9 if score == best else 0.1,
        to_best=None if score == best else make_contrast(score - best, half_width),
        gain=make_contrast(score - 0.5, half_width),
        runs=[score - 0.01, score + 0.01],
        tasks=[make_level(score + place / 100) for place in range(tasks)],
        measures={"nDCG@10": score, "RR": score + 0.05},
        parameters=22_713_216,
        trained=22_565_376,
        steps=2000,
        passes=1.25,
        pairs=409_600,
        step_seconds=0.084,
        speed=None if speed is None else Speed(speed, speed * 0.9, speed * 1.05, 512, 5),
    )


def make_ranking(
    scores: dict[str, float],
    *,
    models: bool = False,
    seeds: Sequence[int] = (0, 1),
    tasks: Sequence[str] = ("first", "second"),
    half_width: float = 0.02,
    measure: str = "nDCG@10",
    speeds: Sequence[float] = (),
) -> Ranking:
    """Variants by score; `half_width` is that of every difference, and starts stand at 0.5."""
    order = sorted(scores, key=lambda name: -scores[name])
    rates = dict(zip(order, speeds, strict=True)) if speeds else dict.fromkeys(order)
    best = scores[order[0]]
    at_half = make_level(0.5), [make_level(0.5)] * len(tasks), {"nDCG@10": 0.5, "RR": 0.55}, 22_713_216
    starts = [Start("start", "", *at_half), *([Start("second start", "second", *at_half)] if models else [])]
    standings = [
        make_standing(
            name, scores[name], best=best, half_width=half_width, tasks=len(tasks), speed=rates[name]
        )
        for name in order
    ]
    return Ranking(
        measure=measure,
        seeds=list(seeds),
        tasks=[RankedTask(name, "ranking", 300, 5183, ("a note",)) for name in tasks],
        standings=standings,
        starts=starts,
        run_deviation=None if len(seeds) == 1 else 0.0042,
        resamples=10_000,
    )
