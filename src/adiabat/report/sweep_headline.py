"""The headline of a sweep, which is that of a suite and a clause about harm, and its reservations."""

from collections import Counter

from adiabat.core.text import counted
from adiabat.report import suite_headline
from adiabat.report.captions import text_of
from adiabat.report.format import cut_name, joined, listed, named
from adiabat.report.pages import Tone
from adiabat.report.sweep_tables import case_label, change_cell
from adiabat.results.sweep_result import Case, SweepResult

REASON_LENGTH = 160
"""Maximum characters of a failure's reason in a sentence."""


def headline(result: SweepResult) -> str:
    """How the runs ended, the best of the settings, and those without harm."""
    runs, failed = len(result.runs), len(result.runs_of(status="failed"))
    ended = f"{counted(runs - failed, 'run')} completed, {failed} failed."
    if not failed:
        ended = f"{counted(runs, 'run')} completed."
    if failed == runs:
        return joined(ended, _failures(result))
    best = suite_headline.headline(suite_headline.Overview(result)) if result.pairings else ""
    return joined(ended, best, _harm(result))


def _harm(result: SweepResult) -> str:
    """How many settings did no harm, and the changes by that which gained most; "" without other tasks."""
    view, best = result.variation, result.variation.best_case
    if not result.others:
        return ""
    harmless = sum(case.harmless for case in view.cases)
    settings = counted(len(view.cases), "setting")
    targets = listed([*map(named, result.targets)])
    clause = f"Without measurable harm to tasks beside {targets}: {harmless} of {settings}"
    if best is None:
        return f"{clause}."
    changes = listed([_change(best, task) for task in result.ordered])
    label = cut_name(case_label(view, best), limit=200)
    return f"{clause}; of these, {label} gains most: {changes}."


def _change(case: Case, task: str) -> str:
    """A task with its change, the verdicts of its runs in words, and its interval or range."""
    change = case.change(task)
    cell = change_cell(change)
    counts = {} if change is None else change.verdicts
    verdicts: list[str] = list(counts)
    # Runs that disagree are counted.
    if len(counts) > 1:
        verdicts = [f"{word} in {count}" for word, count in counts.items()]
    known = "; ".join(["; ".join(verdicts), *cell.sub]) if counts else "no verdict"
    return f"{named(task)} {cell.text} ({known})"


def tone(result: SweepResult) -> Tone:
    """Whether the headline is good news."""
    view = result.variation
    if not result.runs_of() or (result.others and all(case.worse for case in view.cases)):
        return "bad"
    if not result.others:
        starts = [name for ranking in result.analysis.tasks for name in ranking.best if name in result.starts]
        # Where training helped too little to pass an untrained model, a clear winner is no good news.
        return "plain" if starts else suite_headline.tone(result)
    if view.best_case is None:
        return "plain"
    verdicts = []
    for task in result.targets:
        change = view.best_case.change(task)
        verdicts.append(change is not None and change.verdict == "better")
    return "good" if verdicts and all(verdicts) else "plain"


def reservations(result: SweepResult) -> list[str]:
    """Limits of the evidence that the headline leaves out."""
    if not result.runs_of():
        return list(result.notes)
    sentences = [_below_start(result), text_of("sweep", "verdicts"), _open_loss(result), _failures(result)]
    compared = suite_headline.reservations(result) if result.pairings else result.notes
    return [sentence for sentence in [*sentences, *compared] if sentence]


def _open_loss(result: SweepResult) -> str:
    """The largest loss on another task that intervals of the best setting leave open; "" without one."""
    best = result.variation.best_case
    if best is None:
        return ""
    losses = []
    for run in result.runs_of(best):
        for outcome in run.tasks:
            interval = outcome.main.improvement_interval
            if outcome.task in result.others and interval is not None and not outcome.main.not_worse:
                # The low end of an improvement is the largest loss, with its sign turned.
                losses.append((-interval[0], outcome.task))
    loss, task = max(losses, default=(0.0, ""))
    return text_of("sweep", "open-loss", loss=f"{loss:.1f}", task=named(task)) if loss > 0 else ""


def _below_start(result: SweepResult) -> str:
    """Settings that training made worse are no good choice, whatever their rank among the others."""
    worse = []
    for case in result.variation.cases:
        changes = [case.change(task) for task in result.targets]
        if any(change is not None and "worse" in change.verdicts for change in changes):
            worse.append(named(case_label(result.variation, case)))
    return f"Worse than their start on a target: {listed(worse)}." if worse else ""


def _failures(result: SweepResult) -> str:
    """Why runs failed."""
    reasons = Counter(cut_name(run.reason, limit=REASON_LENGTH) for run in result.runs_of(status="failed"))
    causes = [f"{reason} ({counted(times, 'run')})" for reason, times in reasons.most_common()]
    return f"Failed: {listed(causes)}." if causes else ""
