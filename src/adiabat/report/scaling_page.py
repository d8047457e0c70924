"""The page of a scaling experiment or a plan, with its figures, ``train.toml`` and terminal tables."""

import math
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import tomli_w

from adiabat.core.text import DASH, amount, cut, duration, flop, integer, printable, share
from adiabat.report import scaling_headline as words
from adiabat.report.computed_tables import Column, Table
from adiabat.report.format import number, setting, signed
from adiabat.report.pages import Figure, Group, Page
from adiabat.report.scaling_figures import figures
from adiabat.report.tables import Cell, Section, cell_of
from adiabat.results.scaling_result import (
    Advice,
    Choice,
    Correlation,
    KindRecord,
    LineRecord,
    ScalingResult,
    ScalingRun,
    WidthRecord,
)
from adiabat.scaling_laws.frontier import NEAR
from adiabat.scaling_laws.held_out import Coverage

MOST_CANDIDATES = 15
"""Number of options in the table of a plan."""

MOST_ROWS = 8
"""Number of options in the terminal."""

NOT_SHOWN = ("size", "FLOP", words.LAW_ALONE, words.LINE_INTERVAL, "memory")
"""Columns of the page that do not fit into a terminal."""


def page(result: ScalingResult) -> Page:
    """The page of a scaling experiment or a plan."""
    budgets = sorted({run.budget for run in result.runs})
    about = [
        (
            "runs",
            f"{integer(len(result.runs))}, {flop(sum(run.flops for run in result.runs))} in all"
            if result.runs
            else "",
        ),
        ("models", ", ".join(dict.fromkeys(run.way.name for run in result.runs))),
        ("budgets", ", ".join(f"{budget:.3g}" for budget in budgets)),
    ]
    advised: list[Section | None] = [] if result.advice is None else [*_advised(result, result.advice)]
    drawn = [
        Figure(
            charts=[chart],
            title=title,
            caption=caption,
            label=f"{title}; the table of runs holds the numbers",
        )
        for chart, title, caption in figures(result)
    ]
    return Page(
        record=result,
        name=result.kind,
        headline=words.headline(result),
        reservations=words.reservations(result),
        about=[fact for fact in about if fact[1]],
        sections=[
            *advised,
            Group(id="figures", title="Figures", sections=drawn) if drawn else None,
            _held_out(result),
            _crossings(result),
            _laws(result),
            _downstream(result),
            _runs(result),
        ],
        facts=[
            ("resamples", integer(result.resamples)),
            ("devices", ", ".join(dict.fromkeys(run.device for run in result.runs if run.device))),
        ],
        seed="seed of the resampling",
        time="time of all runs",
    )


def exports(result: ScalingResult) -> dict[str, Callable[[], str]]:
    """The figures beside the page, and for a plan its training run."""
    files: dict[str, Callable[[], str]] = {
        f"figures/{chart.name}.svg": chart.file for chart, _, _ in figures(result)
    }
    advice = result.advice
    if advice is not None and advice.settings:
        files["train.toml"] = lambda: run_toml(advice)
    return files


def run_toml(advice: Advice) -> str:
    """The settings of the recommended training run, with reasons as comments."""
    reasons = [f"{reason.what}: {reason.value} ({reason.why}; {reason.source})" for reason in advice.reasons]
    lines = "".join(f"# {' '.join(printable(line).split())}\n" for line in reasons)
    return lines + "\n" + tomli_w.dumps(advice.settings)


def terminal(result: ScalingResult) -> list[Table]:
    """The laws, or the options of a plan, with their results."""
    caption = [words.headline(result), *(f"- {sentence}" for sentence in words.reservations(result))]
    advice = result.advice
    if advice is None:
        return [Table(title=result.title, columns=_kind_columns(), rows=result.kinds, caption=caption)]
    if advice.additions:
        runs = "; ".join(
            f"{run.run} at {flop(run.budget)}, seed {run.seed} ({share(run.gain)})"
            for run in advice.additions
        )
        caption.insert(0, f"runs that would narrow the answer most: {runs}")
    columns = [column for column in _choice_columns(result) if column.head not in NOT_SHOWN]
    rows = advice.candidates[:MOST_ROWS]
    return [
        Table(
            title=result.title,
            columns=_filled(columns, rows),
            rows=rows,
            caption=caption,
            row_class=_shaded(advice),
        )
    ]


def _kind_columns() -> list[Column]:
    def least(kind: KindRecord) -> tuple[float, float] | None:
        line = kind.frontier
        return min(zip(line.values, line.at, strict=True), default=None) if line else None

    return [
        Column("models and method", lambda kind: str(kind.kind), "name"),
        Column("runs", lambda kind: integer(kind.runs), "number"),
        Column("least loss", lambda kind: number(found[0]) if (found := least(kind)) else DASH, "number"),
        Column("at", lambda kind: flop(found[1]) if (found := least(kind)) else DASH, "number"),
        Column("error on the largest model", lambda kind: words.errors(kind)[0], "number"),
        Column("budget", lambda kind: words.errors(kind)[1], "number"),
    ]


