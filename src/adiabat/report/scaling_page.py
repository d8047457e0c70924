"""The page of a scaling experiment or a plan, with its figures, ``train.toml`` and terminal tables."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import tomli_w

from adiabat.core.text import amount, cut, duration, flop, integer, printable, share
from adiabat.report import scaling_headline as words
from adiabat.report.format import if_known, number, setting, signed
from adiabat.report.pages import Files, Group, Page, Sections, figure, group
from adiabat.report.scaling_figures import charts
from adiabat.report.tables import Cell, ColumnKind, Content, Contents, Section, Table
from adiabat.results.scaling_result import (
    Advice,
    CrossingRecord,
    HeldOutRecord,
    KindRecord,
    LawRecord,
    LineRecord,
    ScalingResult,
)
from adiabat.scaling_laws.fitting import CONFIDENCE
from adiabat.scaling_laws.frontier import NEAR

MOST_CANDIDATES = 15
"""Number of options in the table of a plan."""

MOST_ROWS = 8
"""Number of options in the terminal."""

INFINITE = "\N{INFINITY}"

LAW_ALONE, LINE_INTERVAL = "95 %, law alone", "line, held out"

NOT_SHOWN = ("size", "FLOP", LAW_ALONE, LINE_INTERVAL, "memory")
"""Columns of the page that do not fit into a terminal."""

_TEXTS = ("value", "reason", "source", "ahead before", "ahead after", "family")
_KINDS: Mapping[str, ColumnKind] = {
    "runs": "number",
    **dict.fromkeys((*_TEXTS, "frontier, ln of the least loss", "best size grows as"), "text"),
}
"""Kinds of columns that are neither the name of a row nor a number, and the counts that begin a row."""


def page(result: ScalingResult) -> Page:
    """The page of a scaling experiment or a plan."""
    runs = ""
    if result.runs:
        spent = sum(run.flops for run in result.runs)
        runs = f"{integer(len(result.runs))}, {flop(spent)} in all"
    models = dict.fromkeys(run.way.name for run in result.runs)
    budgets = sorted({run.budget for run in result.runs})
    devices = dict.fromkeys(run.device for run in result.runs if run.device)
    listed = ", ".join(f"{budget:.3g}" for budget in budgets)
    about = [("runs", runs), ("models", ", ".join(models)), ("budgets", listed)]
    drawn = [figure("scaling-figures", chart.name, chart) for chart in charts(result)]
    # What to do stands first, then what it rests on, down to the single runs.
    sections: Sections = [*_advised(result)]
    if drawn:
        sections.append(group("scaling", "figures", *drawn))
    sections += [_held_out(result), _crossings(result), _laws(result)]
    sections += [_downstream(result), _runs(result)]
    return Page(
        record=result,
        name=result.kind,
        headline=words.headline(result),
        reservations=words.reservations(result),
        about=about,
        sections=sections,
        facts=[("resamples", integer(result.resamples)), ("devices", ", ".join(devices))],
        seed="seed of the resampling",
        time="time of all runs",
    )


def exports(result: ScalingResult) -> Files:
    """The figures beside the page, and for a plan its training run."""
    files: Files = {}
    for chart in charts(result):
        files[f"figures/{chart.name}.svg"] = chart.file
    if result.advice is not None and result.advice.settings:
        files["train.toml"] = partial(run_toml, result.advice)
    return files


def run_toml(advice: Advice) -> str:
    """The settings of the recommended training run, with reasons as comments."""
    lines = []
    for reason in advice.reasons:
        comment = f"{reason.what}: {reason.value} ({reason.why}; {reason.source})"
        # A line break in a reason would end the comment.
        flat = " ".join(printable(comment).split())
        lines.append(f"# {flat}\n")
    return "".join(lines) + "\n" + tomli_w.dumps(advice.settings)


def terminal(result: ScalingResult) -> list[Table]:
    """The laws, or the options of a plan, with their results."""
    caption = [words.headline(result)]
    caption += [f"- {sentence}" for sentence in words.reservations(result)]
    advice = result.advice
    if advice is None:
        return [replace(_kinds(result), title=result.title, caption=caption)]
    additions = []
    for run in advice.additions:
        budget, gain = flop(run.budget), share(run.gain)
        additions.append(f"{run.run} at {budget}, seed {run.seed} ({gain})")
    if additions:
        listed = "; ".join(additions)
        caption.insert(0, f"runs that would narrow the answer most: {listed}")
    options = _options(result, advice, MOST_ROWS, hidden=NOT_SHOWN)
    return [replace(options, title=result.title, caption=caption)]


def _kinds(result: ScalingResult) -> Table:
    """A law in each row, with the least loss at the largest budget on its frontier."""
    rows = []
    for kind in result.kinds:
        row: Contents = {"models and method": str(kind.kind), "runs": integer(kind.runs)}
        loss = at = None
        if kind.frontier:
            loss, at = min(zip(kind.frontier.values, kind.frontier.at, strict=True))
        row |= {"least loss": if_known(loss, number), "at": if_known(at, flop)}
        row |= _errors(kind.law)
        rows.append(row)
    return Table.of(rows)


def _errors(law: LawRecord | None) -> Contents:
    """Errors of a law on runs that it was not fitted to, by the heads of their columns."""
    model = budget = None
    if law is not None:
        model, budget = law.model_error, law.budget_error
    return {
        "error on the largest model": if_known(model, share),
        "on the largest budget": if_known(budget, share),
    }


def _options(result: ScalingResult, advice: Advice, most: int, *, hidden: Sequence[str] = ()) -> Table:
    """The first options of a plan; the best one, on top, is shaded."""
    held_out = f"{_level(result.held_out)}, held out"
    rows = []
    for choice in advice.candidates[:most]:
        millions = choice.option.size / 1e6
        row = {
            "option": choice.way.title,
            "size": f"{millions:.3g} M",
            "tokens": f"{choice.tokens:.3g}",
            "FLOP": f"{choice.flops:.3g}",
            "loss": if_known(choice.loss, number),
            held_out: words.bounds(choice.held_out),
            LAW_ALONE: words.bounds(choice.law),
            "straight line": if_known(choice.line, number),
            LINE_INTERVAL: words.bounds(choice.line_held_out),
            "memory": amount(choice.memory),
        }
        for head in hidden:
            del row[head]
        rows.append(row)
    # Published results alone recommend no option.
    styles = [] if advice.best is None else ["safe"]
    return Table.of(rows, styles=styles)


def _level(record: HeldOutRecord | None) -> str:
    """The level of the intervals of options: few held-out losses cannot show 95 %."""
    levels = [width.level for width in record.widths] if record else []
    least = share(min(levels, default=CONFIDENCE))
    # Levels count as equal where they read alike.
    if any(share(level) != least for level in levels):
        return f"at least {least}"
    return least


def _group(name: str, rows: Sequence[Mapping[str, Content]], **values: object) -> Group | None:
    """A table under its title; None without rows."""
    if not rows:
        return None
    return group("scaling", name, Table.of(rows, _KINDS), **values)


def _advised(result: ScalingResult) -> list[Group | None]:
    """Reasons, options, and runs that would make the recommendation more certain."""
    advice = result.advice
    if advice is None:
        return []
    reasons: list[Contents] = []
    for reason in advice.reasons:
        value, why = cut(reason.value, limit=200), cut(reason.why, limit=400)
        reasons.append({"choice": reason.what, "value": value, "reason": why, "source": reason.source})
    additions: list[Contents] = []
    for run in advice.additions:
        name, gain = cut(run.run, limit=120), share(run.gain)
        row: Contents = {"run": name, "budget": flop(run.budget), "seed": run.seed}
        row["variance removed"] = gain
        additions.append(row)
    options = _options(result, advice, MOST_CANDIDATES)
    counts = {"shown": len(options.rows), "total": len(advice.candidates)}
    return [
        _group("reasons", reasons),
        group("scaling", "candidates", options, **counts) if options.rows else None,
        _group("additions", additions),
    ]


def _held_out(result: ScalingResult) -> Group | None:
    """How far laws and straight lines missed the largest budget, and how many losses their intervals held."""
    record = result.held_out
    if record is None:
        return None
    rows: list[Contents] = []
    # Factors and not widths: laws are fitted to logarithms of losses.
    three = "{:.3g}".format
    factors: dict[str | None, tuple[float | None, float | None]] = {
        width.family: (width.law, width.line) for width in record.widths
    }
    for coverage in record.coverages:
        # The first row is that of all families, which have no factor together.
        of_law, of_line = factors.get(coverage.family, (None, None))
        row: Contents = {
            "models": words.family_of(coverage.family),
            "error, laws": if_known(coverage.law_error, _as_share),
            "error, straight lines": if_known(coverage.line_error, _as_share),
            "within 95 %, law alone": _held(coverage.nominal, coverage.runs),
            "widened": _held(coverage.widened, coverage.runs),
            "straight lines": _held(coverage.line, coverage.lines),
            "first choice above the best": share(coverage.regret),
            "factor of the law's interval": if_known(of_law, three),
            "of the line's": if_known(of_line, three),
        }
        rows.append(row)
    # How many times the largest budget was that of the fitted runs.
    reaches = [width.reach for width in record.widths]
    return _group("held-out", rows, reach=max(reaches, default=1.0))


def _as_share(error: float) -> str:
    """A mean error of logarithms, as a share."""
    return share(math.expm1(error))


def _held(count: int | None, of: int) -> str | None:
    """Losses that intervals held, of all; None where no interval was made."""
    if count is None:
        return None
    return f"{count} of {of}"


def _crossings(result: ScalingResult) -> Group | None:
    """Where one method of a family overtakes another."""
    rows = [crossing_row(crossing) for crossing in result.crossings]
    return _group("crossings", rows, near=NEAR)


def crossing_row(record: CrossingRecord) -> Contents:
    """A crossing of two methods by the head of its columns."""
    crossing, interval = record.found, ""
    if crossing.interval is not None:
        # An end of None lies beyond every number.
        low, high = (INFINITE if end is None else f"{end:.2g}" for end in crossing.interval)
        interval = f"[{low}, {high}]"
    return {
        "models": record.family,
        "ahead before": record.before,
        "ahead after": record.after,
        "budget, FLOP": f"{crossing.budget:.2g}",
        "interval": interval,
        "resamples that agree": if_known(crossing.agree, share),
    }


def _laws(result: ScalingResult) -> Group | None:
    """The law of each family and method with its coefficients."""
    sections: list[Section] = []
    for kind in result.kinds:
        sections += _law(kind)
    if not sections:
        return None
    return group("scaling", "laws", *sections)


def _law(kind: KindRecord) -> list[Table]:
    """Figures of a law, then its coefficients."""
    law = kind.law
    row: Contents = {"runs": integer(kind.runs), "noise": None, **_errors(law)}
    row["frontier, ln of the least loss"] = _line(kind.frontier, "slope")
    row["best size grows as"] = _line(kind.sizes, "exponent")
    title = cut(str(kind.kind), limit=120)
    if law is None:
        lacking = f"no law: it needs {kind.why_not}"
        return [Table.of([row], _KINDS, title=title, caption=[lacking])]
    row["noise"] = share(law.noise)
    coefficients = []
    for coefficient in law.coefficients:
        value = f"{coefficient.value:.3g} [{coefficient.low:.3g}, {coefficient.high:.3g}]"
        coefficients.append({"coefficient": coefficient.name, "value": value})
    figures = Table.of([row], _KINDS, title=title, lead=law.formula, caption=law.left_open)
    return [figures, Table.of(coefficients, _KINDS)]


def _line(line: LineRecord | None, name: str) -> Cell | None:
    """A line through logarithms: of the least loss by its slope, of the best size by its exponent."""
    if line is None:
        return None
    # Slopes of logarithms: that of a size is the exponent of the budget C, in FLOP.
    formula = f"{line.slope:.3f} ln C {line.intercept:+.2f}"
    if name == "exponent":
        formula = f"C^{line.slope:.2f}"
    if not line.low or not line.high:
        return Cell(formula)
    # The first ends are those of the slope, the second those of the intercept.
    interval = words.bounds((line.low[0], line.high[0]), digits=3)
    return Cell(formula, [f"{name} {interval}"])


def _downstream(result: ScalingResult) -> Group | None:
    """How losses and scores of tasks correlate."""
    rows = []
    for correlation in result.downstream:
        row: Contents = {
            "task": cut(correlation.task, limit=120),
            "family": cut(words.family_of(correlation.family), limit=120),
            "runs": integer(correlation.runs),
            "correlation": if_known(correlation.value, partial(signed, decimals=3)),
            "interval": words.bounds(correlation.interval, digits=3),
        }
        rows.append(row)
    return _group("downstream", rows)


def _runs(result: ScalingResult) -> Group | None:
    """All runs; the loss that laws are fitted to stands first."""
    rows = []
    for run in result.runs:
        why = result.left_out.get(run.name)
        below = [f"left out: {cut(why, limit=300)}"] if why else []
        losses = {"validation loss": run.validation_loss, "training loss": run.loss}
        # The table leaves out columns without values, so one kind of loss may be missing.
        if result.loss == "training":
            losses = dict(reversed(losses.items()))
        row: Contents = {
            "run": Cell(cut(run.way.title, limit=120), below),
            "budget": f"{run.budget:.3g}",
            "seed": run.seed,
            "steps": integer(run.steps),
            "tokens": f"{run.tokens:.3g}",
        }
        for head, loss in losses.items():
            row[head] = if_known(loss, number)
        row |= {"rate": setting(run.learning_rate), "time": duration(run.seconds)}
        row["memory"] = amount(run.memory)
        rows.append(row)
    return _group("runs", rows)
