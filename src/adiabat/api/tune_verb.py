"""`adiabat.tune`: tune a query tower against stored vectors; and the demo, which does so with a packaged
model and data.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import adiabat
from adiabat.adiabatic.tune_checks import inputs_of, require_named, require_ready
from adiabat.api.arguments import (
    Data,
    PathLike,
    Retained,
    SettingsLike,
    data_of,
    path_of,
    place_of,
    require_model,
    require_retained,
    retained_sets,
    settings_of,
)
from adiabat.api.call import Call, Progress, called
from adiabat.api.repeated import Asked
from adiabat.api.with_page import with_page
from adiabat.config.shared import RetainSection
from adiabat.config.tuning import TuneSettings
from adiabat.core.disk import make_folder, real, require_no_link
from adiabat.core.progress import Watch
from adiabat.core.wording import call_began, option
from adiabat.models.model_paths import name_of, require_names, require_reachable
from adiabat.results.evaluation_result import Result
from adiabat.runs.output_dir import require_own
from adiabat.runs.run_config import is_job

if TYPE_CHECKING:
    from adiabat.adiabatic.tune import TunedRun, TuningRun
    from adiabat.adiabatic.tuning_context import TuningContext
    from adiabat.adiabatic.tuning_estimate import TuningEstimate
    from adiabat.experiments.evidence import Evidence
    from adiabat.models.model_paths import Model


SettingsT = TypeVar("SettingsT", bound=TuneSettings)


def tune(
    model: "Model",
    store: PathLike,
    data: Data,
    out: PathLike,
    *,
    retain: Sequence[Retained] = (),
    resume: bool = False,
    exist_ok: bool | None = None,
    settings: SettingsLike = None,
    progress: Progress = None,
    **options: Any,
) -> Result:
    """Tune a query tower against stored document vectors, which never change (Vasilyev et al. 2024).

    Args:
        model: Model whose query tower is tuned; its document tower made the store.
        store: Document vectors of that model.
        data: Queries with positives and optionally negatives, as document ids or texts: a file, a BEIR
            folder, or rows such as ``{"query": ..., "pos": [...], "neg": [...]}``.
        out: Directory of the job, which becomes the tuned model.
        retain: Store and data of each set that must not get worse, as for `adiabat.evaluate`. Half of the
            queries of each choose among candidates for the result; `evaluate` leaves them out.
        resume: Continue an interrupted job, or extend a finished one.
        exist_ok: For scripts that run twice. True returns the finished result of the same call, with the same
            inputs and settings, at once. It resumes an unfinished one, and refuses that of another call with
            what differs. False refuses any output. None refuses a job, unless `resume`.
        settings: `TuneSettings`, a TOML file or nested dicts; ``adiabat settings tune`` lists them.
        progress: None is silent without a terminal or a notebook, and shows a bar on one. True prints a line
            every half minute without one. False is silent.
        **options: Single settings, such as ``negatives="hardest"``, ``learning_rate=2e-6``,
            ``batch_size=14``, ``max_epochs=20``, ``validation="dev.jsonl"``, ``device="cuda"`` or ``seed=1``.
            Of the optional tables ``guard`` and ``rehearsal``, None keeps what `settings` say, False switches
            the table off, and True or a dict switches it on.

    Returns:
        The record of the run, which other functions take as the tuned model.

    Raises:
        AdiabatError: If model, store, data, settings or directory are unusable, or the loss diverges.

    Example:
        >>> store = adiabat.embed("demo", "corpus.jsonl", out="store")
        >>> options = {"negatives": "hardest", "max_epochs": 1, "batches_per_epoch": 2}
        >>> job = adiabat.tune("demo", store, "train.jsonl", out="job", **options)
        >>> job.training.steps
        2
    """
    # Before anything else: a time limit covers the checks too.
    began = call_began()
    chosen = settings_of(TuneSettings, settings, options, section="tune", function="tune").with_usual_recipe()
    chosen = with_retained(chosen, retain)
    require_model(model, "model")
    folder, source = place_of(out), data_of(data, "data")
    asked = Asked.of("tune", folder, exist_ok, settings=chosen, model=model, store=store, data=source)
    if asked.is_finished(resume=resume):
        return asked.result(Result)
    resume = resume or asked.resumes("job")
    require_ready(
        inputs_of(name_of(model), path_of(store, "store"), source), folder, settings=chosen, resume=resume
    )
    require_names(model)
    require_reachable(model)
    with asked.carried_out(progress) as call:
        context = context_of(model, store, source, chosen)
        result = tune_in(context, folder, chosen, resume=resume, began=began, call=call)
    return with_page(result, folder)


def tune_in(
    context: "TuningContext",
    folder: Path,
    settings: TuneSettings,
    *,
    resume: bool,
    began: float,
    call: Call,
) -> Result:
    """Tune by the inputs of a context, and write the job; a time limit counts from `began`."""
    # Imported after the checks: torch takes seconds to load.
    from adiabat.adiabatic.tune import begin

    evidence = _evidence(context, folder, settings, call.watch)
    takes_steps = evidence is None or evidence.says_tune or settings.tune.evidence == "told"
    run = begin(
        context,
        folder,
        settings=settings,
        resume=resume,
        watch=call.watch,
        started=began,
        tells_time=takes_steps,
    )
    tuned = _tuned(run, evidence)
    # Loaded at the end: a run that fails does without.
    from adiabat.evaluation.set_power import validation_power

    power = validation_power(tuned.start, tuned.model, context.store, run.objective.validation, call.watch)
    expected = None if evidence is None else evidence.expected
    return tuned.finish(command=call.command, power=power, expected=expected)


def with_retained(settings: SettingsT, retain: Sequence[Retained]) -> SettingsT:
    """The settings with further retention sets after their own."""
    require_retained(retain)
    sets = [RetainSection(store=store, data=data) for store, data in retained_sets(retain, settings.retain)]
    return settings.model_copy(update={"retain": tuple(sets)})


def _evidence(
    context: "TuningContext", folder: Path, settings: TuneSettings, watch: Watch
) -> "Evidence | None":
    """The evidence of a job that asks for it, told before the first step."""
    if settings.tune.evidence == "off":
        return None
    from adiabat.experiments.evidence import evidence_for

    evidence = evidence_for(context, folder, settings, watch)
    watch.note(f"evidence: {evidence.reason}")
    if evidence.says_tune and (promise := evidence.promise()):
        watch.note(promise)
    return evidence


def _tuned(run: "TuningRun", evidence: "Evidence | None") -> "TunedRun":
    """Take the steps of a run, or keep its start where its evidence decides so."""
    if evidence is not None:
        evidence.write(run.job.folder)
        decides, anyway = run.settings.tune.evidence == "decides", option("evidence", "told")
        if decides and not evidence.says_tune and not run.has_steps:
            return run.keep_start(f"the evidence says not to tune ({anyway} tunes anyway): {evidence.reason}")
        if decides and evidence.says_try:
            run.watch.note(
                "the first epoch is a trial: unless it ranks better, the start is the result "
                f"({anyway} goes on)"
            )
            run = replace(run, is_trial=True)
    return at_its_rate(run).carry_out()


def estimate_tuning(
    model: "Model",
    store: PathLike,
    data: Data,
    out: PathLike | None = None,
    *,
    retain: Sequence[Retained] = (),
    settings: TuneSettings,
    progress: Progress = None,
    began: float | None = None,
) -> "TuningEstimate":
    """The resolved settings of a tuning job and its expected time, from a few steps on this machine; nothing
    is written.

    A time limit counts from `began`, a value of the monotonic clock; None takes the moment when model and
    data are read.
    """
    require_model(model, "model")
    source, settings = data_of(data, "data"), with_retained(settings.with_usual_recipe(), retain)
    inputs = inputs_of(name_of(model), path_of(store, "store"), source)
    if out is None:
        require_named(inputs, settings)
    else:
        require_ready(inputs, place_of(out), settings=settings, resume=False)
    require_names(model)
    require_reachable(model)
    from adiabat.adiabatic.tuning_estimate import estimate

    with called("tune", progress) as call:
        return estimate(context_of(model, store, source, settings), settings, started=began, watch=call.watch)


def at_its_rate(run: "TuningRun") -> "TuningRun":
    """The run at a number for its learning rate, which is searched for first where the settings ask for
    that.
    """
    if run.settings.rate_search is None:
        return run
    from adiabat.experiments.rate_search import rate_for_run

    return replace(run, settings=rate_for_run(run.context, run.search_folder, run.settings, run.watch))


def context_of(model: "Model", store: PathLike, data: Data, settings: TuneSettings) -> "TuningContext":
    """The inputs of tuning and of the search for a safe rate."""
    from adiabat.adiabatic.tuning_context import TuningContext
    from adiabat.models.model_names import load

    return TuningContext(
        lambda: load(model, settings=settings.encoder),
        Path(path_of(store, "store")),
        data_of(data, "data"),
        name_of(model),
    )


MODEL = "demo"

DEMO_SETTINGS: Mapping[str, Any] = {
    "tune": {"recipe": "quick", "evidence": "told", "max_epochs": 6, "budget_seconds": None}
}
"""Six epochs, 300 steps, whatever the speed of the machine and the last digits of its evidence."""


def demo_files() -> dict[str, Path]:
    """Paths of the embedded demo data: 5,600 arXiv papers, queries on them, and sentences in three languages.

    Returns:
        ``corpus``, ``train``, ``validation`` and ``test`` (computer science), ``arxiv-math`` and
        ``arxiv-physics`` (retention sets of the corpus), ``tico19-corpus`` and ``tico19`` (Spanish and French
        questions for English sentences).

    Example:
        >>> sorted(adiabat.demo_files())
        ['arxiv-math', 'arxiv-physics', 'corpus', 'test', 'tico19', 'tico19-corpus', 'train', 'validation']
    """
    # Importing the module checks all files, which no other verb needs.
    from adiabat.datasets.bundled import DEMO_CORPUS, DEMO_RETAIN, DEMO_TEST, DEMO_TRAIN, DEMO_VALIDATION

    files = {"corpus": DEMO_CORPUS, "train": DEMO_TRAIN, "validation": DEMO_VALIDATION, "test": DEMO_TEST}
    retention = {name: examples for name, (_, examples) in DEMO_RETAIN.items()}
    return {**files, **retention, "tico19-corpus": DEMO_RETAIN["tico19"][0]}


def run_demo(out: Path, *, progress: Progress = None) -> Result:
    """Embed, tune, evaluate; finished steps of an interrupted demo are not repeated."""
    from adiabat.datasets.bundled import DEMO_CORPUS, DEMO_RETAIN, DEMO_TEST, DEMO_TRAIN, DEMO_VALIDATION

    out = real(out)
    require_own(out, parts=("stores", "job"))
    make_folder(out / "stores", parents=True)
    corpora = dict.fromkeys([DEMO_CORPUS, *(corpus for corpus, _ in DEMO_RETAIN.values())])
    stores = {corpus: out / "stores" / corpus.name.split(".")[0] for corpus in corpora}
    retain = [(stores[corpus], examples) for corpus, examples in DEMO_RETAIN.values()]
    job = out / "job"
    for place in (*stores.values(), job):
        require_no_link(place)
    with called("demo", progress) as call:
        for corpus, store in stores.items():
            call.watch.note(f"embedding {store.name}")
            adiabat.embed(MODEL, corpus, store, progress=call.watch, backend="torch")
        if not ((job / "model").is_dir() and (job / "result.json").is_file()):
            adiabat.tune(
                MODEL,
                stores[DEMO_CORPUS],
                DEMO_TRAIN,
                job,
                resume=is_job(job),
                progress=call.watch,
                validation=DEMO_VALIDATION,
                settings=DEMO_SETTINGS,
            )
        return adiabat.evaluate(
            job,
            stores[DEMO_CORPUS],
            DEMO_TEST,
            baseline=MODEL,
            retain=retain,
            out=out,
            progress=call.watch,
            negatives="store",
        )
