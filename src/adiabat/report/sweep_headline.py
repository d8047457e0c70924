"""The headline and reservations of a sweep, and outcomes as its sentences and tables write them."""

from collections import Counter
from collections.abc import Sequence

from adiabat.core.text import DASH, NO_BREAK, counted, integer
from adiabat.report import ranking_headline
from adiabat.report.format import MOST_NAMED, VERDICT_MARKS, cut_name, decimals_for, interval, listed, named, signed
from adiabat.report.page import Tone
from adiabat.report.sweep_cases import (
    Case,
    Outcome,
    Overview,
    Setting,
    case_cell,
    case_head,
    case_label,
    comparisons_of,
    grouped,
    outcome,
    pair_counts,
    rate_setting,
    setting_value,
)
from adiabat.results.sweep_result import Ranking

REASON_LENGTH = 160
"""Characters of a reason that a sentence shows."""


def gain(changed: Outcome) -> str:
    """The mean improvement of a case."""
    if changed.mean is None:
        return DASH
    return signed(changed.mean, decimals=_decimals(changed)) + (f"{NO_BREAK}%" if changed.percent else "")


def gain_bounds(changed: Outcome) -> str:
    """The interval of one run, or the range of several."""
    if changed.bounds is None:
        return ""
    decimals = _decimals(changed)
    if len(changed.changes) == 1:
        return interval(changed.bounds, decimals=decimals)
    low, high = (signed(bound, decimals=decimals) for bound in changed.bounds)
    return f"{low} to{NO_BREAK}{high}"


def _decimals(changed: Outcome) -> int:
    numbers = [*changed.values, *(changed.bounds or ())]
    return decimals_for(numbers, least=1, most=3) if changed.percent else decimals_for(numbers, least=4, most=6)


def verdict_marks(changed: Outcome) -> str:
    """Verdicts of the runs of a case; of several verdicts each with its count."""
    counts = changed.verdicts
    if len(counts) < 2:
        return "".join(VERDICT_MARKS[verdict] for verdict in counts)
    order = ("better", "no evidence", "worse")
    return " ".join(f"{VERDICT_MARKS[verdict]}{counts[verdict]}" for verdict in order if counts[verdict])  # type: ignore[index]


def verdict_words(changed: Outcome) -> str:
    """Verdicts of the runs of a case in words."""
    counts = changed.verdicts
    if len(counts) < 2:
        return next(iter(counts), "no verdict")
    first, *others = [verdict for verdict in ("better", "no evidence", "worse") if counts[verdict]]
    return f"{first} in {counts[first]} of {counts.total()} seeds" + "".join(f", {verdict} in {counts[verdict]}" for verdict in others)  # type: ignore[index]


def count(value: float | None) -> str:
    """A mean of counts, such as ``222`` or ``221.7``; a dash for None."""
    if value is None:
        return DASH
    return integer(int(value)) if value == int(value) else f"{value:,.1f}"


def sides(improved: float | None, worsened: float | None) -> str:
    """Improved and worsened language pairs."""
    return DASH if improved is None or worsened is None else f"{count(improved)}/{count(worsened)}"


def headline(view: Overview) -> str:
    """How the runs ended, up to which setting no other task got worse, and the best of those settings."""
    if not view.done:
        return _ended(view)
    if ranking := _train_ranking(view):
        return f"{_ended(view)} {ranking_headline.headline(ranking)}"
    rate = rate_setting(view)
    if not view.others:
        harm = "Only tasks that tuning is for were measured, so what it does elsewhere is not known."
    else:
        harm = _harm_by_rate(view, rate) if rate and _is_crossed(view, rate) else _harm_by_setting(view)
    return " ".join(filter(None, [_ended(view), harm, _best(view)]))


def tone(view: Overview) -> Tone:
    """Whether the headline is good news."""
    if ranking := _train_ranking(view):
        return ranking_headline.tone(ranking)
    best = best_of(view)
    if not view.done or (view.others and all(view.worse(case) for case in view.cases)):
        return "bad"
    if best is None or not view.others or not view.result.targets:
        return "plain"
    outcomes = [outcome(best, task) for task in view.result.targets]
    return "good" if all(changed is not None and changed.verdict == "better" for changed in outcomes) else "plain"


def _train_ranking(view: Overview) -> Ranking | None:
    return view.result.ranking if view.result.verb == "train" else None


def _is_crossed(view: Overview, rate: Setting) -> bool:
    """Whether every combination of the other settings is tried at every rate; else these may explain the harm at a rate."""
    others = [index for index, setting in enumerate(view.settings) if setting is not rate]
    return len(view.cases) == len(grouped(view.cases, others)) * len(rate.values)


