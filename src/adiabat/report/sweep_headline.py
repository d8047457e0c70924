"""The headline and reservations of a sweep, and its cases and changes as sentences and tables write them."""

from collections import Counter
from collections.abc import Sequence

from adiabat.core.text import DASH, NO_BREAK, counted, integer, setting_text
from adiabat.report import suite_headline
from adiabat.report.format import (
    MOST_NAMED,
    VERDICT_MARKS,
    cut_name,
    decimals_for,
    interval,
    listed,
    named,
    signed,
)
from adiabat.report.pages import Tone
from adiabat.results.sweep_result import Case, CaseChange, Setting, SweepAnalysis, SweepResult
from adiabat.results.verdict import WORDS

REASON_LENGTH = 160
"""Maximum characters of a failure's reason in a sentence."""


def case_label(view: SweepAnalysis, case: Case) -> str:
    """A case in one line, by the settings that differ in the sweep."""
    labels = [view.described(case, [index]) for index in _differing(view)] or ["the only setting"]
    return " with ".join(
        filter(None, [labels[0], " and ".join(filter(None, [", ".join(labels[1:-1]), *labels[1:][-1:]]))])
    )


def case_head(view: SweepAnalysis) -> str:
    """Head of a column of `case_cell`."""
    differing = _differing(view)
    return view.settings[differing[0]].label if len(differing) == 1 else "setting"


def case_cell(view: SweepAnalysis, case: Case) -> str:
    """A case under `case_head`."""
    differing = _differing(view)
    return setting_text(case.values[differing[0]]) if len(differing) == 1 else case_label(view, case)


def _differing(view: SweepAnalysis) -> list[int]:
    return [index for index, setting in enumerate(view.settings) if len(setting.values) > 1]


def gain(changed: CaseChange) -> str:
    """The mean improvement of a case."""
    if changed.mean is None:
        return DASH
    return signed(changed.mean, decimals=_decimals(changed)) + (f"{NO_BREAK}%" if changed.percent else "")


def gain_bounds(changed: CaseChange) -> str:
    """The interval of one run, or the range of several."""
    if changed.interval is None:
        return ""
    decimals = _decimals(changed)
    if changed.runs == 1:
        return interval(changed.interval, decimals=decimals)
    low, high = (signed(bound, decimals=decimals) for bound in changed.interval)
    return f"{low} to{NO_BREAK}{high}"


def _decimals(changed: CaseChange) -> int:
    numbers = [*changed.values, *(changed.interval or ())]
    return (
        decimals_for(numbers, least=1, most=3) if changed.percent else decimals_for(numbers, least=4, most=6)
    )


def verdict_marks(changed: CaseChange) -> str:
    """Verdicts of the runs of a case; of several verdicts each with its count."""
    counts = changed.verdicts
    if len(counts) < 2:
        return "".join(VERDICT_MARKS[verdict] for verdict in counts)
    return " ".join(f"{VERDICT_MARKS[verdict]}{counts[verdict]}" for verdict in WORDS if verdict in counts)


def verdict_words(changed: CaseChange) -> str:
    """Verdicts of the runs of a case in words."""
    counts = changed.verdicts
    if len(counts) < 2:
        return next(iter(counts), "no verdict")
    first, *others = [verdict for verdict in WORDS if verdict in counts]
    return f"{first} in {counts[first]} of {sum(counts.values())} seeds" + "".join(
        f", {verdict} in {counts[verdict]}" for verdict in others
    )


def count(value: float | None) -> str:
    """A mean of counts, such as ``222`` or ``221.7``; a dash for None."""
    if value is None:
        return DASH
    return integer(int(value)) if value == int(value) else f"{value:,.1f}"


def sides(improved: float | None, worsened: float | None) -> str:
    """Improved and worsened language pairs."""
    return DASH if improved is None or worsened is None else f"{count(improved)}/{count(worsened)}"


