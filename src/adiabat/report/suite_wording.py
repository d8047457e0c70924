"""What a suite says, in sentences and cells: never more than its comparisons allow."""

from adiabat.core.text import DASH, NO_BREAK, counted
from adiabat.report import wording
from adiabat.report.evaluation_headline import listed, named
from adiabat.report.suite_analysis import Mark, Overview, Tally, finding, tallies
from adiabat.report.suite_values import level
from adiabat.report.wording import EVEN
from adiabat.results.suite_result import Kind, Pairing, SuiteModel, SuiteResult, SuiteTask

KINDS: dict[Kind, str] = {
    "retrieval": "retrieval",
    "triplets": "listed candidates",
    "nli_grid": "language grid of sentence pairs",
    "question_grid": "language grid of questions",
    "bitext": "bitext",
    "sts": "sentence similarity",
    "words": "word similarity",
    "pair_classification": "pair classification",
    "classification": "classification",
    "clustering": "clustering",
    "mteb": "mteb",
}
"""What tasks of a kind are called."""


def reservations(seen: Overview) -> list[str]:
    """What the head line leaves out and an honest reader should know."""
    found = [_about_family(seen), _about_open_cases(seen), _about_coverage(seen), about_runs(seen.result)]
    return [sentence for sentence in [*found, *seen.result.notes] if sentence]


def _about_family(seen: Overview) -> str:
    if not seen.pairings:
        return ""
    family = f"all {counted(len(seen.pairings), 'comparison')}" if len(seen.pairings) > 1 else "the one comparison"
    return (
        f"Verdicts hold after Benjamini\N{EN DASH}Hochberg at 5{NO_BREAK}% over {family} of main measures: of the differences told as "
        "found, at most about one in twenty is expected to be none. Other measures are shown with their intervals and without verdicts."
    )


def _about_open_cases(seen: Overview) -> str:
    undecided = sum(finding(pairing) == "no evidence" for pairing in seen.pairings.values())
    if not undecided:
        return ""
    return (
        f"In {undecided} of {counted(len(seen.pairings), 'comparison')} there is no evidence either way, which is not proof of equality: "
        "each task tells how small a difference its data would have shown."
    )


def _about_coverage(seen: Overview) -> str:
    total = len(seen.result.tasks)
    lacking = [f"{named(tally.name)} ({tally.tasks})" for tally in tallies(seen) if tally.tasks < total]
    if not lacking:
        return ""
    said = f"Not every model did all {total} tasks: {listed(lacking)}. Counts are over the tasks that a model did."
    return " ".join(filter(None, [said, about_ranks(seen)]))


def about_ranks(seen: Overview) -> str:
    """Why some models have no mean rank."""
    lacking = seen.best and any(tally.rank is None for tally in tallies(seen))
    return f"A mean rank is over all tasks that several models did; {DASH} where a model lacks one of them." if lacking else ""


def references(seen: Overview) -> str:
    """Whom models are compared with, task by task."""
    baseline, others = seen.result.baseline, seen.beside_best()
    if not seen.pairings:
        return "No task has two models to compare."
    if seen.mixed():
        beside = f"{named(baseline or '')} where it did the task, else with the best of the task ({listed([*map(named, others)])}),"
        return f"Models are compared with {beside} on the same units."
    if baseline is not None and others:
        return f"{named(baseline)} did no task beside others: every model is compared with the best of the task on the same units."
    return f"Every model is compared with {'the best of the task' if baseline is None else named(baseline)} on the same units."


def beside(seen: Overview, task: str) -> str:
    """Whom the models of a task are compared with, for the head of its column."""
    if not seen.mixed():
        return ""
    against = seen.against.get(task)
    if against is None:
        return "not compared"
    return f"beside {'' if against == seen.result.baseline else 'the best, '}{named(against)}"


def about_runs(result: SuiteResult) -> str:
    """Which values are means over seeds, and what the intervals hold."""
    several = [f"{named(model.name)} ({runs_of(model)})" for model in result.models if model.runs]
    if not several:
        return "Every model is one run: intervals hold what differs from unit to unit, not what another seed of training would change."
    said = f"Means over several seeds, with intervals over seeds and units: {listed(several)}."
    if len(several) == len(result.models):
        return said
    return f"{said} All others are one run, whose intervals hold what differs from unit to unit."


def runs_of(model: SuiteModel) -> int:
    """How many runs the values of a model are means of."""
    return 1 + len(model.runs)


def measure(seen: Overview, task: SuiteTask) -> str:
    """What carries the verdict of a task."""
    similarities = {score.similarity for score in seen.on(task.name)}
    return ", ".join(filter(None, [task.measure, *similarities])) if len(similarities) == 1 else task.measure


def about(seen: Overview, task: SuiteTask) -> str:
    """What a task is made of."""
    sizes = [counted(task.units, task.unit)]
    if task.documents:
        sizes.append(counted(task.documents, "document"))
    if task.languages:
        sizes.append(counted(len(task.languages), "language"))
    direction = "lower" if task.lower_is_better else "higher"
    return f"{KINDS[task.kind]}; {', '.join(sizes)}; {measure(seen, task)} ({direction} is better)"


def verdict(pairing: Pairing) -> str:
    """What a comparison says, with its mark."""
    found = finding(pairing)
    return f"{wording.VERDICT_MARKS[found]}{NO_BREAK}{found.replace(' ', NO_BREAK)}"


def said_of_best(seen: Overview, task: SuiteTask) -> str:
    """Who is best on a task, in few words."""
    best = seen.leaders(task.name)
    if not best:
        return next((f"{named(score.model)} {level(score)}" for score in seen.on(task.name)), "not measured")
    clearly = ", clearly" if seen.clear(task.name) else ""
    return f"best {listed([*map(named, best)])} {level(seen.scores[task.name, best[0]])}{clearly}"


def key(seen: Overview) -> list[str]:
    """What the marks in a table of models and tasks mean."""
    if not seen.best:
        return []
    baseline = named(seen.result.baseline or "")
    verdicts = ", ".join(f"{sign} {found}" for found, sign in wording.VERDICT_MARKS.items())
    worse = wording.VERDICT_MARKS["worse"]
    if seen.mixed():
        best = f"in columns beside the best: {EVEN} not measurably worse, {worse} measurably worse"
        marks = [f"in columns beside {baseline}: {verdicts}", best]
    elif seen.beside_best():
        marks = [f"{EVEN} not measurably worse than the best", f"{worse} measurably worse than the best"]
    else:
        marks = [f"{verdicts} beside {baseline}"]
    return ["bold: the best value of a task", *marks]


def sign_of(mark: Mark) -> str:
    """The sign beside a value in a table of models and tasks."""
    return EVEN if mark.even else wording.VERDICT_MARKS[mark.found] if mark.found else ""


def rank(tally: Tally) -> str:
    """The mean rank of a model."""
    return DASH if tally.rank is None else f"{tally.rank:.1f}"