def best_of(view: Overview) -> Case | None:
    """The case with the largest gain among those that made no other task worse; None without such a case, or without gains."""
    cases = [case for case in view.cases if (view.harmless(case) if view.others else not case.failed) and view.gain(case) is not None]
    return max(cases, key=lambda case: view.gain(case) or 0.0, default=None)


def _ended(view: Overview) -> str:
    runs, failed = len(view.result.runs), len(view.failed)
    if not runs:
        return "No run was made."
    if not failed:
        return "The one run did not fail." if runs == 1 else f"None of {counted(runs, 'run')} failed."
    if failed < runs:
        return f"{failed} of {counted(runs, 'run')} failed."
    reasons = dict.fromkeys(cut_name(run.reason, limit=REASON_LENGTH) for run in view.failed)
    return f"{'The one run' if runs == 1 else f'All {runs:,} runs'} failed: {listed(list(reasons))}."


def _harm_by_rate(view: Overview, rate: Setting) -> str:
    """The largest rate at which no other task got worse, whatever the other settings and the seed."""
    index = view.settings.index(rate)
    cases = {value: [case for case in view.cases if case.values[index] == value] for value in rate.values}
    rates = list(cases)
    safe = [value for value in rates if all(map(view.harmless, cases[value]))]
    if not safe:
        where = f"at the smallest, {setting_value(rates[0])}, {_harm(view, cases[rates[0]])}"
        if all(_worse(view, cases[value]) for value in rates):
            return f"Each of {len(rates)} learning rates made another task measurably worse: even {where}."
        return f"No learning rate of {len(rates)} is known to do no harm: {where}."
    if len(safe) == len(rates):
        return f"At no learning rate of {len(rates)}, up to {setting_value(safe[-1])}, did a run make another task measurably worse."
    largest = rates.index(safe[-1])
    clause = f"Of {len(rates)} learning rates, {setting_value(safe[-1])} is the largest at which no run made another task measurably worse"
    above = [f"at {setting_value(value)}, {_harm(view, cases[value])}" for value in rates[largest + 1 : largest + 2]]
    below = [f"at {setting_value(value)}, {_harm(view, cases[value])}" for value in rates[:largest] if value not in safe]
    return "; ".join([clause, *above, *([f"below it, {listed(below)}"] if below else [])]) + "."


def _harm(view: Overview, cases: Sequence[Case]) -> str:
    """Why a rate is not harmless."""
    worse = _worse(view, cases)
    if worse:
        return f"{listed([*map(named, worse)])} got worse"
    return "a run failed" if any(case.failed for case in cases) else "a run lacks a verdict"


def _worse(view: Overview, cases: Sequence[Case]) -> list[str]:
    return list(dict.fromkeys(task for case in cases for task in view.worse(case)))


def _harm_by_setting(view: Overview) -> str:
    harmless, harmful = (sum(map(bool, map(judge, view.cases))) for judge in (view.harmless, view.worse))
    cases = len(view.cases)
    if cases == 1:
        if worse := listed([*map(named, view.worse(view.cases[0]))]):
            return f"{worse} got measurably worse."
        return "No other task got measurably worse." if harmless else "Not all of it is known, so harm is not ruled out."
    if harmless:
        which = "each" if harmless == cases else f"{harmless}"
        return f"Of {counted(cases, 'setting')}, {which} made no other task measurably worse in any run."
    if harmful == cases:
        return f"Each of {counted(cases, 'setting')} made another task worse."
    return f"None of {counted(cases, 'setting')} is known to do no harm: {harmful} made another task worse, of the others not all is known."


def _best(view: Overview) -> str:
    """What the best setting changes on targets and other tasks."""
    targets = [task for task in view.ordered if task in view.result.targets]
    target = "the target" if len(targets) == 1 else "the targets in the mean"
    without = " without such harm" * (bool(view.others) and not all(map(view.harmless, view.cases)))
    best = best_of(view)
    if best is None:
        best = max((case for case in view.cases if view.gain(case) is not None), key=lambda case: view.gain(case) or 0.0, default=None)
        if best is None:
            return ""
        clause = f"{target} gained most with {_setting(view, best)}"
    elif (view.gain(best) or 0.0) <= 0:
        clause = f"nothing{without} gained on {target}; least was lost with {_setting(view, best)}"
    elif len(view.cases) == 1:
        clause = f"{target} gained"
    else:
        clause = f"{without}, {_setting(view, best)} gained most on {target}".removeprefix(", ").strip()
    others = [_change(best, task) for task in view.others]
    rest = f" and {len(others) - MOST_NAMED} more in the table" if len(others) > MOST_NAMED else ""
    elsewhere = f"; elsewhere {', '.join(others[:MOST_NAMED])}{rest}" if others else ""
    return f"{clause[0].upper()}{clause[1:]}: {', '.join(_change(best, task, bounds=True) for task in targets)}{elsewhere}."


