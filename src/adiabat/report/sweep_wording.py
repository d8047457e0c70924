"""What a sweep says, in sentences: the head line and what an honest reader should know beside it, never more than its runs allow."""

from collections import Counter
from collections.abc import Sequence

from adiabat.core.text import NO_BREAK, counted
from adiabat.report import ranking_headline
from adiabat.report.format import MOST_NAMED, cut_name, listed, named
from adiabat.report.page import Tone
from adiabat.report.sweep_cases import Case, Overview, Setting, comparisons_of, key_of, outcome, pair_counts
from adiabat.report.sweep_values import case_cell, case_head, case_label, count, gain, gain_bounds, setting_value, verdict_words
from adiabat.results.sweep_result import Ranking, Value

REASON_LENGTH = 160
"""Characters of a reason that a sentence shows."""


def headline(view: Overview) -> str:
    """How the runs ended, up to which setting nothing else got worse, and the best of those settings."""
    if not view.done:
        return _ended(view)
    if ranking := _decisive(view):
        return f"{_ended(view)} {ranking_headline.headline(ranking)}"
    rate = rate_of(view)
    alone = "Only tasks that tuning is for were measured, so what it does elsewhere is not known."
    about = alone if not view.others else _about_rates(view, rate) if rate and _crossed(view, rate) else _about_settings(view)
    return " ".join(filter(None, [_ended(view), about, _best(view)]))


def tone(view: Overview) -> Tone:
    """Whether the head line is good news."""
    if ranking := _decisive(view):
        return ranking_headline.tone(ranking)
    best = best_of(view)
    if not view.done or (view.others and all(view.worse(case) for case in view.cases)):
        return "bad"
    if best is None or not view.others or not view.result.targets:
        return "plain"
    found = [outcome(best, task) for task in view.result.targets]
    return "good" if all(one is not None and one.verdict == "better" for one in found) else "plain"


def _decisive(view: Overview) -> Ranking | None:
    """The ranking of a sweep over training runs, which is what such a sweep is for."""
    return view.result.ranking if view.result.verb == "train" else None


def rate_of(view: Overview) -> Setting | None:
    """The learning rate, where it varies.

    Returns:
        None where it does not, or where some of its values are no numbers.
    """
    rates = (one for one in view.settings if one.name.endswith("learning_rate") and one.numeric and len(one.values) > 1)
    return next(rates, None)


def _crossed(view: Overview, rate: Setting) -> bool:
    """Whether all other settings are tried at every rate: else the harm at a rate may be that of what else is tried there."""
    place = view.settings.index(rate)
    others = {tuple(key_of(value) for number, value in enumerate(case.values) if number != place) for case in view.cases}
    return len(view.cases) == len(others) * len(rate.values)


def best_of(view: Overview) -> Case | None:
    """The setting that gains most on the targets among those that made nothing else worse.

    Returns:
        None where there is no such setting, or nothing is known of the targets.
    """
    cases = [case for case in view.cases if (view.harmless(case) if view.others else not case.failed) and view.gain(case) is not None]
    return max(cases, key=lambda case: view.gain(case) or 0.0, default=None)


def _ended(view: Overview) -> str:
    runs, failed = len(view.result.runs), len(view.failed)
    every = "The one run" if runs == 1 else f"All {counted(runs, 'run')}"
    if not runs:
        return "No run was made."
    if not failed:
        return "The one run did not fail." if runs == 1 else f"None of {counted(runs, 'run')} failed."
    if failed < runs:
        return f"{failed} of {counted(runs, 'run')} failed."
    reasons = dict.fromkeys(cut_name(run.reason, limit=REASON_LENGTH) for run in view.failed)
    return f"{every} failed: {listed(list(reasons))}."


def _about_rates(view: Overview, rate: Setting) -> str:
    """The largest rate at which nothing else got worse, whatever the other settings and the seed."""
    place = view.settings.index(rate)
    at = {rate_at: [case for case in view.cases if case.values[place] == rate_at] for rate_at in rate.values}
    free = [rate_at for rate_at, cases in at.items() if all(map(view.harmless, cases))]
    if not free:
        return _no_free_rate(view, list(at.items()))
    if len(free) == len(at):
        return f"At no learning rate of {len(at)}, up to {setting_value(free[-1])}, did a run make another task measurably worse."
    rates, place = list(at), list(at).index(free[-1])
    said = f"Of {len(at)} learning rates, {setting_value(free[-1])} is the largest at which no run made another task measurably worse"
    above = [f"at {setting_value(one)}, {_harm(view, at[one])}" for one in rates[place + 1 : place + 2]]
    below = [f"at {setting_value(one)}, {_harm(view, at[one])}" for one in rates[:place] if one not in free]
    return "; ".join([said, *above, *([f"below it, {listed(below)}"] if below else [])]) + "."


