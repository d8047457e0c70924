"""The tables of a sweep, a row for each setting: columns of the page, CSV, Markdown and LaTeX (Vasilyev et
al. 2024, tables 1, 6 to 20).
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from statistics import fmean
from typing import Any, Literal

from adiabat.core.text import DASH, NO_BREAK, cut, setting_text
from adiabat.report.computed_tables import Column, Table
from adiabat.report.format import VERDICT_MARKS, cut_name, three_digits
from adiabat.report.measure_terms import in_order
from adiabat.report.sweep_headline import (
    case_cell,
    case_head,
    count,
    gain,
    gain_bounds,
    headline,
    reservations,
    sides,
    verdict_marks,
)
from adiabat.report.tables import NAME_LENGTH, Cell, latex, markdown
from adiabat.results.sweep_result import Case, PairCounts, SweepResult, SweepRun, is_number

Group = Literal["setting", "target", "other tasks", "language pairs, better/worse", "training", "drift"]
Measured = tuple[str, str]
"""A measure and its similarity."""

TEXT_LENGTH = 200
"""Maximum characters of a cell."""

SENTENCE_LENGTH = 1000
"""Maximum characters of a sentence beside a table."""


def _column(
    group: Group, name: str, below: str, cell: Callable[[Case], Cell], *, number: bool = True
) -> Column:
    first = "" if not number else "ascending" if group in ("setting", "drift") else "descending"
    head = cut_name(name, limit=32)
    return Column(
        head,
        cell,
        "number" if number else "name",
        [cut_name(below, limit=60)] if below else [],
        first,
        full=name,
        group=group,
    )


def columns_of(result: SweepResult) -> list[Column]:
    """The main table: settings, main measures, language pairs, training."""
    tasks = [_task_column(result, task, *measures_of(result, task)[:1]) for task in result.ordered]
    pairs = [_pair_column(result, counts) for counts in compared_in(result)]
    training = [_mean_column(result, "training", name, count) for name in ("steps", "best epoch")]
    if any(case.failed for case in result.variation.cases):
        training.append(_column("training", "failed", "", lambda case: _failure(result, case), number=False))
    return [*setting_columns(result), *tasks, *pairs, *training]


def measures_of(result: SweepResult, task: str) -> list[Measured]:
    """Measures of a task, the main one first; empty without measured runs."""
    changes = (change for case in result.variation.cases for change in case.changes if change.task == task)
    return list(dict.fromkeys((change.measure, change.similarity) for change in changes))


def compared_in(result: SweepResult) -> list[PairCounts]:
    """The first counts of each comparison of a language grid, in the order of the tasks."""
    first: dict[tuple[str, str, str], PairCounts] = {}
    for counts in (counts for case in result.variation.cases for counts in case.pairs):
        first.setdefault(counts.compared, counts)
    return sorted(first.values(), key=lambda counts: result.task_names.index(counts.task))


def pairs_of(case: Case, compared: tuple[str, str, str]) -> PairCounts | None:
    """The counts of a case by one comparison."""
    return next((counts for counts in case.pairs if counts.compared == compared), None)


def setting_columns(result: SweepResult) -> list[Column]:
    """The columns that identify a row."""
    cases = result.variation.cases
    columns = [_setting_column(result, index) for index in range(len(result.variation.settings))]
    columns = columns or [_column("setting", "setting", "", lambda _: Cell("as configured"), number=False)]
    for name in ("learning rate", "batch size"):
        if not _is_configured(result, name.replace(" ", "_")):
            columns.append(_mean_column(result, "setting", f"{name} taken", three_digits, status=None))
    if any(len(case.runs) > 1 for case in cases):
        columns.append(
            _column(
                "setting",
                "runs",
                "",
                lambda case: Cell(run_count(case), value=float(len(case.runs) - case.failed)),
            )
        )
    return columns


def _is_configured(result: SweepResult, name: str) -> bool:
    """Whether each run used the grid's value, or the common one: a rate may be scaled, and variants may set
    either.
    """
    values: set[float] = {getattr(run, name) for run in result.runs}
    configured = [
        next((value for key, value in run.varied.items() if key.rpartition(".")[2] == name), None)
        for run in result.runs
    ]
    if not any(map(is_number, configured)):
        return len(values) < 2
    pairs = zip(result.runs, configured, strict=True)
    return all(
        is_number(value) and math.isclose(getattr(run, name), value, rel_tol=1e-6) for run, value in pairs
    )


def _setting_column(result: SweepResult, index: int) -> Column:
    setting = result.variation.settings[index]

    def cell(case: Case) -> Cell:
        value = case.values[index]
        return Cell(
            cut_name(setting_text(value), limit=TEXT_LENGTH),
            value=float(value) if is_number(value) else setting_text(value),
        )

    return _column("setting", setting.label, "", cell, number=setting.numeric)


def run_count(case: Case) -> str:
    """Number of runs of a case that left a model."""
    return f"{len(case.runs) - case.failed} of {len(case.runs)}" if case.failed else str(len(case.runs))


def _task_column(result: SweepResult, task: str, measured: Measured | None = None) -> Column:
    group: Group = "target" if task in result.targets else "other tasks"
    below = ", ".join(filter(None, measured)) if measured else "not measured"
    return _column(group, task, below, lambda case: change_cell(case, task, measured))


def change_cell(case: Case, task: str, measured: Measured | None = None) -> Cell:
    """The change of a case on a task by a measure, by default the main one."""
    changed = case.change(task, measured)
    if changed is None:
        return Cell(DASH)
    tone = (changed.verdict or "").replace(" ", "-")
    return Cell(
        gain(changed), [gain_bounds(changed)], value=changed.mean, sign=verdict_marks(changed), sign_tone=tone
    )


def _pair_column(result: SweepResult, first: PairCounts) -> Column:
    one_task = len({counts.task for counts in compared_in(result)}) == 1
    below = ", ".join(filter(None, [first.similarity, f"of {first.pairs}"]))

    def cell(case: Case) -> Cell:
        counts = pairs_of(case, first.compared)
        if counts is None:
            return Cell(DASH)
        by_z = sides(counts.improved_z, counts.worsened_z)
        net = (
            None if counts.improved is None or counts.worsened is None else counts.improved - counts.worsened
        )
        return Cell(
            sides(counts.improved, counts.worsened), sub=[] if by_z == DASH else [f"z {by_z}"], value=net
        )

    return _column(
        "language pairs, better/worse",
        first.comparison if one_task else f"{first.task}: {first.comparison}",
        below,
        cell,
    )


def _mean_column(
    result: SweepResult, group: Group, name: str, text: Callable[[float], str], *, status: str | None = "done"
) -> Column:
    """Means of a figure over the runs, by the name of its column."""
    field = name.removesuffix(" taken").replace(" ", "_")

    def cell(case: Case) -> Cell:
        values = [float(getattr(run, field)) for run in result.runs_of(case, status)]
        return Cell(text(fmean(values)), value=fmean(values)) if values else Cell(DASH)

    return _column(group, name, "", cell)


def _failure(result: SweepResult, case: Case) -> Cell:
    reasons = dict.fromkeys(run.reason or "no reason given" for run in result.runs_of(case, "failed"))
    return Cell(cut_name("; ".join(reasons), limit=TEXT_LENGTH))


def measure_columns(result: SweepResult) -> list[Column]:
    """All measures of all tasks; empty if each task has only one."""
    measures = [(task, measured) for task in result.ordered for measured in measures_of(result, task)]
    if len(measures) <= len({task for task, _ in measures}):
        return []
    return [*setting_columns(result), *(_task_column(result, task, measured) for task, measured in measures)]


def drift_columns(result: SweepResult, group: str | None = None) -> list[Column]:
    """Drift of all probes, or of one group of them, such as a language."""
    names = in_order(name for run in result.runs_of() for name in _drift_means(run, group))
    return (
        [*setting_columns(result), *(_drift_column(result, name, group) for name in names)] if names else []
    )


def _drift_means(run: SweepRun, group: str | None) -> dict[str, float]:
    if run.drift is None:
        return {}
    return run.drift.means if group is None else run.drift.groups.get(group, {})


def _drift_column(result: SweepResult, name: str, group: str | None) -> Column:
    def cell(case: Case) -> Cell:
        runs = result.runs_of(case)
        values = [means[name] for run in runs if name in (means := _drift_means(run, group))]
        if not values:
            return Cell(DASH)
        errors = (
            [run.drift.errors.get(name) for run in runs if run.drift is not None] if group is None else []
        )
        below = f"{three_digits(min(values))} to {three_digits(max(values))}" if len(values) > 1 else ""
        if len(values) == 1 and errors and errors[0] is not None:
            below = f"± {three_digits(errors[0])}"
        return Cell(three_digits(fmean(values)), sub=[below], value=fmean(values))

    return _column("drift", name, "", cell)


def legend(result: SweepResult) -> list[str]:
    """Explanation of the marks that occur in the main table."""
    runs = [len(case.runs) - case.failed for case in result.variation.cases]
    marks = [
        f"{', '.join(f'{mark} {verdict}' for verdict, mark in VERDICT_MARKS.items())}, by the paired test"
    ]
    if 1 in runs:
        marks.append(f"in brackets: the paired 95{NO_BREAK}% interval of one run")
    if max(runs, default=0) > 1:
        marks.append(
            "a to b: the lowest and the highest of several runs, below their "
            "mean; each mark has its number of runs"
        )
    if compared_in(result):
        marks.append("language pairs: better/worse by the paired test, then by the z-test")
    return marks


LAYER_TITLES = {
    "largest weight": "largest |weight| after tuning, of tensors that changed",
    "change of the largest weight": "|(Wt - Wo) / (Wt + Wo)| of the largest |weights|",
    "relative change": "||after - before|| / ||before||, Frobenius norm",
}
"""Measure of the change of tensors to its formula."""


def layer_tables(result: SweepResult) -> tuple[list[Table], str]:
    """The most changed tensors of each case by each measure, and the prefix omitted from their names."""
    view = result.variation
    prefix = block_prefix(
        [name for case in view.cases for tensors in case.layers.values() for name, _ in tensors]
    )

    def tensor(measure: str, index: int, case: Case) -> str:
        if index >= len(tensors := case.layers[measure]):
            return ""
        name, value = tensors[index]
        return cut_name(f"{name.removeprefix(prefix)} {three_digits(value)}", limit=NAME_LENGTH)

    setting = Column(
        cut(case_head(view), limit=60), lambda case: cut_name(case_cell(view, case), limit=120), "name"
    )
    tables = []
    for measure, formula in LAYER_TITLES.items():
        columns = [
            setting,
            *(
                Column(head, partial(tensor, measure, index), "code")
                for index, head in enumerate(("most", "next"))
            ),
        ]
        if rows := [case for case in view.cases if measure in case.layers]:
            tables.append(Table(title=measure.capitalize(), lead=formula, columns=columns, rows=rows))
    return tables, prefix


def block_prefix(names: Sequence[str]) -> str:
    """The most frequent prefix before the number of a block."""
    prefixes: Counter[str] = Counter()
    for name in dict.fromkeys(names):
        words = name.split(".")
        if index := next((index for index, word in enumerate(words) if word.isdecimal()), 0):
            prefixes[".".join(words[:index]) + "."] += 1
    return prefixes.most_common(1)[0][0] if prefixes else ""


def sweep_markdown(result: SweepResult) -> str:
    """The main table with headline and reservations, and the most changed tensors."""
    blocks = [
        markdown(cut(result.title, limit=NAME_LENGTH)),
        markdown(headline(result)),
        Table(columns=columns_of(result), rows=result.variation.cases).to_markdown().rstrip("\n"),
        f"{markdown('; '.join(legend(result)))}.",
        "\n".join(f"- {markdown(cut(sentence, limit=SENTENCE_LENGTH))}" for sentence in reservations(result)),
    ]
    tables, prefix = layer_tables(result)
    for table in tables:
        omitted = f'; "{prefix}" is left out of names' if prefix else ""
        blocks += [f"{markdown(f'{table.title}, {table.lead}{omitted}')}:", table.to_markdown().rstrip("\n")]
    return "\n\n".join(blocks) + "\n"


def sweep_latex(result: SweepResult) -> str:
    """The main table as a plain ``tabular`` that needs no package, behind headline and reservations as
    comments.
    """
    comments = [result.title, headline(result), *legend(result), *reservations(result)]
    lines = "".join(f"% {latex(cut(comment, limit=SENTENCE_LENGTH))}\n" for comment in comments)
    return lines + Table(columns=columns_of(result), rows=result.variation.cases).to_latex()


def sweep_csv(result: SweepResult) -> str:
    """One line for each setting, with all digits."""
    cases = result.variation.cases
    measures = [(task, measured) for task in result.ordered for measured in measures_of(result, task)]
    compared = [counts.compared for counts in compared_in(result)]
    rows = [
        {
            **_setting_figures(result, case),
            **_changes_of(case, measures, compared),
            **_run_figures(result, case),
        }
        for case in cases
    ]
    columns = [Column(name, itemgetter(name)) for name in (rows[0] if rows else {})]
    return Table(columns=columns, rows=rows).to_csv()


def _setting_figures(result: SweepResult, case: Case) -> dict[str, Any]:
    values = zip(result.variation.settings, case.values, strict=True)
    runs = result.runs_of(case, None)
    return {
        **{
            setting.name: Cell("", value=setting_text(value) if isinstance(value, str | list) else value)
            for setting, value in values
        },
        "runs": len(runs),
        "failed": case.failed,
        "seeds": " ".join(str(run.seed) for run in runs),
        "learning_rate taken": _mean([run.learning_rate for run in runs]),
    }


def _changes_of(
    case: Case, measures: Sequence[tuple[str, Measured]], compared: Sequence[tuple[str, str, str]]
) -> dict[str, Any]:
    """Changes of a case; percent columns are empty if no percentage is defined."""
    figures: dict[str, Any] = {}
    for task, measured in measures:
        changed, name = case.change(task, measured), f"{task}: {' '.join(filter(None, measured))}"
        low, high = (changed.interval if changed and changed.percent else None) or (None, None)
        figures |= {
            f"{name}, improvement %": changed and changed.improvement,
            f"{name}, low %": low,
            f"{name}, high %": high,
        }
        figures[f"{name}, difference"] = changed and changed.difference
        figures[f"{name}, verdict"] = changed and (changed.verdict or ("mixed" if changed.verdicts else None))
        figures |= {
            f"{name}, runs {verdict}": changed and changed.verdicts.get(verdict, 0)
            for verdict in ("better", "worse")
        }
    for task, comparison, similarity in compared:
        counts = pairs_of(case, (task, comparison, similarity))
        for side in ("improved", "worsened", "improved_z", "worsened_z"):
            figures[f"{task}: {comparison} {similarity}, {side}"] = (
                None if counts is None else getattr(counts, side)
            )
    return figures


def _run_figures(result: SweepResult, case: Case) -> dict[str, Any]:
    done, failed = result.runs_of(case), result.runs_of(case, "failed")
    drifts = in_order(name for every in result.variation.cases for name in every.drift)
    return {
        **{
            name: _mean([getattr(run, name) for run in done])
            for name in ("steps", "epochs", "best_epoch", "seconds", "trainable")
        },
        **{f"drift: {name}": case.drift.get(name) for name in drifts},
        "reason": "; ".join(dict.fromkeys(run.reason for run in failed)),
    }


def _mean(values: Sequence[int | float]) -> int | float | None:
    """The mean; for equal values the value itself, without rounding errors of a sum."""
    return fmean(values) if len(set(values)) > 1 else next(iter(values), None)
