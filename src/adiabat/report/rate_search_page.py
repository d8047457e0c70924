"""The page of a search for the largest safe rate, made from its record alone; see `templates` for what a page may hold."""

from typing import Any

from adiabat.report import rate_search_plots as plots
from adiabat.report import rate_search_wording as words
from adiabat.report import wording
from adiabat.report.page_templates import given, picture, template
from adiabat.report.rate_search_table import measures_of, ordered
from adiabat.results.rate_search_result import Rung, SafeRate


def render_safe_rate(result: SafeRate) -> str:
    """The page of a search."""
    measures = measures_of(result)
    return template("rate_search_page.html.j2").render(
        result=result,
        command=result.command,
        headline=words.headline(result),
        tone=words.tone(result),
        reservations=words.reservations(result),
        about=_about(result),
        measures=[_measure(result, name) for name in measures],
        figures=[{"svg": picture(plots.inlined(one, result)), "title": one.title, "caption": one.caption} for one in plots.pictures()],
        names=measures,
        rungs=[_rung(result, rung, measures) for rung in ordered(result)],
        seeds=_seeds(result),
        facts=_facts(result),
        given=given(("inputs", "Inputs", result.inputs), ("settings", "Settings", result.settings)),
        versions=sorted(result.versions.items()),
    )


def _about(result: SafeRate) -> list[tuple[str, str]]:
    ladder = " to ".join(wording.setting(rate) for rate in dict.fromkeys([min(result.rates), max(result.rates)]))
    return [
        ("tuned from", result.model),
        ("ladder", f"{wording.counted(len(result.rates), 'rate')}, {ladder}"),
        ("probes", wording.counted(result.probes, "text")),
    ]


def _measure(result: SafeRate, name: str) -> dict[str, Any]:
    at_end = [value for rung in words.safe_runs(result) if (value := words.last(rung, name)) is not None]
    return {
        "name": name,
        "limited": name == result.measure,
        "meaning": words.MEANINGS.get(name, ""),
        "noise": _value(result.noise.get(name)),
        "safe": words.drift_range(at_end),
    }


def _value(drift: float | None) -> str:
    return wording.DASH if drift is None else words.drift_value(drift)


def _rung(result: SafeRate, rung: Rung, measures: list[str]) -> dict[str, Any]:
    how = words.ended(result, rung)
    looks = f"{wording.integer(rung.steps[-1])}, {wording.counted(len(rung.steps), 'look')}" if rung.steps else "no look"
    return {
        "rate": wording.setting(rung.rate),
        "safe": rung.rate == result.rate,
        "seed": str(rung.seed),
        "looks": looks,
        "drift": [_value(words.last(rung, name)) for name in measures],
        "how": how,
        "ending": words.ending(result, rung),
        "time": wording.duration(rung.seconds),
        "reason": rung.reason if how == "diverged" else "",
    }


def _seeds(result: SafeRate) -> list[dict[str, str]]:
    """Rates of which there are several runs."""
    runs: dict[float, list[Rung]] = {}
    for rung in ordered(result):
        runs.setdefault(rung.rate, []).append(rung)
    return [_spread(result, rate, of) for rate, of in runs.items() if len(of) > 1]


def _spread(result: SafeRate, rate: float, runs: list[Rung]) -> dict[str, str]:
    found = [(rung, words.last(rung, result.measure)) for rung in runs]
    return {
        "rate": wording.setting(rate),
        "each": ", ".join(f"{_value(value)} (seed {rung.seed})" for rung, value in found),
        "range": words.drift_range([value for _, value in found if value is not None]),
        "inside": f"{sum(rung.left_at is None for rung in runs)} of {len(runs)}",
    }


def _facts(result: SafeRate) -> list[tuple[str, str]]:
    facts = [
        ("made", result.created),
        ("largest safe rate", "none" if result.rate is None else repr(result.rate)),
        ("measure that is limited", result.measure),
        ("limit", repr(result.limit)),
        ("steps wanted", wording.integer(result.steps)),
        ("first seed", str(result.seed)),
        ("time of all runs", wording.duration(result.seconds)),
        ("devices", ", ".join(dict.fromkeys(rung.device for rung in result.rungs if rung.device))),
    ]
    return [fact for fact in facts if fact[1]]
