"""`adiabat.distill_static`, `.distill_fit`, `.distill_multilingual`, `.distill_pair` and `.distill_ablate`:
students of a teacher.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adiabat.api.arguments import (
    Data,
    PathLike,
    SettingsLike,
    optional_name,
    path_of,
    place_of,
    require_model,
    settings_of,
    sources_of,
    with_real_out,
    with_section,
)
from adiabat.api.call import Progress
from adiabat.api.repeated import Asked
from adiabat.api.with_page import with_page
from adiabat.config.distillation import (
    AblateSettings,
    DistillStaticSettings,
    FitSettings,
    MultilingualSettings,
)
from adiabat.config.reader import read_settings
from adiabat.config.shared import EncoderSection
from adiabat.config.tasks import SuiteSettings
from adiabat.core.wording import call_began
from adiabat.distillation.distill_checks import (
    ABLATE,
    require_ablation,
    require_pair,
    require_static,
    require_student,
)
from adiabat.models.model_paths import Model, require_names
from adiabat.results.distillation_result import DistillResult
from adiabat.results.evaluation_result import Result
from adiabat.results.suite_result import SuiteResult

if TYPE_CHECKING:
    from adiabat.models.towers import DualEncoder


def distill_static(
    teacher: Model,
    out: PathLike,
    *,
    exist_ok: bool | None = None,
    settings: SettingsLike = None,
    progress: Progress = None,
    **options: Any,
) -> DistillResult:
    """Distill a teacher into a static model: one vector per token, whose mean is the embedding of a text.

    An interrupted call resumes when it is repeated. Reference: van Dongen and Tulkens, model2vec.

    Args:
        teacher: Any encoder. Where its towers differ, as those of a tuned job, ``tower="query"`` or
            ``"document"`` says which is distilled.
        out: Directory of the model, which model2vec and sentence-transformers load.
        exist_ok: True returns the result of the same call at once, as in `tune`. None resumes an interrupted
            call, and refuses a finished model.
        settings: `DistillStaticSettings`, a TOML file or nested dicts; ``adiabat settings distill static``
            lists them.
        progress: None is silent without a terminal or a notebook, and shows a bar on one. True prints a line
            every half minute without one. False is silent.
        **options: Single settings, such as ``tower="query"``, ``dims=256``, ``weighting="sif"`` or
            ``corpus="corpus.jsonl"``.

    Returns:
        The record, which other functions take as the static model.

    Raises:
        AdiabatError: If the teacher, a setting or the directory is unusable, or the disk is full.

    Example:
        >>> student = adiabat.distill_static("demo", out="static", dims=16)
        >>> student.dims
        16
    """
    chosen = settings_of(
        DistillStaticSettings, settings, options, section="static", function="distill_static"
    )
    require_model(teacher, "teacher")
    folder = place_of(out)
    asked = Asked.of("distill_static", folder, exist_ok, settings=chosen, teacher=teacher)
    if asked.is_finished():
        return asked.result(DistillResult)
    require_static(teacher, folder, chosen)
    # Imported after the checks: torch takes seconds to load.
    from adiabat.distillation.static_model import distill_static as make_static

    with asked.carried_out(progress) as call:
        result = make_static(teacher, folder, settings=chosen, command=call.command, watch=call.watch)
    return with_page(result, folder)


def distill_fit(
    teachers: PathLike | Sequence[PathLike] = (),
    student: PathLike | None = None,
    out: PathLike | None = None,
    *,
    texts: Data | Sequence[PathLike] = (),
    queries: Data | Sequence[PathLike] = (),
    resume: bool = False,
    exist_ok: bool | None = None,
    settings: SettingsLike = None,
    progress: Progress = None,
    **options: Any,
) -> Result:
    """Train a student to reproduce its teachers' vectors of texts, by cosine distance.

    Args:
        teachers: One model or several, whose vectors are averaged. Where the towers of one differ,
            ``tower="query"`` or ``"document"`` says which of them is the teacher; otherwise it is the query
            tower, with its prompt.
        student: Model that training starts from.
        out: Directory of the job, which becomes the trained model.
        texts: A corpus, or several.
        queries: Examples whose queries are trained on, or several such files.
        resume: Continue an interrupted job.
        exist_ok: True returns the result of the same call at once, as in `tune`. None refuses a job, unless
            `resume`.
        settings: `FitSettings`, a TOML file or nested dicts; ``adiabat settings distill fit`` lists them.
        progress: None is silent without a terminal or a notebook, and shows a bar on one. True prints a line
            every half minute without one. False is silent.
        **options: Single settings, such as ``steps=1000`` or ``batch_size=64``.

    Returns:
        The record of the run, which other functions take as the student.

    Example:
        >>> options = {"validation_fraction": 0.2, "batch_size": 4, "steps": 2}
        >>> student = adiabat.distill_fit("demo", "demo", out="student", texts="corpus.jsonl", **options)
        >>> student.training.steps
        2
    """
    began = call_began()
    options = _with_inputs(options, teachers, student, out, texts=texts, queries=queries)
    chosen = settings_of(FitSettings, settings, options, section="train", function="distill_fit")
    chosen = with_real_out(chosen, "distill")
    return _train_student(
        "distill_fit", chosen, resume=resume, exist_ok=exist_ok, progress=progress, started=began
    )


def distill_multilingual(
    teachers: PathLike | Sequence[PathLike] = (),
    student: PathLike | None = None,
    out: PathLike | None = None,
    *,
    parallel: Data | Sequence[PathLike] = (),
    resume: bool = False,
    exist_ok: bool | None = None,
    settings: SettingsLike = None,
    progress: Progress = None,
    **options: Any,
) -> Result:
    """Teach a student further languages: its vectors of texts and translations approach the teachers' of the
    texts (Reimers 2021).

    Args:
        teachers: One model or several, whose vectors are averaged. Where the towers of one differ,
            ``tower="query"`` or ``"document"`` says which of them is the teacher; otherwise it is the query
            tower, with its prompt.
        student: Model that training starts from.
        out: Directory of the job, which becomes the trained model.
        parallel: A table with a column for each language, or several; or two files of lines:
            ``"texts.en,texts.de"``.
        resume: Continue an interrupted job.
        exist_ok: True returns the result of the same call at once, as in `tune`. None refuses a job, unless
            `resume`.
        settings: `MultilingualSettings`, a TOML file or nested dicts; ``adiabat settings distill
            multilingual`` lists them.
        progress: None is silent without a terminal or a notebook, and shows a bar on one. True prints a line
            every half minute without one. False is silent.
        **options: Single settings, such as ``source="en"``, ``languages=["de"]`` or ``steps=1000``.

    Returns:
        The record of the run, which other functions take as the student.

    Example:
        >>> rows = [{"en": f"text {number}", "de": f"Text {number}"} for number in range(20)]
        >>> options = {"validation_fraction": 0.2, "batch_size": 4, "steps": 2}
        >>> student = adiabat.distill_multilingual("demo", "demo", out="student", parallel=rows, **options)
        >>> student.training.steps
        2
    """
    began = call_began()
    options = _with_inputs(options, teachers, student, out, parallel=parallel)
    chosen = settings_of(
        MultilingualSettings, settings, options, section="train", function="distill_multilingual"
    )
    chosen = with_real_out(chosen, "distill")
    return _train_student(
        "distill_multilingual", chosen, resume=resume, exist_ok=exist_ok, progress=progress, started=began
    )


def distill_pair(
    query: Model,
    document: Model,
    out: PathLike,
    *,
    exist_ok: bool | None = None,
    settings: EncoderSection | None = None,
) -> "DualEncoder":
    """Combine the query tower of one model with the document tower of another: a small student for an index
    of its teacher.

    Args:
        query: Model of the query tower, such as a static model fitted to the teacher.
        document: Model of the document tower; its stores can be searched with the pair.
        out: Directory of the pair, which becomes a model.
        exist_ok: True returns the result of the same call at once, as in `tune`. None refuses a directory in
            use.
        settings: Settings of loading, such as `trust_remote_code`.

    Returns:
        The pair.

    Raises:
        AdiabatError: If a model cannot be loaded or saved, the widths differ, or the directory is not empty.

    Example:
        >>> pair = adiabat.distill_pair("demo", "demo", out="pair")
        >>> pair.query is pair.document
        False
    """
    require_model(query, "query")
    require_model(document, "document")
    folder = place_of(out)
    asked = Asked.of(
        "distill_pair", folder, exist_ok, settings=settings, proof="", query=query, document=document
    )
    if asked.is_finished():
        from adiabat.models.model_names import load

        return load(folder, settings=settings)
    require_pair(query, document, folder)
    asked.take_digests()
    # Imported after the checks: torch takes seconds to load.
    from adiabat.distillation.static_model import distill_pair as make_pair

    pair = make_pair(query, document, folder, settings=settings)
    asked.remember()
    return pair


def distill_ablate(
    teacher: PathLike,
    out: PathLike | None = None,
    *,
    resume: bool = False,
    exist_ok: bool | None = None,
    settings: SettingsLike = None,
    progress: Progress = None,
    **options: Any,
) -> SuiteResult:
    """Distill a teacher in the simplest way, add one step after the other, and measure every model on a
    suite.

    Reference: van Dongen and Tulkens, model2vec.

    Args:
        teacher: Any encoder. Where its towers differ, ``tower="query"`` or ``"document"`` says which is the
            teacher of all steps.
        out: Directory of the models and the result; ``ablate.out`` of the settings.
        resume: Continue an interrupted ablation.
        exist_ok: True returns the result of the same call at once, as in `tune`. None refuses an ablation,
            unless `resume`.
        settings: `AblateSettings`, a TOML file or nested dicts; ``adiabat settings distill ablate`` lists
            them.
        progress: None is silent without a terminal or a notebook, and shows a bar on one. True prints a line
            every half minute without one. False is silent.
        **options: Single settings, such as ``suite="suite.toml"`` (required) or ``texts=["corpus.jsonl"]``.

    Returns:
        The suite's result, in which models are compared with the first step.

    Example:
        >>> result = adiabat.distill_ablate("demo", out="steps", suite="suite.toml", dims=16)
        >>> len(result.models)
        5
    """
    options["out"] = optional_name(out, "out")
    chosen = settings_of(AblateSettings, settings, options, section="ablate", function="distill_ablate")
    chosen = with_real_out(chosen, "ablate")
    # The files that the suite names count too.
    suite = Path(str(chosen.ablate.suite))
    inputs: dict[str, Any] = {
        "teacher": teacher,
        "suite": read_settings(SuiteSettings, suite) if suite.is_file() else None,
    }
    asked = Asked.of(
        "distill_ablate", chosen.ablate.out, exist_ok, settings=chosen, proof="suite/result.json", **inputs
    )
    if asked.is_finished(resume=resume):
        return asked.result(SuiteResult)
    resume = resume or asked.resumes(ABLATE)
    require_ablation(path_of(teacher, "teacher"), chosen, resume=resume)
    # Imported after the checks: torch takes seconds to load.
    from adiabat.api.evaluate_verb import evaluate_suite
    from adiabat.distillation.ablation import distill_ablate as run_ablation

    with asked.carried_out(progress) as call:
        result = run_ablation(
            path_of(teacher, "teacher"),
            chosen,
            measure=lambda suite, folder: evaluate_suite((), suite, out=folder, progress=call.watch),
            resume=resume,
            command=call.command,
            watch=call.watch,
        )
    return with_page(result, result.folder)


def _train_student(
    verb: str,
    chosen: FitSettings | MultilingualSettings,
    *,
    resume: bool,
    exist_ok: bool | None,
    progress: Progress,
    started: float,
) -> Result:
    """Check the settings of a student, and train it, unless it is there already."""
    asked = Asked.of(verb, chosen.distill.out, exist_ok, settings=chosen)
    if asked.is_finished(resume=resume):
        return asked.result(Result)
    resume = resume or asked.resumes("job")
    require_student(chosen, resume=resume)
    # Imported after the checks: torch takes seconds to load.
    from adiabat.distillation.student import teach

    with asked.carried_out(progress) as call:
        result = teach(chosen, resume=resume, command=call.command, watch=call.watch, started=started)
    return with_page(result, asked.out)


def _with_inputs(
    options: Mapping[str, Any], teachers: Any, student: Any, out: Any, **sources: Any
) -> dict[str, Any]:
    """The keyword arguments with the positional ones of a student in their sections."""
    names, start = sources_of(teachers, "teachers"), optional_name(student, "student")
    # Names are checked before rows in memory are written, which may be many.
    require_names(*names, start)
    data = {name: sources_of(value, name) for name, value in sources.items()}
    options = with_section(options, "distill", teachers=names, student=start, out=optional_name(out, "out"))
    return with_section(options, "data", **data)