def headline(result: SweepResult) -> str:
    """How the runs ended, the settings without harm, and the best of them."""
    if not result.runs_of():
        return _ended(result)
    if _compares_settings(result):
        return f"{_ended(result)} {suite_headline.headline(suite_headline.Overview(result))}"
    view = result.variation
    if not result.others:
        harm = "Only target tasks were measured, so effects on other tasks are unknown."
    else:
        harm = (
            _harm_by_rate(view, view.rate)
            if view.rate and _is_crossed(view, view.rate)
            else _harm_by_setting(view.cases)
        )
    return " ".join(filter(None, [_ended(result), harm, _best(result)]))


def tone(result: SweepResult) -> Tone:
    """Whether the headline is good news."""
    if _compares_settings(result) and result.runs_of():
        return "plain" if _is_a_start_best(result) else suite_headline.tone(result)
    best = result.variation.best_case
    if not result.runs_of() or (result.others and all(case.worse for case in result.variation.cases)):
        return "bad"
    if best is None or not result.others or not result.targets:
        return "plain"
    outcomes = [best.change(task) for task in result.targets]
    return (
        "good"
        if all(changed is not None and changed.verdict == "better" for changed in outcomes)
        else "plain"
    )


def _compares_settings(result: SweepResult) -> bool:
    """Whether the comparison of settings is the answer: trained models have no drift from one index."""
    return result.verb == "train" and bool(result.pairings)


def _is_a_start_best(result: SweepResult) -> bool:
    """Whether training helped so little that an untrained model is the best of a task."""
    return any(name in result.starts for ranking in result.analysis.tasks for name in ranking.best)


def _ended(result: SweepResult) -> str:
    runs, failed = len(result.runs), len(result.runs_of(status="failed"))
    if not runs:
        return "There are no runs."
    if not failed:
        return f"{counted(runs, 'run')} completed."
    if failed < runs:
        return f"{failed} of {counted(runs, 'run')} failed."
    reasons = dict.fromkeys(
        cut_name(run.reason, limit=REASON_LENGTH) for run in result.runs_of(status="failed")
    )
    return f"{'The only run' if runs == 1 else f'All {runs:,} runs'} failed: {listed(list(reasons))}."


def _is_crossed(view: SweepAnalysis, rate: Setting) -> bool:
    """Whether every combination of the other settings was tried at every rate; otherwise these could explain
    the harm at a rate.
    """
    others = [index for index, setting in enumerate(view.settings) if setting is not rate]
    return len(view.cases) == len(view.grouped(view.cases, others)) * len(rate.values)


def _harm_by_rate(view: SweepAnalysis, rate: Setting) -> str:
    """The largest rate at which no other task got worse, for all other settings and seeds."""
    cases = {
        value: [case for case in view.cases if case.values[view.settings.index(rate)] == value]
        for value in rate.numbers
    }
    rates = list(cases)

    def at(value: float) -> str:
        return f"at {setting_text(value)}, {_harm(cases[value])}"

    safe = [value for value in rates if all(case.harmless for case in cases[value])]
    if not safe:
        where = f"at the smallest, {setting_text(rates[0])}, {_harm(cases[rates[0]])}"
        if all(map(_worse, cases.values())):
            return f"Each of {len(rates)} learning rates made another task measurably worse: even {where}."
        return f"None of {len(rates)} learning rates is known to be harmless: {where}."
    if len(safe) == len(rates):
        return (
            f"None of {len(rates)} learning rates, up to {setting_text(safe[-1])}, made "
            "another task measurably worse in any run."
        )
    largest = rates.index(safe[-1])
    clause = (
        f"Of {len(rates)} learning rates, {setting_text(safe[-1])} is the largest at "
        "which no run made another task measurably worse"
    )
    below = [at(value) for value in rates[:largest] if value not in safe]
    return (
        "; ".join(
            [
                clause,
                *map(at, rates[largest + 1 : largest + 2]),
                *([f"below it, {listed(below)}"] if below else []),
            ]
        )
        + "."
    )


