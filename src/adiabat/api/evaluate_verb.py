"""`adiabat.evaluate` and `.evaluate_suite`: a model against a baseline, and several models on tasks."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from adiabat.api.arguments import (
    Data,
    PathLike,
    Retained,
    SettingsLike,
    data_of,
    optional_place,
    path_of,
    place_of,
    require_model,
    require_pairs,
    require_retained,
    retained_sets,
    settings_of,
    wrong_type,
)
from adiabat.api.call import Call, Progress
from adiabat.api.repeated import Asked
from adiabat.api.with_page import replace_report, with_page
from adiabat.config.shared import EvaluateSettings, require_device_name
from adiabat.config.tasks import SuiteSettings, suite_file
from adiabat.core.errors import ConfigError, JobError
from adiabat.core.files import is_there
from adiabat.core.progress import Watch
from adiabat.core.text import counted, shown
from adiabat.core.wording import option
from adiabat.data.records import LanguageGridSet
from adiabat.data.sources import Source
from adiabat.data.text_files import QueryLog, read_query_log
from adiabat.evaluation.evaluate_checks import require_baseline_stores, require_sets, require_suite
from adiabat.evaluation.score_files import Scored, refuse_foreign_scores, replacing_scores
from adiabat.models.backend_checks import require_openvino
from adiabat.models.model_paths import Model, name_of, require_names, require_reachable
from adiabat.results.evaluation_result import FailOn, Result
from adiabat.results.record import read_result
from adiabat.results.suite_result import SuiteResult
from adiabat.results.training_record import TrainingRecord
from adiabat.runs.output_dir import claimed, require_own, write_report
from adiabat.runs.run_config import Job, is_job
from adiabat.stats.ranking_measures import require_report
from adiabat.store.addressing import AddressedSet
from adiabat.store.analysers import analyser_of
from adiabat.store.vector_store import Store, refuse_swapped

if TYPE_CHECKING:
    from adiabat.evaluation.evaluate import Dataset


def evaluate(
    model: Model,
    store: PathLike,
    data: Data,
    *,
    runs: Sequence[Model] = (),
    baseline: Model | None = None,
    baseline_stores: Sequence[PathLike] = (),
    retain: Sequence[Retained] = (),
    unlabelled: Sequence[tuple[Data, Data]] = (),
    split: str | None = None,
    power: bool = False,
    fail_on: FailOn | None = None,
    out: PathLike | None = None,
    exist_ok: bool | None = None,
    settings: SettingsLike = None,
    progress: Progress = None,
    **options: Any,
) -> Result:
    """Measure a model on a data set, against a baseline, and on retention sets that must not get worse.

    Args:
        model: Model under test; its query tower encodes the queries.
        store: Document vectors of its document tower.
        data: The target: queries with positives.
        runs: Further runs of the model, of other seeds: values are means over all runs, and intervals cover
            queries and seeds.
        baseline: Model to compare with.
        baseline_stores: Document vectors of the baseline, if its document tower differs: of the target, then
            of the retention sets.
        retain: Store and data of each retention set, and perhaps its columns: ``(store, data, {"query":
            "frage"})``.
        unlabelled: Data of the target or of a retention set, each with further queries of its kind, which
            nobody judged: a text file with a query on each line, a table with a column ``query``, or a list
            of texts. With thousands of them, such as a query log, fewer judged queries exclude a loss.
        split: Split of the target; None takes ``data.split`` of the settings, or ``test``.
        power: Whether to compute which improvement each set could show and which loss it could exclude, with
            80 % probability: from the differences to the baseline, or without one from the scores of the
            model, which is the one to be tuned.
        fail_on: ``worse`` or ``undecided``, if the caller will ask `Result.failing` for it: sets that are too
            small for an answer are refused before models are loaded. None measures sets of any size.
        out: Directory for ``result.json``, ``report.html`` and, in ``scores``, the scores of each query; None
            writes nothing.
        exist_ok: True returns the result of the same call at once, as in `tune`. None replaces an earlier
            evaluation.
        settings: `EvaluateSettings`, a TOML file or nested dicts; ``adiabat settings evaluate`` lists them.
        progress: None is silent without a terminal or a notebook, and shows a bar on one. True prints a line
            every half minute without one. False is silent.
        **options: Single settings, such as ``report=["nDCG@10"]``, ``negatives="store"`` or
            ``device="cuda"``.

    Returns:
        The result; for a job, with the record of its training.

    Example:
        >>> store = adiabat.embed("demo", "corpus.jsonl", out="store")
        >>> evaluation = adiabat.evaluate("demo", store, "test.jsonl", out="evaluation", resamples=100)
        >>> evaluation.datasets[0].queries
        20
        >>> evaluation.page.name
        'report.html'
    """
    chosen = settings_of(EvaluateSettings, settings, options, section="measure", function="evaluate")
    _require_lists(baseline_stores, retain, runs)
    require_pairs(unlabelled, "unlabelled", "a list of pairs of data and further queries of their kind")
    models = _checked_models(model, runs, baseline)
    if power and runs:
        raise ConfigError(
            f"{option('power')} is that of a single run, got further runs with "
            f"{option('runs')}; leave one of them out"
        )
    if fail_on is not None:
        _require_comparison(fail_on, baseline)
    folder = optional_place(out)
    named_stores = [path_of(entry, "baseline_stores") for entry in baseline_stores]
    require_report(chosen.measure.report)
    require_device_name(chosen.run.device)
    if chosen.run.backend == "openvino":
        require_openvino(chosen.run.device, purpose="run.backend = openvino")
    refuse_swapped(path_of(store, "store"), model, data, order=("model", "store", "data"))
    require_names(*models)
    require_baseline_stores(named_stores, baseline=baseline is not None)
    sets = [(path_of(store, "store"), data_of(data, "data")), *retained_sets(retain, chosen.retain)]
    logs = _query_logs(unlabelled, sets, chosen)
    if any(logs) and baseline is None:
        raise ConfigError(
            f"{option('unlabelled')} must come with {option('baseline')}, to which queries can lose; "
            "name the baseline"
        )
    named: dict[str, Any] = {
        "runs": list(runs),
        "baseline": baseline,
        "baseline_stores": named_stores,
        "sets": sets,
    }
    named |= {"unlabelled": logs, "split": split, "power": power}
    asked = Asked.of("evaluate", folder, exist_ok, settings=chosen, replaces=True, model=model, **named)
    if asked.is_finished():
        return asked.result(Result)
    if folder:
        require_own(folder)
        refuse_foreign_scores(folder)
    # The split is that of the target; a retention set names its own behind its path.
    splits = [split or chosen.data.split, *[None] * (len(sets) - 1)]
    require_sets(sets, splits, chosen.data.columns.given())
    analyser_of(chosen.fuse.stemmer)
    queries = [None if log is None else read_query_log(log) for log in logs]
    require_reachable(*models)
    tuning = _training_record(model)
    # Imported after the checks: torch takes seconds to load.
    from adiabat.models.device import device_of

    device_of(chosen.run.device)
    others = [Store.open(path) for path in dict.fromkeys(named_stores)]
    with asked.carried_out(progress) as call, claimed(folder):
        datasets = _read(sets, splits, queries, chosen, others, has_verdicts=baseline is not None)
        if chosen.fuse.by is not None:
            _require_texts(datasets)
        if baseline is not None:
            _judge_sizes(datasets, fail_on, call.watch)
        result, scores = _measured(
            models, datasets, chosen, call, has_baseline=baseline is not None, power=power
        )
        for opened in dict.fromkeys([*(dataset.store for dataset in datasets), *others]):
            opened.require_unchanged()
        result = replace(result, training=tuning)
        if folder:
            names = {"model": result.model, "baseline": result.baseline or ""}
            with replacing_scores(scores, folder, models=names):
                replace_report(result, folder, call.watch, of="evaluation")
    return with_page(result, folder)


def _require_texts(datasets: "Sequence[Dataset]") -> None:
    """Refuse stores without texts, whose rankings cannot be fused."""
    from adiabat.store.own_bm25 import require_texts

    for dataset in datasets:
        if not isinstance(dataset.examples, LanguageGridSet):
            require_texts(dataset.store)


def _judge_sizes(datasets: "Sequence[Dataset]", fail_on: FailOn | None, watch: Watch) -> None:
    """Refuse sets that are too small for an answer to `fail_on`, and note those with an uncertain one."""
    from adiabat.evaluation.verdicts import SetSize, notes_on_sizes, require_answerable

    sizes = [
        SetSize(each.examples.name, len(each.examples), isinstance(each.examples, LanguageGridSet))
        for each in datasets
    ]
    if fail_on is not None:
        require_answerable(sizes, fail_on)
    for note in notes_on_sizes(sizes):
        watch.note(note)


def _measured(
    models: Sequence[Model],
    datasets: "Sequence[Dataset]",
    settings: EvaluateSettings,
    call: Call,
    *,
    has_baseline: bool,
    power: bool,
) -> tuple[Result, list[Scored]]:
    """The result, and the scores of each query by name; of the models, the first is under test and the last
    may be the baseline.
    """
    from adiabat.evaluation.evaluate import evaluate_datasets
    from adiabat.models.backend_choice import load_for_queries
    from adiabat.models.model_names import run_difference, trained_by

    # All at once: a model that cannot be loaded ends the call before the first is measured.
    loaded = [load_for_queries(entry, settings.encoder, settings.run) for entry in models]
    end = len(models) - 1 if has_baseline else len(models)
    differences = [run_difference(name_of(models[0]), name_of(run)) for run in models[1:end]]
    scores: list[Scored] = []
    result = evaluate_datasets(
        loaded[0],
        loaded[-1] if has_baseline else None,
        datasets,
        further=loaded[1:end],
        trained=[trained_by(name_of(entry)) for entry in models],
        settings=settings,
        title=f"{settings.fuse.named(loaded[0].name)} on {datasets[0].examples.name}",
        command=call.command,
        watch=call.watch,
        save_scores=scores.append,
        run_differences=[difference for difference in differences if difference],
        power=power,
    )
    return result, scores


def _require_comparison(fail_on: FailOn, baseline: Model | None) -> None:
    # Python does not check the words of a Literal.
    if fail_on not in get_args(FailOn):
        raise ConfigError(f"{option('fail_on')} must be worse or undecided, got {shown(fail_on)}")
    if baseline is None:
        advice = f"add {option('baseline', 'MODEL')}, or leave it out"
        raise ConfigError(f"{option('fail_on', fail_on)} needs a baseline to be worse than; {advice}")


def _checked_models(model: Model, runs: Sequence[Model], baseline: Model | None) -> list[Model]:
    """The model, its further runs, each once (one that is named twice would halve the spread of runs), and
    the baseline.
    """
    models = [model, *runs, *([] if baseline is None else [baseline])]
    for entry, argument in zip(
        models, ("model", *["an entry of runs"] * len(runs), "baseline"), strict=False
    ):
        require_model(entry, argument)
    names = [name_of(entry) for entry in (model, *runs) if isinstance(entry, str | os.PathLike)]
    # Two names may lead to one folder.
    places = list(map(os.path.realpath, names))
    if repeated := [name for number, name in enumerate(names) if places[number] in places[:number]]:
        raise ConfigError(f"{option('runs')} must name each run once, got {repeated[0]} twice; leave one out")
    return models


def _require_lists(baseline_stores: object, retain: object, runs: object) -> None:
    if isinstance(runs, str | os.PathLike) or not isinstance(runs, Sequence):
        raise wrong_type("runs", "a list of models", runs)
    if isinstance(baseline_stores, str | os.PathLike) or not isinstance(baseline_stores, Sequence):
        raise wrong_type("baseline_stores", "a list of stores", baseline_stores)
    require_retained(retain)


def _query_logs(
    unlabelled: Sequence[tuple[Data, Data]], sets: Sequence[tuple[str, str]], settings: EvaluateSettings
) -> list[str | None]:
    """The queries without judgements of each set, the target first."""
    logs: list[str | None] = [None] * len(sets)
    for number, listed in enumerate(settings.retain, start=1):
        logs[number] = listed.unlabelled
    for data, log in unlabelled:
        name = data_of(data, "unlabelled")
        places = [
            number
            for number, (_, address) in enumerate(sets)
            if name in (address, Source.of(address).path) and logs[number] is None
        ]
        if len(places) != 1:
            raise ConfigError(
                f"{option('unlabelled')} must name the data of one set, each once, got {name}; "
                f"the sets are {', '.join(address for _, address in sets)}"
            )
        logs[places[0]] = data_of(log, "unlabelled")
    return logs


def _read(
    sets: Sequence[tuple[str, str]],
    splits: Sequence[str | None],
    unlabelled: Sequence[QueryLog | None],
    settings: EvaluateSettings,
    baseline_stores: Sequence[Store],
    *,
    has_verdicts: bool,
) -> "list[Dataset]":
    """The target and the retention sets, each with its store; sets of one store share it.

    A retention set that repeats another set would be counted as further evidence: it is refused, or noted
    where nothing is compared.
    """
    from adiabat.evaluation.evaluate import read_dataset

    # Each once, also where several sets lie in one store.
    stores = {path: Store.open(path) for path in dict.fromkeys(path for path, _ in sets)}
    options: dict[str, Any] = {"settings": settings, "baseline_stores": baseline_stores}
    datasets = [
        read_dataset(
            stores[path],
            rows,
            role="retain" if number else "target",
            split=splits[number],
            unlabelled=unlabelled[number],
            **options,
        )
        for number, (path, rows) in enumerate(sets)
    ]
    names, contents = [rows for _, rows in sets], [(dataset.store, dataset.examples) for dataset in datasets]
    if has_verdicts:
        require_other_contents(names, contents)
        return datasets
    for repeated in repeated_contents(names, contents):
        dataset = datasets[repeated.row]
        note = (
            f"{repeated.other} has {repeated.have}: a comparison with a baseline "
            "refuses to count one set twice"
        )
        datasets[repeated.row] = replace(dataset, notes=(*dataset.notes, note))
    return datasets


class Repeated(NamedTuple):
    """A retention set that has more than half of the rows of an earlier set, or that has more than half of
    its own rows there.

    Attributes:
        row: Position of the set.
        other: Name of the earlier set.
        have: What the earlier set has of it.
    """

    row: int
    other: str
    have: str


def require_other_contents(
    names: Sequence[str], sets: Sequence[tuple[Store, AddressedSet | LanguageGridSet]]
) -> None:
    """Refuse a retention set that repeats the target or another retention set."""
    for repeated in repeated_contents(names, sets):
        raise ConfigError(
            f"{option('retain')} must be another data set than {repeated.other}, "
            f"which has {repeated.have}; leave it out"
        )


def repeated_contents(
    names: Sequence[str], sets: Sequence[tuple[Store, AddressedSet | LanguageGridSet]]
) -> Iterator[Repeated]:
    """Sets whose rows are mostly those of an earlier one."""
    if len(sets) == 1:
        return
    known: list[tuple[str, frozenset[str]]] = []
    for number, (name, (store, examples)) in enumerate(zip(names, sets, strict=True)):
        content = _content_of(store, examples)
        for other, rows in known:
            # More than half of the smaller set: a part of the target under another name is found too.
            if 2 * (shared := len(content & rows)) > min(len(content), len(rows)):
                yield Repeated(number, other, f"{shared:,} of the {counted(len(content), 'row')} of {name}")
        known.append((name, content))


def _content_of(store: Store, examples: AddressedSet | LanguageGridSet) -> frozenset[str]:
    """Distinct queries with their relevant documents, or sentence pairs with their labels."""
    if isinstance(examples, LanguageGridSet):
        pairs = zip(examples.labels, examples.premises, examples.hypotheses, strict=True)
        rows = [
            (label, sorted(premise.items()), sorted(hypothesis.items()))
            for label, premise, hypothesis in pairs
        ]
        return frozenset(map(repr, rows))
    relevant = (sorted(examples.positives[row].tolist()) for row in range(len(examples)))
    return frozenset(f"{store.manifest.sha256} {row}" for row in zip(examples.queries, relevant, strict=True))


def _training_record(model: Model) -> TrainingRecord | None:
    """The record of the job that a model comes from; None if only the model remains."""
    if not isinstance(model, str | os.PathLike) or not is_job(Path(model)):
        return None
    written = Job(Path(model)).result
    return read_result(written, Result).training if is_there(written, error=JobError) else None


def evaluate_suite(
    models: Sequence[PathLike],
    suite: SettingsLike,
    out: PathLike,
    *,
    exist_ok: bool | None = None,
    progress: Progress = None,
    **options: Any,
) -> SuiteResult:
    """Measure any number of models on a suite of tasks: which are best, by how much, and how certain that is.

    Scores of each query are saved in `out` immediately: the same call resumes after an interruption, and adds
    models or tasks to those measured before.

    Args:
        models: Names of models, ``bm25`` or ``bm25:LANGUAGE``; ``[[models]]`` of the suite come before them.
        suite: A TOML file of tasks, the name of a suite that comes with adiabat (``mteb-eight``),
            `SuiteSettings`, or nested dicts; ``adiabat settings suite`` lists the settings.
        out: Directory for ``result.json``, the page, tables, scores, and vectors of corpora.
        exist_ok: True returns the result of the same call at once, as in `tune`. None keeps the scores that
            are there, and adds to them.
        progress: None is silent without a terminal or a notebook, and shows a bar on one. True prints a line
            every half minute without one. False is silent.
        **options: Single settings, such as ``baseline="demo"`` or ``device="cuda"``.

    Returns:
        The result.

    Example:
        >>> result = adiabat.evaluate_suite(["demo", "bm25"], "suite.toml", out="measured")
        >>> [model.name for model in result.models]
        ['demo', 'bm25']
        >>> sorted(set(result.to_frame()["task"]))
        ['test']
    """
    if isinstance(suite, str):
        suite = suite_file(suite)
    settings = settings_of(SuiteSettings, suite, options, section="suite", function="evaluate_suite")
    names = [path_of(model, "an entry of models") for model in models]
    folder = place_of(out)
    # A measure that cannot be computed is refused before anything is read.
    require_report(settings.measure.report)
    for task in settings.tasks:
        require_report(getattr(task, "report", None) or (), key="tasks.report")
    require_device_name(settings.run.device)
    asked = Asked.of("evaluate_suite", folder, exist_ok, settings=settings, replaces=True, models=names)
    if asked.is_finished():
        return asked.result(SuiteResult)
    require_suite(settings, names)
    require_own(folder, "suite")
    # Imported after the checks: torch takes seconds to load.
    from adiabat.evaluation.measured_models import resolve_models
    from adiabat.evaluation.suite import evaluate_suite as run_suite
    from adiabat.models.device import device_of
    from adiabat.models.model_names import load_with, trained_by

    loader = partial(load_with, device=settings.run.device)
    subjects = resolve_models(settings.models, names, settings.encoder, loader, trained_by)
    device_of(settings.run.device)
    with asked.carried_out(progress) as call, claimed(folder, kind="suite"):
        result = run_suite(subjects, settings, folder, command=call.command, watch=call.watch)
        write_report(result, folder)
    return with_page(result, folder)
