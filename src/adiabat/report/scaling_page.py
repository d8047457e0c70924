"""The page of a scaling experiment, or of a plan, made from its record alone; see `templates` for what a page may hold."""

from typing import Any

from adiabat.report import format as wording
from adiabat.report import scaling_plots as plots
from adiabat.report import scaling_wording as words
from adiabat.report.page_templates import given, picture, template
from adiabat.report.scaling_curves import pictures
from adiabat.results.scaling_result import KindRecord, LineRecord, ScalingResult, ScalingRun
from adiabat.scaling_laws.frontier import NEAR

MOST_CANDIDATES = 15
"""Options that the table of a plan shows."""


def render_scaling(result: ScalingResult) -> str:
    """The page of a scaling experiment, or of a plan."""
    advice = result.advice
    return template("scaling_page.html.j2").render(
        result=result,
        verb="scaling" if advice is None else "plan",
        command=result.command,
        headline=words.headline(result),
        reservations=words.reservations(result),
        about=_about(result),
        reasons=[] if advice is None else advice.reasons,
        head=words.CHOICE_HEAD,
        candidates=[] if advice is None else [words.choice_cells(one) for one in advice.candidates[:MOST_CANDIDATES]],
        unshown=0 if advice is None else max(0, len(advice.candidates) - MOST_CANDIDATES),
        additions=_additions(result),
        figures=[{"svg": picture(plots.inlined(one)), "title": one.title, "caption": one.caption} for one in pictures(result)],
        laws=[_law(one) for one in result.kinds],
        reach=f"{NEAR:g}",
        crossings=[words.crossing_cells(one) for one in result.crossings],
        correlations=[_correlation(result, place) for place in range(len(result.downstream))],
        runs=[_run(result, row) for row in result.runs],
        facts=_facts(result),
        given=given(("inputs", "Inputs", result.inputs), ("settings", "Settings", result.settings)),
        versions=sorted(result.versions.items()),
    )


def _about(result: ScalingResult) -> list[tuple[str, str]]:
    budgets = sorted({row.budget for row in result.runs})
    spent = sum(row.flops for row in result.runs)
    facts = [
        ("runs", f"{wording.integer(len(result.runs))}, {words.flop(spent)} in all" if result.runs else ""),
        ("models", ", ".join(dict.fromkeys(row.way.name for row in result.runs))),
        ("budgets", ", ".join(f"{one:.3g}" for one in budgets)),
    ]
    return [fact for fact in facts if fact[1]]


def _additions(result: ScalingResult) -> list[dict[str, str]]:
    additions = [] if result.advice is None else result.advice.additions
    return [{"run": one.run, "budget": words.flop(one.budget), "seed": str(one.seed), "gain": wording.share(one.gain)} for one in additions]


def _law(one: KindRecord) -> dict[str, Any]:
    law = one.law
    frontier = one.frontier
    return {
        "kind": str(one.kind),
        "runs": wording.integer(one.runs),
        "formula": law.formula if law else "",
        "coefficients": words.law_facts(one) if law else [],
        "noise": wording.share(law.noise) if law else wording.DASH,
        "errors": words.errors(one),
        "open": law.left_open if law else [f"no law: it lacks {one.why_not}"],
        "frontier": f"{frontier.slope:.3f} ln C {frontier.intercept:+.2f}" if frontier else wording.DASH,
        "slope": _slope(frontier),
        "sizes": f"C^{one.sizes.slope:.2f}" if one.sizes else wording.DASH,
        "growth": _slope(one.sizes),
    }


def _slope(line: LineRecord | None) -> str:
    """The interval of its slope."""
    return words.bounds((line.low[0], line.high[0]), digits=3) if line and line.low and line.high else ""


def _correlation(result: ScalingResult, place: int) -> dict[str, str]:
    one = result.downstream[place]
    value = wording.DASH if one.value is None else wording.signed(one.value, decimals=3)
    found = {"runs": wording.integer(one.runs), "value": value, "interval": words.bounds(one.interval, digits=3)}
    return {"task": one.task, "family": words.family_of(one), **found}


def _run(result: ScalingResult, row: ScalingRun) -> dict[str, Any]:
    loss, other = (row.validation_loss, row.loss) if result.loss == "validation" else (row.loss, row.validation_loss)
    return {
        "name": row.way.title,
        "budget": f"{row.budget:.3g}",
        "seed": str(row.seed),
        "why": result.left_out.get(row.name, ""),
        "steps": wording.integer(row.steps),
        "tokens": f"{row.tokens:.3g}",
        "loss": wording.DASH if loss is None else wording.number(loss),
        "other": wording.DASH if other is None else wording.number(other),
        "rate": wording.setting(row.learning_rate),
        "time": wording.duration(row.seconds),
        "memory": wording.amount(row.memory) or wording.DASH,
    }


def _facts(result: ScalingResult) -> list[tuple[str, str]]:
    facts = [
        ("made", result.created),
        ("seed of the draws", str(result.seed)),
        ("runs drawn again", wording.integer(result.resamples)),
        ("time of all runs", wording.duration(result.seconds)),
        ("devices", ", ".join(dict.fromkeys(row.device for row in result.runs if row.device))),
    ]
    return [fact for fact in facts if fact[1]]