def _harm(cases: Sequence[Case]) -> str:
    """Why a rate is not harmless."""
    if worse := _worse(cases):
        return f"{listed([*map(named, worse)])} got worse"
    return "a run failed" if any(case.failed for case in cases) else "a run lacks a verdict"


def _worse(cases: Sequence[Case]) -> list[str]:
    return list(dict.fromkeys(task for case in cases for task in case.worse))


def _harm_by_setting(cases: Sequence[Case]) -> str:
    harmless, harmful = sum(case.harmless for case in cases), sum(bool(case.worse) for case in cases)
    settings = counted(len(cases), "setting")
    if len(cases) == 1:
        if worse := listed([*map(named, cases[0].worse)]):
            return f"{worse} got measurably worse."
        return (
            "No other task got measurably worse."
            if harmless
            else "Some results are missing, so harm is not ruled out."
        )
    if harmless:
        return (
            f"{'Each' if harmless == len(cases) else harmless} of {settings} made "
            "no other task measurably worse in any run."
        )
    if harmful == len(cases):
        return f"Each of {settings} made another task worse."
    return (
        f"None of {settings} is known to be harmless: {harmful} made another task "
        "worse, and the others lack some results."
    )


def _best(result: SweepResult) -> str:
    """Changes by the best setting on targets and other tasks."""
    view, targets = result.variation, [task for task in result.ordered if task in result.targets]
    target = "the target" if len(targets) == 1 else "the targets on average"
    without = " without such harm" * (bool(result.others) and not all(case.harmless for case in view.cases))
    best = view.best_case
    if best is None:
        best = max(
            (case for case in view.cases if case.gain is not None),
            key=lambda case: case.gain or 0.0,
            default=None,
        )
        if best is None:
            return ""
        clause = f"{target} gained most with {_setting(view, best)}"
    elif (best.gain or 0.0) <= 0:
        clause = f"no setting{without} gained on {target}; {_setting(view, best)} lost least"
    elif len(view.cases) == 1:
        clause = f"{target} gained"
    else:
        clause = (
            f"{f'of the settings{without}, ' if without else ''}{_setting(view, best)} "
            f"gained most on {target}"
        )
    others = [_change(best, task) for task in result.others]
    rest = f" and {len(others) - MOST_NAMED} more in the table" if len(others) > MOST_NAMED else ""
    elsewhere = f"; elsewhere {', '.join(others[:MOST_NAMED])}{rest}" if others else ""
    return (
        f"{clause[0].upper()}{clause[1:]}: "
        f"{', '.join(_change(best, task, bounds=True) for task in targets)}{elsewhere}."
    )


def _setting(view: SweepAnalysis, case: Case) -> str:
    """A case by its rate alone if nothing else varies; otherwise with the names of its settings."""
    only_rate = view.rate is not None and case_head(view) == view.rate.label
    return cut_name(case_cell(view, case) if only_rate else case_label(view, case), limit=200)


def _change(case: Case, task: str, *, bounds: bool = False) -> str:
    """A task with its change, verdict and language pairs."""
    changed = case.change(task)
    if changed is None:
        return f"{named(task)} not measured"
    ends, one_run = gain_bounds(changed) * bounds, changed.runs == 1
    judged = [counts for counts in case.pairs if counts.task == task and counts.improved is not None]
    pairs = [
        f"{count(c.improved)} of {counted(c.pairs, 'language pair')} better, {count(c.worsened)} worse"
        for c in judged[:1]
    ]
    change = " ".join(filter(None, [gain(changed), ends * one_run]))
    return (
        f"{named(task)} {change} "
        f"({'; '.join(filter(None, [ends * (not one_run), verdict_words(changed), *pairs]))})"
    )


def reservations(result: SweepResult) -> list[str]:
    """Limits of the evidence that the headline leaves out."""
    if not result.runs_of():
        return list(result.notes)
    sentences = [
        _below_start(result),
        _verdicts(result),
        *_about_best(result),
        _seeds(result),
        _choice(result),
        _failures(result),
    ]
    sentences += [_without_percent(result), *suite_headline.about_pairings(result), *result.notes]
    return [sentence for sentence in sentences if sentence]