def _choice_columns(result: ScalingResult) -> list[Column]:
    def column(position: int, head: str) -> Column:
        return Column(
            head,
            lambda choice: words.choice_cells(choice)[position] or Cell(""),
            "number" if position else "name",
        )

    return [column(position, head) for position, head in enumerate(words.choice_heads(result.held_out))]


def _filled(columns: Sequence[Column], rows: Sequence[Any]) -> list[Column]:
    """Columns in which some row has a value."""
    return [
        column for column in columns if any(cell_of(column.of(row)).text not in ("", DASH) for row in rows)
    ]


def _group(
    name: str, title: str, columns: Sequence[Column], rows: Sequence[Any], lead: str = "", **options: Any
) -> Group | None:
    """A table under a title; None without rows."""
    table = Table(columns=_filled(columns, rows), rows=rows, **options)
    return Group(id=name, title=title, lead=lead, sections=[table]) if rows else None


def _advised(result: ScalingResult, advice: Advice) -> list[Group | None]:
    """Reasons, options, and runs that would make the recommendation more certain."""
    reasons = [
        Column("choice", lambda reason: reason.what),
        Column("value", lambda reason: cut(reason.value, limit=200)),
        Column("reason", lambda reason: cut(reason.why, limit=400)),
        Column("source", lambda reason: reason.source),
    ]
    additions = [
        Column("run", lambda run: cut(run.run, limit=120)),
        Column("budget", lambda run: flop(run.budget), "number"),
        Column("seed", lambda run: run.seed, "number"),
        Column("variance removed", lambda run: share(run.gain), "number"),
    ]
    hidden = max(0, len(advice.candidates) - MOST_CANDIDATES)
    ordered = ", least predicted loss first" if result.runs else ""
    options = (
        "Each with the tokens that the budget "
        f"affords{ordered}.{f' {hidden} more are in result.json.' if hidden else ''}"
    )
    narrowing = (
        "Runs that most reduce the variance of the difference between the first and "
        "the runner-up for their cost. Add them to the "
        "scaling experiment and resume it."
    )
    rows = advice.candidates[:MOST_CANDIDATES]
    return [
        _group("reasons", "Reasons", reasons, advice.reasons),
        _group("candidates", "Options", _choice_columns(result), rows, options, row_class=_shaded(advice)),
        _group("additions", "Runs that would narrow the answer", additions, advice.additions, narrowing),
    ]


def _shaded(advice: Advice) -> Callable[[Choice], str]:
    """CSS class of the row of the best option."""
    best = advice.candidates[0] if advice.best is not None and advice.candidates else None
    return lambda choice: "safe" if choice is best else ""


def _held_out(result: ScalingResult) -> Group | None:
    """How far laws and straight lines missed the largest budget, and how many losses their intervals held."""
    record = result.held_out
    if record is None:
        return None
    factors = {width.family: width for width in record.widths}

    def held(count: int | None, of: int) -> str:
        return DASH if count is None else f"{count} of {of}"

    def factor(coverage: Coverage, of: Callable[[WidthRecord], float | None]) -> str:
        value = (
            of(width)
            if coverage.family is not None and (width := factors.get(coverage.family)) is not None
            else None
        )
        return DASH if value is None else f"{value:.3g}"

    def error(value: float | None) -> str:
        return DASH if value is None else share(math.expm1(value))

    columns = [
        Column(
            "models", lambda one: "all" if one.family is None else one.family or "models as they are", "name"
        ),
        Column("error, laws", lambda one: error(one.law_error), "number"),
        Column("straight lines", lambda one: error(one.line_error), "number"),
        Column("within 95 %, law alone", lambda one: held(one.nominal, one.runs), "number"),
        Column("widened", lambda one: held(one.widened, one.runs), "number"),
        Column("straight lines", lambda one: held(one.line, one.lines), "number"),
        Column("first choice above the best", lambda one: share(one.regret), "number"),
        Column("factor of the law's interval", lambda one: factor(one, lambda width: width.law), "number"),
        Column("of the line's", lambda one: factor(one, lambda width: width.line), "number"),
    ]
    reach = f"{record.widths[0].reach:.3g} times the largest budget" if record.widths else ""
    lead = (
        "Losses at the largest budget, predicted from the runs of smaller budgets alone. "
        "A nominal 95 % interval covers the fit of a law, "
        "not its misfit; a widened one reaches as far beyond it as the losses of still "
        "smaller held-out budgets did (split conformal "
        "prediction), and is checked here on losses that it has not seen. The factors "
        f"are those of a plan at {reach}: they multiply and "
        "divide the ends of an interval. Errors are means of logarithms; a straight line "
        "goes through the logarithms of an option's own "
        "losses."
    )
    return _group("held-out", "Predictions of a held-out budget", columns, record.coverages, lead)


