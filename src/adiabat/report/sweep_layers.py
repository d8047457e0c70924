"""Which tensors a sweep changed most at each setting: the source's tables 14 and 15, and the same by the Frobenius norm.

Reference: Vasilyev et al. 2024.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from adiabat.report.sweep_cases import Case, Overview
from adiabat.results.evaluation_result import LayerChange

MOST = 2
"""Tensors that are named for each setting."""


@dataclass(frozen=True, slots=True)
class LayerMeasure:
    """A way to say how much a tensor changed.

    Attributes:
        title: In words.
        formula: Of one run.
        of: The value; None where it has none.
    """

    title: str
    formula: str
    of: Callable[[LayerChange], float | None]


MEASURES = (
    LayerMeasure("Largest weight", "largest |weight| after tuning, of tensors that changed", lambda layer: layer.largest_after),
    LayerMeasure(
        "Change of the largest weight", "|(Wt - Wo) / (Wt + Wo)| of the largest |weights|", lambda layer: abs(layer.largest_change)
    ),
    LayerMeasure("Relative change", "||after - before|| / ||before||, Frobenius norm", lambda layer: layer.relative),
)


@dataclass(frozen=True, slots=True)
class MostChanged:
    """What changed most at one setting, by one measure.

    Attributes:
        case: The setting.
        tensors: Name and value, a mean over runs, the largest first; at most `MOST`.
    """

    case: Case
    tensors: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class LayerTable:
    """All settings by one measure.

    Attributes:
        measure: That sorts the tensors.
        rows: Of settings at which a tensor changed.
    """

    measure: LayerMeasure
    rows: tuple[MostChanged, ...]


def most_changed(view: Overview) -> tuple[list[LayerTable], str]:
    """The most changed tensors of each setting by each measure."""
    tables = [LayerTable(measure, tuple(_rows(view.cases, measure))) for measure in MEASURES]
    tables = [table for table in tables if table.rows]
    cut = prefix_of([name for table in tables for row in table.rows for name, _ in row.tensors])
    return [_shortened(table, cut) for table in tables], cut


def _rows(cases: Sequence[Case], measure: LayerMeasure) -> list[MostChanged]:
    found = [MostChanged(case, _top(case, measure)) for case in cases]
    return [row for row in found if row.tensors]


def _top(case: Case, measure: LayerMeasure) -> tuple[tuple[str, float], ...]:
    values: dict[str, list[float]] = {}
    for layer in (layer for run in case.done for layer in run.layers if changed(layer)):
        if (value := measure.of(layer)) is not None:
            values.setdefault(layer.name, []).append(value)
    means = {name: fmean(own) for name, own in values.items()}
    # Equal ones keep the order of the model.
    return tuple(sorted(means.items(), key=lambda one: -one[1])[:MOST])


def changed(layer: LayerChange) -> bool:
    """Whether tuning moved a tensor."""
    return layer.largest_after > 0 if layer.relative is None else layer.relative > 0


def _shortened(table: LayerTable, cut: str) -> LayerTable:
    rows = (MostChanged(row.case, tuple((name.removeprefix(cut), value) for name, value in row.tensors)) for row in table.rows)
    return LayerTable(table.measure, tuple(rows))


def prefix_of(names: Sequence[str]) -> str:
    """What stands before the number of the block in most names that have one."""
    found: Counter[str] = Counter()
    for name in dict.fromkeys(names):
        parts = name.split(".")
        index = next((index for index, part in enumerate(parts) if part.isdecimal()), 0)
        if index:
            found[".".join(parts[:index]) + "."] += 1
    return found.most_common(1)[0][0] if found else ""
