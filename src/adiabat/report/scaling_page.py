"""The page of a scaling experiment or a plan, with its figures, ``train.toml`` and terminal tables."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import tomli_w

from adiabat.core.text import DASH, amount, cut, duration, flop, integer, printable, share
from adiabat.report import scaling_headline as words
from adiabat.report.captions import text_of
from adiabat.report.format import number, setting, signed
from adiabat.report.pages import Figure, Group, Page, with_values
from adiabat.report.scaling_figures import figures
from adiabat.report.tables import Cell, Column, Content, Section, Table
from adiabat.results.scaling_result import Advice, KindRecord, LineRecord, ScalingResult
from adiabat.scaling_laws.frontier import NEAR

MOST_CANDIDATES = 15
"""Number of options in the table of a plan."""

MOST_ROWS = 8
"""Number of options in the terminal."""

NOT_SHOWN = ("size", "FLOP", words.LAW_ALONE, words.LINE_INTERVAL, "memory")
"""Columns of the page that do not fit into a terminal."""


def page(result: ScalingResult) -> Page:
    """The page of a scaling experiment or a plan."""
    runs = ""
    if result.runs:
        runs = f"{integer(len(result.runs))}, {flop(sum(run.flops for run in result.runs))} in all"
    models = dict.fromkeys(run.way.name for run in result.runs)
    budgets = sorted({run.budget for run in result.runs})
    devices = dict.fromkeys(run.device for run in result.runs if run.device)
    about = [
        ("runs", runs),
        ("models", ", ".join(models)),
        ("budgets", ", ".join(f"{budget:.3g}" for budget in budgets)),
    ]
    return Page(
        record=result,
        name=result.kind,
        headline=words.headline(result),
        reservations=words.reservations(result),
        about=with_values(about),
        sections=[
            *_advised(result),
            _figures(result),
            _held_out(result),
            _crossings(result),
            _laws(result),
            _downstream(result),
            _runs(result),
        ],
        facts=[("resamples", integer(result.resamples)), ("devices", ", ".join(devices))],
        seed="seed of the resampling",
        time="time of all runs",
    )


def _figures(result: ScalingResult) -> Group | None:
    drawn = []
    for chart, title, caption in figures(result):
        label = f"{title}; the table of runs holds the numbers"
        drawn.append(Figure(charts=[chart], title=title, caption=caption, label=label))
    return Group(id="figures", title="Figures", sections=drawn) if drawn else None


def exports(result: ScalingResult) -> dict[str, Callable[[], str]]:
    """The figures beside the page, and for a plan its training run."""
    files: dict[str, Callable[[], str]] = {
        f"figures/{chart.name}.svg": chart.file for chart, _, _ in figures(result)
    }
    if result.advice is not None and result.advice.settings:
        files["train.toml"] = partial(run_toml, result.advice)
    return files


def run_toml(advice: Advice) -> str:
    """The settings of the recommended training run, with reasons as comments."""
    lines = []
    for reason in advice.reasons:
        comment = f"{reason.what}: {reason.value} ({reason.why}; {reason.source})"
        lines.append(f"# {' '.join(printable(comment).split())}\n")
    return "".join(lines) + "\n" + tomli_w.dumps(advice.settings)


def terminal(result: ScalingResult) -> list[Table]:
    """The laws, or the options of a plan, with their results."""
    caption = [words.headline(result), *(f"- {sentence}" for sentence in words.reservations(result))]
    advice = result.advice
    if advice is None:
        return [replace(_kinds(result), title=result.title, caption=caption)]
    if advice.additions:
        runs = [
            f"{run.run} at {flop(run.budget)}, seed {run.seed} ({share(run.gain)})"
            for run in advice.additions
        ]
        caption.insert(0, f"runs that would narrow the answer most: {'; '.join(runs)}")
    options = _options(result, advice, MOST_ROWS, hidden=NOT_SHOWN)
    return [replace(options, title=result.title, caption=caption)]


def _kinds(result: ScalingResult) -> Table:
    """A law in each row, with the least loss at the largest budget on its frontier."""
    columns = [
        Column("models and method", "name"),
        Column("runs", "number"),
        Column("least loss", "number"),
        Column("at", "number"),
        Column("error on the largest model", "number"),
        Column("budget", "number"),
    ]
    table = Table(columns=columns)
    for kind in result.kinds:
        loss = at = DASH
        if kind.frontier:
            least, budget = min(zip(kind.frontier.values, kind.frontier.at, strict=True))
            loss, at = number(least), flop(budget)
        table.add(str(kind.kind), integer(kind.runs), loss, at, *words.errors(kind))
    return table


def _options(result: ScalingResult, advice: Advice, most: int, *, hidden: Sequence[str] = ()) -> Table:
    """The first options of a plan; the best one, on top, is shaded."""
    heads = words.choice_heads(result.held_out)
    shown = [position for position, head in enumerate(heads) if head not in hidden]
    table = Table(columns=[Column(heads[position], "number" if position else "name") for position in shown])
    for place, choice in enumerate(advice.candidates[:most]):
        cells = words.choice_cells(choice)
        style = "safe" if place == 0 and advice.best is not None else ""
        table.add(*(Cell(cells[position]) for position in shown), style=style)
    return table.without_empty_columns()


def _group(name: str, title: str, table: Table, lead: str = "") -> Group | None:
    """A table under a title; None without rows."""
    return (
        Group(id=name, title=title, lead=lead, sections=[table.without_empty_columns()])
        if table.rows
        else None
    )


def _advised(result: ScalingResult) -> list[Group | None]:
    """Reasons, options, and runs that would make the recommendation more certain."""
    advice = result.advice
    if advice is None:
        return []
    reasons = Table(columns=[Column("choice"), Column("value"), Column("reason"), Column("source")])
    for reason in advice.reasons:
        reasons.add(reason.what, cut(reason.value, limit=200), cut(reason.why, limit=400), reason.source)
    heads = [
        Column("run"),
        Column("budget", "number"),
        Column("seed", "number"),
        Column("variance removed", "number"),
    ]
    additions = Table(columns=heads)
    for run in advice.additions:
        additions.add(cut(run.run, limit=120), flop(run.budget), run.seed, share(run.gain))
    ordered = ", least predicted loss first" if result.runs else ""
    hidden = len(advice.candidates) - MOST_CANDIDATES
    more = f" {hidden} more are in result.json." if hidden > 0 else ""
    lead = f"Each with the tokens that the budget affords{ordered}.{more}"
    narrowing = text_of("scaling", "advised")
    return [
        _group("reasons", "Reasons", reasons),
        _group("candidates", "Options", _options(result, advice, MOST_CANDIDATES), lead),
        _group("additions", "Runs that would narrow the answer", additions, narrowing),
    ]


def _held_out(result: ScalingResult) -> Group | None:
    """How far laws and straight lines missed the largest budget, and how many losses their intervals held."""
    record = result.held_out
    if record is None:
        return None
    columns = [
        Column("models", "name"),
        Column("error, laws", "number"),
        Column("straight lines", "number"),
        Column("within 95 %, law alone", "number"),
        Column("widened", "number"),
        Column("straight lines", "number"),
        Column("first choice above the best", "number"),
        Column("factor of the law's interval", "number"),
        Column("of the line's", "number"),
    ]
    table = Table(columns=columns)
    widths = {width.family: width for width in record.widths}
    for one in record.coverages:
        width = None if one.family is None else widths.get(one.family)
        table.add(
            words.family_of(one.family),
            _error(one.law_error),
            _error(one.line_error),
            _held(one.nominal, one.runs),
            _held(one.widened, one.runs),
            _held(one.line, one.lines),
            share(one.regret),
            _factor(None if width is None else width.law),
            _factor(None if width is None else width.line),
        )
    reach = f"{record.widths[0].reach:.3g} times the largest budget" if record.widths else ""
    lead = text_of("scaling", "held-out", reach=reach)
    return _group("held-out", "Predictions of a held-out budget", table, lead)


def _error(value: float | None) -> str | None:
    """A mean error of logarithms, as a share."""
    return None if value is None else share(math.expm1(value))


def _held(count: int | None, of: int) -> str | None:
    return None if count is None else f"{count} of {of}"


def _factor(value: float | None) -> str | None:
    return None if value is None else f"{value:.3g}"


def _crossings(result: ScalingResult) -> Group | None:
    columns = [
        Column("models"),
        Column("ahead before"),
        Column("ahead after"),
        Column("budget, FLOP", "number"),
        Column("interval", "number"),
        Column("resamples that agree", "number"),
    ]
    table = Table(columns=columns)
    for crossing in result.crossings:
        table.add(*words.crossing_cells(crossing))
    lead = text_of("scaling", "crossings", near=NEAR)
    return _group("crossings", "Where one method overtakes another", table, lead)


def _laws(result: ScalingResult) -> Group | None:
    lead = text_of("scaling", "laws")
    sections: list[Section | None] = []
    for kind in result.kinds:
        sections += _law(kind)
    return Group(id="laws", title="Laws", lead=lead, sections=sections) if sections else None


def _law(kind: KindRecord) -> list[Table]:
    """Figures of a law, then its coefficients."""
    columns = [
        Column("runs", "number"),
        Column("noise", "number"),
        Column("error, largest model", "number"),
        Column("error, largest budget", "number"),
        Column("frontier, ln of the least loss"),
        Column("best size grows as"),
    ]
    frontier, growth = _line(kind.frontier, "slope"), _line(kind.sizes, "exponent")
    title, law = cut(str(kind.kind), limit=120), kind.law
    if law is None:
        table = Table(title=title, columns=columns, caption=[f"no law: it needs {kind.why_not}"])
        table.add(integer(kind.runs), None, *words.errors(kind), frontier, growth)
        return [table.without_empty_columns()]
    table = Table(title=title, lead=law.formula, columns=columns, caption=law.left_open)
    table.add(integer(kind.runs), share(law.noise), *words.errors(kind), frontier, growth)
    coefficients = Table(columns=[Column("coefficient", "code"), Column("value")])
    for one in law.coefficients:
        coefficients.add(one.name, f"{one.value:.3g} [{one.low:.3g}, {one.high:.3g}]")
    return [table.without_empty_columns(), coefficients]


def _line(line: LineRecord | None, name: str) -> Content:
    """A line through logarithms: of the least loss by its slope, of the best size by its exponent."""
    if line is None:
        return None
    formula = f"C^{line.slope:.2f}" if name == "exponent" else f"{line.slope:.3f} ln C {line.intercept:+.2f}"
    if not line.low or not line.high:
        return Cell(formula)
    return Cell(formula, [f"{name} {words.bounds((line.low[0], line.high[0]), digits=3)}"])


def _downstream(result: ScalingResult) -> Group | None:
    columns = [
        Column("task"),
        Column("family"),
        Column("runs", "number"),
        Column("correlation", "number"),
        Column("interval", "number"),
    ]
    table = Table(columns=columns)
    for one in result.downstream:
        family = cut(words.family_of(one.family), limit=120)
        value = None if one.value is None else signed(one.value, decimals=3)
        interval = Cell(words.bounds(one.interval, digits=3))
        table.add(cut(one.task, limit=120), family, integer(one.runs), value, interval)
    lead = text_of("scaling", "downstream")
    return _group("downstream", "Loss and task scores", table, lead)


def _runs(result: ScalingResult) -> Group | None:
    first, other = ("validation", "training") if result.loss == "validation" else ("training", "validation")
    heads = ("budget", "seed", "steps", "tokens", f"{first} loss", f"{other} loss", "rate", "time", "memory")
    table = Table(columns=[Column("run", "name"), *(Column(head, "number") for head in heads)])
    for run in result.runs:
        why = result.left_out.get(run.name)
        name = Cell(cut(run.way.title, limit=120), [f"left out: {cut(why, limit=300)}"] if why else [])
        losses = {"training": run.loss, "validation": run.validation_loss}
        table.add(
            name,
            f"{run.budget:.3g}",
            run.seed,
            integer(run.steps),
            f"{run.tokens:.3g}",
            _loss(losses[first]),
            _loss(losses[other]),
            setting(run.learning_rate),
            duration(run.seconds),
            amount(run.memory),
        )
    return _group("runs", "Runs", table)


def _loss(value: float | None) -> str | None:
    return None if value is None else number(value)
