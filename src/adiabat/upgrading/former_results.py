"""Results of adiabat 0.1 as records of today."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from adiabat.core.errors import ConfigError, DataError
from adiabat.core.formats import reader_of
from adiabat.core.misfits import misfits
from adiabat.results.record import FORMAT, Record, class_of
from adiabat.results.verdict import Reason
from adiabat.upgrading.settings import present_settings

MARKS = {
    "tuning": "training",
    "training": "training",
    "pairings": "suite",
    "varied": "sweep",
    "rungs": "rate-search",
    "crossings": "scaling",
    "distributions": "space",
    "teacher": "distillation",
}
"""Fields of records that had no kind, each with its kind; a record with data sets is an evaluation."""


RESAMPLES = 10_000
"""Default of 0.1."""


def present_record(plain: Mapping[str, Any], path: Path) -> Record:
    """Convert a record of any former format.

    Raises:
        DataError: If it is of a kind that adiabat has no longer, or lacks what a record of today must have.
    """
    kind = plain.get("kind") or _kind_of(plain)
    if kind is None:
        raise DataError(f"{path} is of a kind that adiabat has no longer; its page stays readable")
    former = {**plain, "kind": kind, "format": FORMAT}
    # That of an advice is a sentence.
    if isinstance(former.get("tuning"), Mapping):
        former["training"] = former.pop("tuning")
    if "rungs" in former:
        former["trials"] = former.pop("rungs")
    if kind == "suite":
        former["analysis"] = _with_even(former.get("analysis", {}))
    if kind == "sweep" and "variation" not in former:
        former = _without_comparison(former)
    for table in (former, former.get("training") or {}):
        table["settings"] = _settings(table.get("settings", {}))
    try:
        record: Record = reader_of(class_of(kind)).validate_json(
            json.dumps(_with_reasons(_with_verdicts(former), _of_runs(former))), strict=True
        )
    except ValidationError as fault:
        raise DataError(
            f"{path} cannot be converted ({misfits(fault)[0]}); its page stays readable"
        ) from fault
    return replace(record, folder=path.parent)


def _without_comparison(former: Mapping[str, Any]) -> dict[str, Any]:
    """A sweep of 0.1, whose settings are not compared; its runs describe its tasks.

    A record of today has a comparison of all models on all tasks. Its tables stay empty here, since the
    scores of each query, from which it follows, are gone with the models.
    """
    tasks: dict[str, dict[str, Any]] = {}
    for run in former.get("runs", []):
        for outcome in run["tasks"]:
            described = {name: outcome[name] for name in ("kind", "unit", "units")}
            main = {
                name: outcome["changes"][0][name] for name in ("measure", "similarity", "lower_is_better")
            }
            tasks.setdefault(outcome["task"], {"name": outcome["task"], "documents": 0, **described, **main})
    ranking: dict[str, Any] = {"against": None, "ranks": {}, "best": [], "even": [], "clear": False}
    return {
        **former,
        "tasks": list(tasks.values()),
        **{name: [] for name in ("models", "scores", "pairings")},
        "baseline": None,
        "resamples": former.get("settings", {}).get("measure", {}).get("resamples", RESAMPLES),
        "analysis": {"tasks": [{"task": name, **ranking} for name in tasks]},
        "variation": former.get("analysis", {}),
    }


def _kind_of(plain: Mapping[str, Any]) -> str | None:
    """The kind of a record of formats 1 to 3, by its fields."""
    if plain.get("datasets"):
        return "evaluation"
    kind = next((kind for mark, kind in MARKS.items() if mark in plain), None)
    is_plan = kind == "scaling" and str(plain.get("command", "")).startswith("adiabat plan")
    return "plan" if is_plan else kind


def _settings(former: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a record, which are shown alone; those without a counterpart stay."""
    try:
        return present_settings(former).tables
    except ConfigError:
        return dict(former)


def _with_verdicts(plain: Any, key: str = "") -> Any:
    """The verdict "no evidence" of 0.1 is "undecided" today."""
    if isinstance(plain, Mapping):
        # A table of verdicts has them as its keys, each with a count.
        is_count = key == "verdicts"
        return {
            _verdict(name) if is_count else name: _with_verdicts(value, name) for name, value in plain.items()
        }
    if isinstance(plain, list):
        return [_with_verdicts(value, key) for value in plain]
    return _verdict(plain) if key in ("verdict", "verdicts") else plain


def _verdict(value: Any) -> Any:
    """The word of today for a verdict."""
    return "undecided" if value == "no evidence" else value