def _crossings(result: ScalingResult) -> Group | None:
    heads = ("models", "ahead before", "ahead after", "budget, FLOP", "interval", "resamples that agree")
    columns = [Column(head, itemgetter(at), "number" if at > 2 else "text") for at, head in enumerate(heads)]
    lead = (
        f"Budgets at which the least-loss lines cross, within a factor of {NEAR:g} "
        "of the budgets of the runs. Intervals are 95 % "
        "intervals over resampled noise; the last column is the share of resamples "
        "in which the same method is ahead before."
    )
    rows = [words.crossing_cells(crossing) for crossing in result.crossings]
    return _group("crossings", "Where one method overtakes another", columns, rows, lead)


def _laws(result: ScalingResult) -> Group | None:
    lead = (
        "Coefficients have 95 % intervals over resampled runs. Noise is the spread of "
        "single runs about the law. Errors on the largest "
        "model and the largest budget are those of the law fitted without them (means of logarithms)."
    )
    sections = [section for kind in result.kinds for section in _law(kind)]
    return Group(id="laws", title="Laws", lead=lead, sections=sections) if sections else None


def _law(kind: KindRecord) -> list[Table | None]:
    """Figures of a law, then its coefficients."""
    law = kind.law
    columns = [
        Column("runs", lambda _: integer(kind.runs), "number"),
        Column("noise", lambda _: share(law.noise) if law else DASH, "number"),
        Column("error, largest model", lambda _: words.errors(kind)[0], "number"),
        Column("error, largest budget", lambda _: words.errors(kind)[1], "number"),
        Column("frontier, ln of the least loss", lambda _: _frontier(kind.frontier)),
        Column("best size grows as", lambda _: _growth(kind.sizes)),
    ]
    unknown = law.left_open if law else [f"no law: it needs {kind.why_not}"]
    formula = law.formula if law else ""
    figures_of = Table(
        title=cut(str(kind.kind), limit=120),
        lead=formula,
        columns=_filled(columns, [kind]),
        rows=[kind],
        caption=unknown,
    )
    coefficients = [Column("coefficient", itemgetter(0), "code"), Column("value", itemgetter(1))]
    return [figures_of, Table(columns=coefficients, rows=words.law_facts(kind)) if law else None]


def _frontier(line: LineRecord | None) -> Cell:
    return (
        Cell(DASH)
        if line is None
        else Cell(f"{line.slope:.3f} ln C {line.intercept:+.2f}", [_slope(line, "slope")])
    )


def _growth(line: LineRecord | None) -> Cell:
    return Cell(DASH) if line is None else Cell(f"C^{line.slope:.2f}", [_slope(line, "exponent")])


def _slope(line: LineRecord, name: str) -> str:
    return f"{name} {words.bounds((line.low[0], line.high[0]), digits=3)}" if line.low and line.high else ""


def _downstream(result: ScalingResult) -> Group | None:
    def value(correlation: Correlation) -> str:
        return DASH if correlation.value is None else signed(correlation.value, decimals=3)

    columns = [
        Column("task", lambda correlation: cut(correlation.task, limit=120)),
        Column("family", lambda correlation: cut(words.family_of(correlation), limit=120)),
        Column("runs", lambda correlation: integer(correlation.runs), "number"),
        Column("correlation", value, "number"),
        Column("interval", lambda correlation: Cell(words.bounds(correlation.interval, digits=3)), "number"),
    ]
    lead = (
        "Spearman's correlation over the runs with the score, and its 95 % interval "
        "over resampled runs; below 0 if a lower loss "
        "goes with a better score."
    )
    return _group("downstream", "Loss and task scores", columns, result.downstream, lead)


def _runs(result: ScalingResult) -> Group | None:
    other = "training" if result.loss == "validation" else "validation"

    def name(run: ScalingRun) -> Cell:
        why = result.left_out.get(run.name, "")
        return Cell(cut(run.way.title, limit=120), [f"left out: {cut(why, limit=300)}"] if why else [])

    def loss(kind: str) -> Callable[[ScalingRun], str]:
        return lambda run: (
            DASH
            if (value := run.validation_loss if kind == "validation" else run.loss) is None
            else number(value)
        )

    columns = [
        Column("run", name, "name"),
        Column("budget", lambda run: f"{run.budget:.3g}", "number"),
        Column("seed", lambda run: run.seed, "number"),
        Column("steps", lambda run: integer(run.steps), "number"),
        Column("tokens", lambda run: f"{run.tokens:.3g}", "number"),
        Column(f"{result.loss} loss", loss(result.loss), "number"),
        Column(f"{other} loss", loss(other), "number"),
        Column("rate", lambda run: setting(run.learning_rate), "number"),
        Column("time", lambda run: duration(run.seconds), "number"),
        Column("memory", lambda run: amount(run.memory) or DASH, "number"),
    ]
    return _group("runs", "Runs", columns, result.runs)
