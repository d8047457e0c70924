"""The headline of an evaluation and its reservations, computed so that they never claim more than the numbers
allow.

A clause tells a verdict, its numbers and its reasons. What the reasons mean stands in `verdict_words`, and
how many units they concern stands in the tables of the page.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from adiabat.core.margin import DEFAULT_MARGIN, Margin
from adiabat.core.text import NO_BREAK, counted, integer, two_digits, verb
from adiabat.report.captions import sentences
from adiabat.report.format import bounds, improvement, joined, named, number, possible_losses
from adiabat.report.pages import Tone, gathered
from adiabat.report.verdict_words import SENTENCES
from adiabat.results.evaluation_result import DatasetResult, Result
from adiabat.results.verdict import Reason, Word

_ARROW = f"{NO_BREAK}\N{RIGHTWARDS ARROW} "

_FINDINGS: Mapping[Word | None, str] = {
    "better": "got better",
    "not worse": "shows no gain, and a loss of more than {margin} is excluded",
    "worse": "got worse",
}
"""Verdicts in words; all others are undecided."""

RANKINGS = {"dot": "dot product", "distance": "Euclidean distance"}
"""Names of similarities other than cosine in sentences."""


def headline(result: Result) -> str:
    """The verdict in one sentence."""
    if not result.datasets:
        return "Nothing was measured."
    compared = [dataset for dataset in result.datasets if dataset.main_change().before is not None]
    if not compared:
        levels = "; ".join(map(_level, result.datasets))
        return f"{levels}. There is no baseline, so the change is unknown."
    margin = margin_of(result.settings)
    clauses = _target_clauses([dataset for dataset in compared if dataset.role == "target"], margin)
    # Losses of a part are told before the gains of the whole.
    for dataset in compared:
        clauses += _worse_within(dataset)
    clauses += _retention_clauses([dataset for dataset in compared if dataset.role == "retain"], margin)
    return f"{'; '.join(clauses)}."


def tone(result: Result) -> Tone:
    """Whether the headline is good news."""
    verdicts: dict[str, set[Word | None]] = {"target": set(), "retain": set()}
    for dataset in result.datasets:
        verdict = dataset.main_change().verdict
        verdicts[dataset.role].add(verdict)
        if verdict == "worse" or dataset.worse_cells() or dataset.worse_parts():
            return "bad"
    # A verdict with a doubt is no good news, whatever its word.
    is_proven = not any(dataset.doubts for dataset in result.datasets)
    is_kept = verdicts["retain"] <= {"better", "not worse"}
    return "good" if is_proven and is_kept and verdicts["target"] == {"better"} else "plain"


def reservations(result: Result) -> list[str]:
    """Reservations that an honest reader should know."""
    sentences = [*caveats(result), _room_for_loss(result.datasets)]
    sentences += map(_unmoved, result.datasets)
    sentences += map(_other_measures_worse, result.datasets)
    return [sentence for sentence in sentences if sentence]


def _level(dataset: DatasetResult) -> str:
    """The value of a data set without a baseline, with its interval."""
    change = dataset.main_change()
    ends = bounds(change.after_interval, partial(number, digits=3))
    return joined(f"{named(dataset.name)}: {change.measure} {number(change.after, digits=3)}", ends)


def caveats(result: Result) -> list[str]:
    """Notes that always accompany the headline, also in the terminal."""
    lines = []
    if result.runs:
        runs = len(result.runs) + 1
        lines.append(f"Values are means over {runs} runs of the model, and intervals cover queries and runs.")
    lines += [f"{sentence}." for sentence in (*result.equal_towers, *result.run_differences)]
    about = [(named(dataset.name), _notes(dataset)) for dataset in result.datasets]
    for names, note in gathered(about, everyone="All data sets"):
        lines.append(f"{names}: {note}.")
    return lines


def _notes(dataset: DatasetResult) -> list[str]:
    """How a data set was ranked, and what the models trained on of it."""
    notes = []
    if dataset.kind == "pairs":
        store = f"not the {integer(dataset.documents)} documents of the store"
        ranks_all = "set measure.negatives = store to rank them all"
        notes.append(f"only each query's listed candidates were ranked, {store}; {ranks_all}")
    notes += [overlap.said for overlap in dataset.trained]
    if dataset.unlabelled:
        further = counted(dataset.unlabelled, "query")
        notes.append(f"{further} without judgements bound the losses that the others may have missed")
    if dataset.left_out:
        were = verb(dataset.left_out, "was", "were")
        notes.append(f"{counted(dataset.left_out, 'query')} that a model was trained on {were} left out")
    similarity = dataset.main_change().similarity
    if similarity in RANKINGS:
        notes.append(f"documents were ranked by {RANKINGS[similarity]}")
    return notes


def _target_clauses(targets: Sequence[DatasetResult], margin: str) -> list[str]:
    """The verdict on each target with its numbers."""
    if not targets:
        return ["No target was measured"]
    clauses = []
    for dataset in targets:
        change = dataset.main_change()
        before = number(change.before or 0.0, digits=3)
        moved = f"{change.measure} {before}{_ARROW}{number(change.after, digits=3)}, {improvement(change)}"
        clauses.append(f"The target {named(dataset.name)} {_finding(dataset, margin)}: {moved}")
    return clauses


def _finding(dataset: DatasetResult, margin: str) -> str:
    """The verdict on a data set in words, with the part that it rests on, and why it says no more."""
    change = dataset.main_change()
    finding = _FINDINGS.get(change.verdict, "is undecided").format(margin=margin)
    if dataset.parts:
        finding += f" on {sentences('parts')[dataset.parts[0].name]}"
    why = _reasons(dataset)
    if change.needed is not None:
        noun = "premise" if dataset.kind == "grid" else "query"
        units = dataset.units or 0
        # Two digits may round down to the units there are, which did not decide.
        needed = counted(max(two_digits(change.needed), units + 1), noun)
        why.append(f"needs about {needed}, has {integer(units)}" if units else f"needs about {needed}")
    return f"{finding} ({'; '.join(why)})" if why else finding


def _reasons(dataset: DatasetResult) -> list[str]:
    """What limits the verdicts on a data set and on its language pairs."""
    reasons = [*dataset.doubts]
    for grid in dataset.grid:
        reasons += grid.reasons
    if dataset.main_change().verdict == "undecided":
        # The word itself says that a loss is possible.
        reasons = [reason for reason in reasons if reason is not Reason.LOSS_POSSIBLE]
    return [SENTENCES[reason] for reason in dict.fromkeys(reasons)]


def _worse_within(dataset: DatasetResult) -> list[str]:
    """Language pairs and parts that got worse although the data set as a whole did not."""
    clauses = []
    worse = dataset.worse_cells()
    if worse and dataset.main_change().verdict != "worse":
        cells = counted(dataset.cells, "language pair")
        clauses.append(f"{integer(worse)} of {cells} of {named(dataset.name)} got worse")
    for part in dataset.worse_parts():
        if part != dataset.parts[0].name:
            clauses.append(f"{named(dataset.name)} got worse on {sentences('parts')[part]}")
    return clauses


def _retention_clauses(retained: Sequence[DatasetResult], margin: str) -> list[str]:
    """How the retention sets came out: worse ones, those without a loss, and each of the others."""
    if not retained:
        return ["no retention set was measured, so effects on other tasks are unknown"]
    worse, held, others = [], [], []
    for dataset in retained:
        change = dataset.main_change()
        if change.verdict == "worse":
            worse.append(dataset)
        elif change.verdict in ("better", "not worse") and Reason.LOSS_POSSIBLE not in change.doubts:
            held.append(dataset)
        else:
            others.append(f"{named(dataset.name)} {_finding(dataset, margin)}")
    clauses = []
    if worse:
        losses = [f"{named(one.name)} ({one.main} {improvement(one.main_change())})" for one in worse]
        clauses.append(f"{_share(len(worse), len(retained))} got worse: {', '.join(losses)}")
    if held:
        clauses.append(f"not worse by more than {margin} on {_share(len(held), len(retained))}")
    limits = [(named(dataset.name), _reasons(dataset)) for dataset in (*worse, *held)]
    for names, sentence in gathered(limits, everyone="each of these"):
        clauses.append(f"{names}: {sentence}")
    return clauses + others


def _share(some: int, total: int) -> str:
    """So many of the retention sets."""
    if total == 1:
        return "the retention set"
    if some == total == 2:
        return "both retention sets"
    return f"all {total} retention sets" if some == total else f"{some} of {total} retention sets"


def margin_of(settings: Mapping[str, Any]) -> str:
    """The margin of the measures that decide, as the settings of the result say it."""
    measure = settings.get("measure", {})
    share = measure.get("margin", DEFAULT_MARGIN.share)
    if isinstance(share, str):
        # A record of 0.1 that is read as it is has the text of its settings.
        return share
    return str(Margin(share, measure.get("margin_absolute")))


def _room_for_loss(datasets: Sequence[DatasetResult]) -> str:
    """The loss that the data allow on undecided retention sets, which are not proven to be unchanged."""
    losses, explanation = [], ""
    for dataset in datasets:
        change = dataset.main_change()
        is_open = dataset.role == "retain" and change.verdict == "undecided"
        if is_open and change.loss_bound is not None and change.loss_bound > 0:
            about = f"{named(dataset.name)}, {change.measure}"
            allowed, by_spread = possible_losses(change)
            if by_spread not in ("", allowed):
                about += f"; {by_spread} judging by these queries alone"
                explanation = (
                    " The larger figure adds large losses that are too rare to be among the queries."
                )
            losses.append(f"{allowed} ({about})")
    if not losses:
        return ""
    allowed = f"at one-sided 95{NO_BREAK}% the data allow a loss of up to {', '.join(losses)}"
    return f"Undecided does not mean unchanged: {allowed}.{explanation}"


def _unmoved(dataset: DatasetResult) -> str:
    """The loss that is excluded on a set whose queries all kept their values."""
    change = dataset.main_change()
    if not (change.verdict == "not worse" and change.gained == change.lost == 0 and change.loss_bound):
        return ""
    allowed, _ = possible_losses(change)
    excluded = f"at one-sided 95{NO_BREAK}% a loss of more than {allowed} is excluded"
    return f"On {named(dataset.name)} no query gained or lost: {excluded}."


def _other_measures_worse(dataset: DatasetResult) -> str:
    """The measures beside the main one that got worse, unless the main one did too."""
    main, worse = dataset.main_change(), []
    # If the main measure got worse, the verdict says so already.
    for change in dataset.changes:
        if change.verdict == "worse" and change is not main:
            worse.append(f"{change.measure} by {change.similarity} ({improvement(change)})")
    if not worse or main.verdict == "worse":
        return ""
    return f"On {named(dataset.name)} other measures got worse: {', '.join(worse)}."
