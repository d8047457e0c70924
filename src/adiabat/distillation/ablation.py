"""A static model made step by step, each step measured (van Dongen and Tulkens, model2vec)."""

import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from adiabat.config.distillation import AblateSettings, DistillStaticSettings, FitSettings
from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import checked, read_settings
from adiabat.config.tasks import SuiteSettings, suite_file
from adiabat.core.disk import clear, make_folder
from adiabat.core.progress import SILENT, Watch
from adiabat.distillation.distill_checks import begun_ablation, is_distilled, require_ablation
from adiabat.distillation.static_model import distill_static, inputs_of
from adiabat.distillation.student import teach
from adiabat.dual_encoder.pair_data import contents_of
from adiabat.dual_encoder.train import train
from adiabat.evaluation.task_kinds import load_tasks
from adiabat.models.model_names import load_with
from adiabat.results.suite_result import SuiteResult
from adiabat.runs.output_dir import claimed_for_jobs
from adiabat.runs.run_config import FREE_RUN, Job, Rules, require_same

TEACHER = "teacher"
STEPS: Mapping[str, Mapping[str, Any]] = {
    "basic": {"pooling": "token", "weighting": "zipf", "normalize": False},
    "mean pooling": {"pooling": "mean", "weighting": "zipf", "normalize": False},
    "SIF": {"pooling": "mean", "weighting": "sif", "normalize": False},
    "normalisation": {"pooling": "mean", "weighting": "sif", "normalize": True},
}
"""Steps of model2vec (van Dongen and Tulkens), each of which adds one thing to the one before."""

PASSED = "passed"
"""Folder of the teacher's vectors, kept until all models made from them exist."""

RULES = Rules(
    free=frozenset(("ablate.out", *FREE_RUN)),
    words={
        "inputs.learned.files_sha256": "the texts, queries or pairs differ from those the ablation began with"
    },
    defaults=AblateSettings().model_dump(),
)

COUNTED, FITTED, PAIRED = "counts", "fit", "pairs"
"""Further steps: frequencies counted in a corpus, regression to the teacher, and a softmax over pairs with a
tower for each side."""


Steps = Mapping[str, tuple[Path, Callable[[], object]]]
"""Name of each model to its folder, and the function that makes or resumes it."""


def distill_ablate(
    teacher: str,
    settings: AblateSettings,
    *,
    measure: Callable[[SuiteSettings, Path], SuiteResult],
    resume: bool = False,
    command: str = "",
    watch: Watch = SILENT,
) -> SuiteResult:
    """Distill a teacher step by step, and measure each model and the teacher on a suite (van Dongen and
    Tulkens, model2vec).

    A step whose model is complete is not made again, so that a killed call resumes with the step it was at.

    Args:
        measure: Runs the suite in a folder; the verb gives it, as suites are another room's work.
    """
    section = settings.ablate
    require_ablation(teacher, settings, resume=resume)
    folder = Path(str(section.out))
    steps = _steps(teacher, settings, folder / "models", folder / PASSED, command, watch)
    suite = _suite(teacher, settings, steps)
    begun, note = begun_ablation(folder, resume=resume)
    if note:
        watch.note(note)
    # Errors in the suite's data, or in the inputs of models, must appear before any model is trained.
    load_tasks(suite, watch)
    inputs = inputs_of(teacher, _static(settings, {"weighting": settings.static.weighting.model_dump()}))
    if learned := [*section.texts, *section.queries, *filter(None, [section.pairs])]:
        inputs["learned"] = {
            "files_sha256": hashlib.sha256("".join(contents_of(learned).values()).encode()).hexdigest()
        }
    wanted = {"teacher": {"name": teacher}, "inputs": inputs, **settings.model_dump()}

    def description() -> dict[str, Any]:
        """The configuration to write, once it is that of the ablation that is resumed."""
        if begun:
            require_same(Job(folder), wanted, rules=RULES)
        return wanted

    with claimed_for_jobs(folder, description, begun=begun):
        for _, make in steps.values():
            make()
        clear(folder / PASSED)
        make_folder(folder / "suite")
        return measure(suite, folder / "suite")