def _no_free_rate(view: Overview, at: Sequence[tuple[Value, Sequence[Case]]]) -> str:
    smallest, cases = at[0]
    where = f"at the smallest, {setting_value(smallest)}, {_harm(view, cases)}"
    if all(_worse(view, each) for _, each in at):
        return f"Each of {len(at)} learning rates made another task measurably worse: even {where}."
    return f"No learning rate of {len(at)} is known to do no harm: {where}."


def _harm(view: Overview, cases: Sequence[Case]) -> str:
    """Why a rate is not among those that do no harm."""
    worse = _worse(view, cases)
    if worse:
        return f"{listed([*map(named, worse)])} got worse"
    return "a run failed" if any(case.failed for case in cases) else "a run lacks a verdict"


def _worse(view: Overview, cases: Sequence[Case]) -> list[str]:
    return list(dict.fromkeys(task for case in cases for task in view.worse(case)))


def _about_settings(view: Overview) -> str:
    harmless, harmful = (sum(map(bool, map(judge, view.cases))) for judge in (view.harmless, view.worse))
    every = len(view.cases)
    if every == 1:
        worse = listed([*map(named, view.worse(view.cases[0]))])
        kept = "No other task got measurably worse." if harmless else "Not all of it is known, so harm is not ruled out."
        return f"{worse} got measurably worse." if worse else kept
    if harmless:
        which = "each" if harmless == every else f"{harmless}"
        return f"Of {counted(every, 'setting')}, {which} made no other task measurably worse in any run."
    if harmful == every:
        return f"Each of {counted(every, 'setting')} made another task worse."
    return f"None of {counted(every, 'setting')} is known to do no harm: {harmful} made another task worse, of the others not all is known."


def _best(view: Overview) -> str:
    """What the best setting does to the targets, and elsewhere."""
    targets = [task for task in view.ordered if task in view.result.targets]
    best = best_of(view)
    if best is None:
        gains = [(value, case) for case in view.cases if (value := view.gain(case)) is not None]
        if not gains:
            return ""
        best = max(gains, key=lambda one: one[0])[1]
        head = f"{_on(targets)} gained most with {_setting(view, best)}"
    elif (view.gain(best) or 0.0) <= 0:
        head = f"nothing{_without(view)} gained on {_on(targets)}; least was lost with {_setting(view, best)}"
    elif len(view.cases) == 1:
        head = f"{_on(targets)} gained"
    else:
        head = f"{_without(view)}, {_setting(view, best)} gained most on {_on(targets)}".removeprefix(", ").strip()
    elsewhere = [_said(best, task) for task in view.others]
    rest = f" and {len(elsewhere) - MOST_NAMED} more in the table" if len(elsewhere) > MOST_NAMED else ""
    told = f"; elsewhere {', '.join(elsewhere[:MOST_NAMED])}{rest}" if elsewhere else ""
    return f"{head[0].upper()}{head[1:]}: {', '.join(_said(best, task, bounds=True) for task in targets)}{told}."


def _without(view: Overview) -> str:
    """Where some settings do harm, that those are not meant."""
    return " without such harm" * (bool(view.others) and not all(map(view.harmless, view.cases)))


def _setting(view: Overview, case: Case) -> str:
    """A rate alone, where nothing else varies, is no riddle; other values bear their names."""
    rate = rate_of(view)
    alone = rate is not None and case_head(view) == rate.label
    return cut_name(case_cell(view, case) if alone else case_label(view, case), limit=200)


def _on(targets: Sequence[str]) -> str:
    return "the target" if len(targets) == 1 else "the targets in the mean"


def _said(case: Case, task: str, *, bounds: bool = False) -> str:
    """A task with its change, perhaps how far that may be off, its verdict, and the language pairs of its grid."""
    found = outcome(case, task)
    if found is None:
        return f"{named(task)} not measured"
    ends, one_run = gain_bounds(found) * bounds, len(found.changes) == 1
    change = " ".join(filter(None, [gain(found), ends * one_run]))
    about = [ends * (not one_run), verdict_words(found), _pairs(case, task)]
    return f"{named(task)} {change} ({'; '.join(filter(None, about))})"