def _setting(view: Overview, case: Case) -> str:
    """A case by its rate alone where nothing else varies; other values bear their names."""
    rate = rate_setting(view)
    only_rate = rate is not None and case_head(view) == rate.label
    return cut_name(case_cell(view, case) if only_rate else case_label(view, case), limit=200)


def _change(case: Case, task: str, *, bounds: bool = False) -> str:
    """A task with its change, verdict and language pairs."""
    changed = outcome(case, task)
    if changed is None:
        return f"{named(task)} not measured"
    ends, one_run = gain_bounds(changed) * bounds, len(changed.changes) == 1
    compared = [pair_counts(case.runs, comparison) for comparison in comparisons_of(case.runs, [task])]
    judged = [counts for counts in compared if counts is not None and counts.improved is not None]
    pairs = [f"of {counted(c.pairs, 'language pair')} {count(c.improved)} better, {count(c.worsened)} worse" for c in judged[:1]]
    change = " ".join(filter(None, [gain(changed), ends * one_run]))
    return f"{named(task)} {change} ({'; '.join(filter(None, [ends * (not one_run), verdict_words(changed), *pairs]))})"


def reservations(view: Overview) -> list[str]:
    """Limits of the evidence that the headline leaves out."""
    if not view.done:
        return list(view.result.notes)
    ranked = ranking_headline.reservations(view.result.ranking) if view.result.ranking is not None else []
    sentences = [_verdicts(view), *_about_best(view), _seeds(view), _choice(view), _failures(view), _without_percent(view)]
    return [sentence for sentence in [*ranked, *sentences, *view.result.notes] if sentence]


def _verdicts(view: Overview) -> str:
    outcomes = (outcome(case, task) for case in view.cases for task in view.result.tasks)
    judged = sum(changed.verdicts.total() for changed in outcomes if changed is not None)
    if judged < 2:
        return ""
    return (
        "Each verdict is of one run on one task by itself: where tuning changes nothing, about one comparison in 20 is told as a finding "
        f"all the same, and there are {judged} here."
    )


def _about_best(view: Overview) -> list[str]:
    """The largest loss that intervals of the best setting leave open, and language pairs that it made worse."""
    best, sentences = best_of(view), []
    if best is None:
        return []
    where, several = _setting(view, best), len(view.cases) > 1
    outcomes = [(task, changed) for task in view.others if (changed := outcome(best, task))]
    intervals = [(change.improvement_interval, task) for task, changed in outcomes for change in changed.changes]
    losses = [(-bounds[0], task) for bounds, task in intervals if bounds is not None and bounds[0] < 0]
    if losses:
        loss, task = max(losses)
        sentences.append(
            f"\u201cNot measurably worse\u201d is not \u201cnot worse\u201d:{f' for {where},' * several} intervals leave room for a loss "
            f"of {loss:.1f}{NO_BREAK}% ({named(task)})."
        )
    worsened = [
        f"{named(task)} {count(counts.worsened)} of {counts.pairs} ({cut_name(', '.join(filter(None, by)), limit=80)})"
        for task, *by in comparisons_of(best.done, view.others)
        if (counts := pair_counts(best.done, (task, by[0], by[1]))) and counts.worsened
    ]
    if worsened:
        setting = f"with {where}" if several else "here"
        sentences.append(f"A grid that is no worse as a whole may hold language pairs that are; {setting}: {listed(worsened)}.")
    return sentences


def _seeds(view: Overview) -> str:
    seeds = max(len(case.runs) for case in view.cases)
    if seeds == 1:
        return "Every setting is one run: intervals hold what differs from unit to unit, not what another seed of tuning would change."
    return f"Values are means of up to {counted(seeds, 'run')}; behind them stands the range of runs, which is no interval."


def _choice(view: Overview) -> str:
    if best_of(view) is None or len(view.cases) < 2:
        return ""
    return "The best setting was picked by the same values that are shown, so its lead is a little flattered; other data would tell."


def _failures(view: Overview) -> str:
    if not view.failed:
        return ""
    reasons = Counter(cut_name(run.reason, limit=REASON_LENGTH) for run in view.failed)
    causes = listed([f"{reason} ({counted(times, 'run')})" for reason, times in reasons.most_common()])
    return f"Failed: {causes}." + " A setting of which a run failed does not count as one that does no harm." * bool(view.others)


def _without_percent(view: Overview) -> str:
    outcomes = [(task, outcome(case, task)) for task in view.ordered for case in view.cases]
    lacking = dict.fromkeys(named(task) for task, changed in outcomes if changed and not changed.percent)
    if not lacking:
        return ""
    return (
        f"There is no percent where the untuned tower scores 0: on {listed(list(lacking))}, tables show differences, and figures nothing."
    )