def _suite(teacher: str, settings: AblateSettings, steps: Steps) -> SuiteSettings:
    """The tasks of the suite, on the teacher, the steps and the suite's own models.

    The first step is the baseline unless the suite names another.
    """
    given = read_settings(SuiteSettings, suite_file(str(settings.ablate.suite)))
    listed = [{"name": TEACHER, "model": teacher, "encoder": settings.encoder.model_dump(exclude_unset=True)}]
    listed += [{"name": name, "model": str(out)} for name, (out, _) in steps.items()]
    tables = given.model_dump(exclude_unset=True)
    tables["models"] = [*listed, *tables.get("models", ())]
    tables["suite"] = {
        "name": f"Static models of {teacher}",
        "baseline": next(iter(steps)),
        **tables.get("suite", {}),
    }
    tables["run"] = {**tables.get("run", {}), "device": settings.run.device}
    return checked(SuiteSettings, tables)


def _steps(
    teacher: str, settings: AblateSettings, models: Path, passed: Path, command: str, watch: Watch
) -> Steps:
    """The models in order.

    Static models differ in settings alone and share the teacher's vectors of tokens (`PASSED`). Each model
    that is trained starts from the one before.
    """
    section, student = settings.ablate, models

    def distill(out: Path, static: DistillStaticSettings) -> None:
        """Make a static model unless it is complete."""
        if not is_distilled(out):
            # The remains of a killed call are not a model, and the teacher's vectors are stored elsewhere.
            clear(out)
            distill_static(teacher, out, settings=static, passed=passed, command=command, watch=watch)

    def learn(out: Path, run: Callable[..., object], learning: FitSettings | TrainSettings) -> None:
        """Begin or resume a training job unless it is done."""
        if not Job(out).is_done:
            run(learning, resume=out.exists(), command=command, watch=watch)

    steps: dict[str, tuple[Path, Callable[[], object]]] = {}
    sections = dict(STEPS)
    weighting = settings.static.weighting
    if weighting.corpus is not None:
        sections[COUNTED] = {**STEPS["normalisation"], "weighting": weighting.model_dump()}
    for name, changes in sections.items():
        student = models / name.replace(" ", "-")
        steps[name] = student, partial(distill, student, _static(settings, changes))
    if section.texts or section.queries:
        fitted, student = _fit(teacher, settings, student, models / FITTED), models / FITTED
        steps[FITTED] = student, partial(learn, student, teach, fitted)
    if section.pairs is not None:
        paired = _paired(settings, student, models / PAIRED)
        steps[PAIRED] = models / PAIRED, partial(learn, models / PAIRED, partial(train, load_with), paired)
    return steps


def _static(settings: AblateSettings, section: Mapping[str, Any]) -> DistillStaticSettings:
    """The common settings of all steps, with those of one step laid over."""
    # The coefficient of SIF is the user's in every step that uses it; a corpus only counts in the last one.
    usual = settings.static.model_dump(exclude_unset=True)
    sif = settings.static.weighting.model_dump(exclude={"corpus"})
    weighting = sif if section["weighting"] == "sif" else section["weighting"]
    tables = {
        "static": {**usual, **section, "weighting": weighting},
        "encoder": settings.encoder.model_dump(exclude_unset=True),
        "run": settings.run.model_dump(),
    }
    return checked(DistillStaticSettings, tables)


def _fit(teacher: str, settings: AblateSettings, student: Path, out: Path) -> FitSettings:
    """Settings of the step that learns the teacher's vectors of texts, by the same tower and encoder settings
    as the steps before.
    """
    section = settings.ablate
    train = {"learning_rate": settings.fit.learning_rate, **settings.fit.model_dump(exclude_unset=True)}
    tables = {
        "distill": {
            "teachers": [teacher],
            "student": str(student),
            "out": str(out),
            "tower": settings.static.tower,
        },
        "teacher": settings.encoder.model_dump(exclude_unset=True),
        "data": {"texts": section.texts, "queries": section.queries},
        "train": train,
        "run": settings.run.model_dump(),
    }
    return checked(FitSettings, tables)


def _paired(settings: AblateSettings, student: Path, out: Path) -> TrainSettings:
    """Settings of the step that learns pairs, each side with a table of its own."""
    train = {"learning_rate": settings.pairs.learning_rate, **settings.pairs.model_dump(exclude_unset=True)}
    tables = {
        "job": {"model": str(student), "data": settings.ablate.pairs, "out": str(out)},
        "towers": {"kind": "asymmetric"},
        "train": train,
        "run": settings.run.model_dump(),
    }
    return checked(TrainSettings, tables)