def _below_start(result: SweepResult) -> str:
    """Settings that training made worse are no good choice, whatever their rank among the others."""
    if result.verb != "train":
        return ""
    view, worse = result.variation, list[str]()
    for case in view.cases:
        changes = [case.change(task) for task in result.targets]
        if any(change is not None and "worse" in change.verdicts for change in changes):
            worse.append(named(case_cell(view, case)))
    return f"Training made {listed(worse)} worse than the untrained start." if worse else ""


def _verdicts(result: SweepResult) -> str:
    outcomes = (case.change(task) for case in result.variation.cases for task in result.task_names)
    judged = sum(sum(changed.verdicts.values()) for changed in outcomes if changed is not None)
    if judged < 2:
        return ""
    return (
        f"Each of {judged} verdicts is of one run on one task alone: if tuning changed "
        "nothing, about one in 20 would still report a "
        "difference."
    )


def _about_best(result: SweepResult) -> list[str]:
    """The largest loss that intervals of the best setting leave open, and its worse language pairs."""
    view, sentences = result.variation, list[str]()
    best = view.best_case
    if best is None:
        return []
    where, several = _setting(view, best), len(view.cases) > 1
    outcomes = [
        outcome for run in result.runs_of(best) for outcome in run.tasks if outcome.task in result.others
    ]
    intervals = [
        (outcome.main.improvement_interval, outcome.task)
        for outcome in outcomes
        if not outcome.main.not_worse
    ]
    losses = [(-bounds[0], task) for bounds, task in intervals if bounds is not None and bounds[0] < 0]
    if losses:
        loss, task = max(losses)
        sentences.append(
            "\u201cNot measurably worse\u201d is not \u201cnot "
            f"worse\u201d:{f' for {where},' * several} intervals allow a loss "
            f"of up to {loss:.1f}{NO_BREAK}% ({named(task)})."
        )
    worsened = [
        f"{named(counts.task)} {count(counts.worsened)} of {counts.pairs} "
        f"({cut_name(', '.join(filter(None, [counts.comparison, counts.similarity])), limit=80)})"
        for counts in best.pairs
        if counts.task in result.others and counts.worsened
    ]
    if worsened:
        setting = f"with {where}" if several else "here"
        sentences.append(
            "A grid that is not worse overall may contain worse language "
            f"pairs; {setting}: {listed(worsened)}."
        )
    return sentences


def _seeds(result: SweepResult) -> str:
    seeds = max(len(case.runs) for case in result.variation.cases)
    if seeds == 1:
        return "Every setting is one run: intervals cover variation between units, not between tuning seeds."
    return (
        f"Values are means of up to {counted(seeds, 'run')}; the range of the runs "
        "follows them and is not a confidence interval."
    )


def _choice(result: SweepResult) -> str:
    if result.variation.best is None or len(result.variation.cases) < 2:
        return ""
    return (
        "The best setting was selected by the values shown, which slightly "
        "overstates its lead; confirm it on other data."
    )


def _failures(result: SweepResult) -> str:
    if not result.runs_of(status="failed"):
        return ""
    reasons = Counter(cut_name(run.reason, limit=REASON_LENGTH) for run in result.runs_of(status="failed"))
    causes = listed([f"{reason} ({counted(times, 'run')})" for reason, times in reasons.most_common()])
    return f"Failed: {causes}." + " A setting with a failed run does not count as harmless." * bool(
        result.others
    )


def _without_percent(result: SweepResult) -> str:
    outcomes = [(task, case.change(task)) for task in result.ordered for case in result.variation.cases]
    lacking = dict.fromkeys(named(task) for task, changed in outcomes if changed and not changed.percent)
    if not lacking:
        return ""
    return (
        f"The untuned tower scores 0 on {listed(list(lacking))}, so percentages are "
        "undefined: tables show differences, figures leave gaps."
    )