def _pairs(case: Case, task: str) -> str:
    """The first comparison of a grid that the paired test judged."""
    compared = [one for one in comparisons_of(case.runs, [task]) if (own := pair_counts(case.runs, one)) and own.improved is not None]
    counts = pair_counts(case.runs, compared[0]) if compared else None
    if counts is None:
        return ""
    return f"of {counted(counts.pairs, 'language pair')} {count(counts.improved)} better, {count(counts.worsened)} worse"


def reservations(view: Overview) -> list[str]:
    """What the head line leaves out and an honest reader should know."""
    if not view.done:
        return list(view.result.notes)
    about_harm = [_about_room(view), _about_pairs(view)]
    found = [_about_verdicts(view), *about_harm, _about_seeds(view), _about_choice(view), _about_failed(view), _about_percent(view)]
    ranked = ranking_headline.reservations(view.result.ranking) if view.result.ranking is not None else []
    return [sentence for sentence in [*ranked, *found, *view.result.notes] if sentence]


def _about_verdicts(view: Overview) -> str:
    judged = sum(found.verdicts.total() for case in view.cases for task in view.result.tasks if (found := outcome(case, task)) is not None)
    if judged < 2:
        return ""
    return (
        "Each verdict is of one run on one task by itself: where tuning changes nothing, about one comparison in 20 is told as a finding "
        f"all the same, and there are {judged} here."
    )


def _about_room(view: Overview) -> str:
    """How large a loss the intervals of the best setting leave open."""
    best = best_of(view)
    if best is None or not view.others:
        return ""
    rooms = [(-low, task) for task in view.others for low in _lowest(best, task) if low < 0]
    if not rooms:
        return ""
    loss, task = max(rooms)
    where = f" for {_setting(view, best)}," if len(view.cases) > 1 else ""
    return (
        f"\u201cNot measurably worse\u201d is not \u201cnot worse\u201d:{where} intervals leave room for a loss of "
        f"{loss:.1f}{NO_BREAK}% ({named(task)})."
    )


def _about_pairs(view: Overview) -> str:
    """Language pairs that the best setting made worse: a grid may be no worse as a whole."""
    best = best_of(view)
    compared = comparisons_of(best.done, view.others) if best is not None else []
    counted_pairs = [(one, counts) for one in compared if best is not None and (counts := pair_counts(best.done, one)) and counts.worsened]
    if best is None or not counted_pairs:
        return ""
    told = [
        f"{named(task)} {count(counts.worsened)} of {counts.pairs} ({cut_name(', '.join(filter(None, by)), limit=80)})"
        for (task, *by), counts in counted_pairs
    ]
    where = f"with {_setting(view, best)}" if len(view.cases) > 1 else "here"
    return f"A grid that is no worse as a whole may hold language pairs that are; {where}: {listed(told)}."


def _lowest(case: Case, task: str) -> list[float]:
    found = outcome(case, task)
    intervals = [change.improvement_interval for change in found.changes] if found else []
    return [interval[0] for interval in intervals if interval is not None]


def _about_seeds(view: Overview) -> str:
    seeds = max(len(case.runs) for case in view.cases)
    if seeds == 1:
        return "Every setting is one run: intervals hold what differs from unit to unit, not what another seed of tuning would change."
    return f"Values are means of up to {counted(seeds, 'run')}; behind them stands the range of runs, which is no interval."


def _about_choice(view: Overview) -> str:
    if best_of(view) is None or len(view.cases) < 2:
        return ""
    return "The best setting was picked by the same values that are shown, so its lead is a little flattered; other data would tell."


def _about_failed(view: Overview) -> str:
    if not view.failed:
        return ""
    reasons = Counter(cut_name(run.reason, limit=REASON_LENGTH) for run in view.failed)
    told = listed([f"{reason} ({counted(times, 'run')})" for reason, times in reasons.most_common()])
    return f"Failed: {told}." + " A setting of which a run failed does not count as one that does no harm." * bool(view.others)


def _about_percent(view: Overview) -> str:
    """Tasks that no curve can show."""
    lacking = [task for task in view.ordered if any((found := outcome(case, task)) and not found.percent for case in view.cases)]
    if not lacking:
        return ""
    where = listed([*map(named, lacking)])
    return f"There is no percent where the untuned tower scores 0: on {where}, tables show differences, and figures nothing."
