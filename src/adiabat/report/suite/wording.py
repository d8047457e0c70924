"""What a suite says, in sentences and cells: never more than its comparisons allow."""

from adiabat.measure.samples import Kind
from adiabat.measure.suite_results import Pairing, SuiteModel, SuiteResult, SuiteTask
from adiabat.report import wording
from adiabat.report.figures import level
from adiabat.report.headline import listed, named
from adiabat.report.suite.overview import Mark, Overview, Tally, finding, tallies
from adiabat.report.wording import DASH, EVEN, NO_BREAK, counted

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
    """What the head line leaves out and an honest reader should know.

    Args:
        seen: The result of a suite.

    Returns:
        Plain sentences.
    """
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
    """Why some models have no mean rank.

    Args:
        seen: The result of a suite.

    Returns:
        One sentence; nothing where all have one, or there is nothing to rank.
    """
    lacking = seen.best and any(tally.rank is None for tally in tallies(seen))
    return f"A mean rank is over all tasks that several models did; {DASH} where a model lacks one of them." if lacking else ""


def references(seen: Overview) -> str:
    """Whom models are compared with, task by task.

    Args:
        seen: The result of a suite.

    Returns:
        For instance ``Models are compared with bm25 where it did the task, else with the best of the task (sts), on the same units.``
    """
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
    """Whom the models of a task are compared with, for the head of its column.

    Args:
        seen: The result of a suite.
        task: Name.

    Returns:
        For instance ``beside bm25``, or ``beside the best, minilm``; nothing where one kind of comparison is all there is in the suite.
    """
    if not seen.mixed():
        return ""
    against = seen.against.get(task)
    if against is None:
        return "not compared"
    return f"beside {'' if against == seen.result.baseline else 'the best, '}{named(against)}"


def about_runs(result: SuiteResult) -> str:
    """Which values are means over seeds, and what the intervals hold.

    Args:
        result: Of a suite.

    Returns:
        One sentence or two.
    """
    several = [f"{named(model.name)} ({runs_of(model)})" for model in result.models if model.runs]
    if not several:
        return "Every model is one run: intervals hold what differs from unit to unit, not what another seed of training would change."
    said = f"Means over several seeds, with intervals over seeds and units: {listed(several)}."
    if len(several) == len(result.models):
        return said
    return f"{said} All others are one run, whose intervals hold what differs from unit to unit."


def runs_of(model: SuiteModel) -> int:
    """How many runs the values of a model are means of.

    Args:
        model: Of a suite.

    Returns:
        At least 1.
    """
    return 1 + len(model.runs)


def measure(seen: Overview, task: SuiteTask) -> str:
    """What carries the verdict of a task.

    Args:
        seen: The result of a suite.
        task: One of its tasks.

    Returns:
        For instance ``nDCG@10, cosine``; the similarity only where all models have the same: BM25 ranks by one of its own.
    """
    similarities = {score.similarity for score in seen.on(task.name)}
    return ", ".join(filter(None, [task.measure, *similarities])) if len(similarities) == 1 else task.measure


def about(seen: Overview, task: SuiteTask) -> str:
    """What a task is made of.

    Args:
        seen: The result of a suite.
        task: One of its tasks.

    Returns:
        For instance ``retrieval; 300 queries, 5,183 documents; nDCG@10, cosine (higher is better)``.
    """
    sizes = [counted(task.units, task.unit)]
    if task.documents:
        sizes.append(counted(task.documents, "document"))
    if task.languages:
        sizes.append(counted(len(task.languages), "language"))
    direction = "lower" if task.lower_is_better else "higher"
    return f"{KINDS[task.kind]}; {', '.join(sizes)}; {measure(seen, task)} ({direction} is better)"


def verdict(pairing: Pairing) -> str:
    """What a comparison says, with its mark.

    Args:
        pairing: Of two models.

    Returns:
        For instance ``▼ worse``.
    """
    found = finding(pairing)
    return f"{wording.VERDICT_MARKS[found]}{NO_BREAK}{found.replace(' ', NO_BREAK)}"


def said_of_best(seen: Overview, task: SuiteTask) -> str:
    """Who is best on a task, in few words.

    Args:
        seen: The result of a suite.
        task: One of its tasks.

    Returns:
        For instance ``best e5 0.612 [0.590, 0.633], clearly``; the value alone where one model did it.
    """
    best = seen.leaders(task.name)
    if not best:
        return next((f"{named(score.model)} {level(score)}" for score in seen.on(task.name)), "not measured")
    clearly = ", clearly" if seen.clear(task.name) else ""
    return f"best {listed([*map(named, best)])} {level(seen.scores[task.name, best[0]])}{clearly}"


def key(seen: Overview) -> list[str]:
    """What the marks in a table of models and tasks mean.

    Args:
        seen: The result of a suite.

    Returns:
        Phrases, each true of all columns or naming those that it is true of.
    """
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
    """The sign beside a value in a table of models and tasks.

    Args:
        mark: Of the value.

    Returns:
        Such as ``≈`` or ``▲``; nothing for the best, which is bold, and where nothing is known.
    """
    return EVEN if mark.even else wording.VERDICT_MARKS[mark.found] if mark.found else ""


def rank(tally: Tally) -> str:
    """The mean rank of a model.

    Args:
        tally: Of the model.

    Returns:
        For instance ``1.8``; an en dash where it did not do every task that several models did.
    """
    return DASH if tally.rank is None else f"{tally.rank:.1f}"