def _of_runs(record: Mapping[str, Any]) -> list[Reason]:
    """Reasons that a record gave in sentences about its models."""
    known = [Reason.RUNS_DIFFER] if record.get("run_differences") else []
    if equal := record.get("equal_towers"):
        is_one = str(equal[0]).startswith("Model and baseline")
        known.append(Reason.ONE_MODEL if is_one else Reason.EQUAL_RUNS)
    return known


def _with_reasons(plain: Any, known: Sequence[Reason], *, is_retained: bool = False) -> Any:
    """Verdicts have reasons since format 6; before, other fields of the record implied them."""
    if isinstance(plain, list):
        return [_with_reasons(value, known, is_retained=is_retained) for value in plain]
    if not isinstance(plain, Mapping):
        return plain
    if "after_interval" in plain and "reasons" not in plain:
        return _judged(plain, known, is_retained=is_retained)
    # Corrected for all comparisons of the suite, which earlier versions said beside the verdict.
    if plain.get("significant") is False:
        return {**plain, "change": _uncorrected(_judged(plain["change"], known))}
    if "role" in plain and "changes" in plain:
        known, is_retained = [*known, *_of_dataset(plain)], plain["role"] == "retain"
    return {name: _with_reasons(value, known, is_retained=is_retained) for name, value in plain.items()}


def _of_dataset(dataset: Mapping[str, Any]) -> Iterator[Reason]:
    """Reasons that a data set implied."""
    trained, parts, doubt = (dataset.get(name) or [] for name in ("trained", "parts", "doubt"))
    if not all(overlap.get("is_proof", True) for overlap in trained):
        yield Reason.TRAINED_ON
    if any(overlap.get("unknown") or overlap.get("trained_relevant") is None for overlap in trained):
        yield Reason.TRAINING_UNKNOWN
    if parts and parts[0]["name"] in ("all queries", "other queries"):
        yield Reason.SEEN_DOCUMENTS
    if doubt:
        yield Reason.FEW_CLUSTERS if "too sure" in doubt else Reason.FEW_UNITS


def _judged(
    change: Mapping[str, Any], known: Sequence[Reason], *, is_retained: bool = False
) -> dict[str, Any]:
    """A change with the reasons of its verdict; one that was compared and had no verdict is undecided.

    Earlier versions withheld the verdict where the model had been trained on the set. A retention set could
    be "better" although a loss within its interval was not excluded.

    Args:
        known: Reasons that the record or the data set gave for all of its changes.
        is_retained: Whether the change is that of a retention set.
    """
    verdict, reasons = change.get("verdict"), set(known)
    if change.get("before") is None:
        return {**change, "reasons": [reason for reason in known if reason == Reason.FEW_CLUSTERS]}
    if verdict is None:
        verdict = "undecided"
        reasons.add(Reason.TRAINED_ON)
    elif verdict == "better" and is_retained and not _excludes_loss(change):
        reasons.add(Reason.LOSS_POSSIBLE)
    elif verdict == "undecided":
        reasons.add(Reason.NO_MARGIN if change.get("margin") is None else Reason.LOSS_POSSIBLE)
    return {**change, "verdict": verdict, "reasons": [reason for reason in Reason if reason in reasons]}


def _uncorrected(change: Mapping[str, Any]) -> dict[str, Any]:
    """A change of a suite that does not hold among all of its comparisons."""
    if change["verdict"] not in ("better", "worse"):
        return dict(change)
    if _excludes_loss(change):
        return {**change, "verdict": "not worse", "reasons": [Reason.MANY_COMPARISONS]}
    reasons = [Reason.MANY_COMPARISONS, Reason.LOSS_POSSIBLE]
    return {**change, "verdict": "undecided", "reasons": reasons}


def _excludes_loss(change: Mapping[str, Any]) -> bool:
    """Whether the bound on the loss lies within the margin."""
    bound, margin = change.get("loss_bound"), change.get("margin")
    return bound is not None and margin is not None and bound < margin


def _with_even(analysis: Mapping[str, Any]) -> dict[str, Any]:
    """Tables of a suite named models that are neither better nor worse "not worse", which is another verdict
    today.
    """
    renamed = {}
    for name, rows in analysis.items():
        renamed[name] = [_renamed(row) for row in rows] if isinstance(rows, list) else rows
    return renamed


def _renamed(row: Any) -> Any:
    """A row of a table with ``even`` in place of ``not_worse``."""
    if not isinstance(row, Mapping) or "even" in row or "not_worse" not in row:
        return row
    return {("even" if key == "not_worse" else key): value for key, value in row.items()}
