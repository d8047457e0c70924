"""Checks of students by their settings and paths, before torch is loaded."""

import os
from pathlib import Path

from adiabat.config.distillation import (
    AblateSettings,
    DistillStaticSettings,
    FitSettings,
    MultilingualSettings,
    TeachSettings,
)
from adiabat.config.shared import require_device_name
from adiabat.config.tasks import suite_file
from adiabat.core.errors import ConfigError, DataError, JobError, ModelError, several
from adiabat.core.files import is_there, require_plain
from adiabat.core.wording import option
from adiabat.data.corpora import training_texts
from adiabat.data.folders import require_path
from adiabat.data.parallel import ParallelSource, parallel_sources
from adiabat.models.json_files import read_json
from adiabat.models.model_paths import Model, require_names, require_reachable, require_side
from adiabat.runs.output_dir import require_begun, require_free
from adiabat.runs.run_config import is_described
from adiabat.store.addressing import require_inputs

PASSED = ".passed"
"""Folder of a teacher's vectors, beside a static model while it is being made."""

ABLATE = "ablate"
"""Table that identifies the configuration of an ablation."""


def is_distilled(folder: Path) -> bool:
    """Whether a directory holds a complete static model in model2vec's layout; one that was killed before it
    was tidied is made again.
    """
    # The teacher's vectors are removed last.
    if (folder / PASSED).exists():
        return False
    return (
        is_there(folder / "modules.json", error=ModelError)
        and read_json(folder / "config.json").get("model_type") == "model2vec"
    )


def require_static(teacher: Model, folder: Path, settings: DistillStaticSettings) -> None:
    """Check that a static model can be made."""
    require_names(teacher)
    require_device_name(settings.run.device)
    require_new(folder)
    section = settings.static
    if section.vocabulary is not None:
        require_vocabulary(Path(section.vocabulary))
    if section.weighting.corpus is not None:
        # Check the first row, so that its errors come before the model is loaded.
        training_texts(section.weighting.corpus)
    require_reachable(teacher)
    require_side(teacher, section.tower, setting="static.tower")


def require_vocabulary(path: Path) -> None:
    """Refuse a file of added words that is none."""
    require_plain(path)
    if not path.is_file():
        raise DataError(
            f"static.vocabulary must be a readable file, got {path}: "
            f"{'a folder' if path.exists() else 'no such file'}"
        )


def require_new(folder: Path) -> None:
    """Refuse a directory that is not new or empty, and holds no interrupted call either."""
    if is_distilled(folder):
        raise JobError(f"{option('out', folder)} holds a model already; choose another directory")
    if not (folder / PASSED).is_dir():
        require_free(folder)


def require_pair(query: Model, document: Model, folder: Path) -> None:
    """Check that a pair can be made."""
    require_free(folder)
    require_names(query, document)
    require_reachable(query, document)


def require_student(settings: FitSettings | MultilingualSettings, *, resume: bool) -> None:
    """Check that a student can be trained, or its training resumed."""
    section, folder = settings.distill, out_of(settings)
    require_names(*section.teachers, named_by="distill.teachers")
    require_names(section.student, named_by="distill.student")
    require_device_name(settings.run.device)
    require_free(folder, resume=resume)
    if isinstance(settings, FitSettings):
        if not (settings.data.texts or settings.data.queries):
            advice = f"write it into the file, or add {option('texts')} or {option('queries')}"
            raise ConfigError(f"data.texts must be given, got none; {advice}")
        require_inputs(settings.data.queries, corpora=settings.data.texts)
    else:
        for parallel in translations_of(settings):
            if parallel.translation is None:
                require_inputs([parallel.path])
            else:
                require_path(Path(parallel.path))
                require_path(Path(parallel.translation))
    require_reachable(*section.teachers, named_by="distill.teachers")
    require_reachable(section.student, named_by="distill.student")
    for teacher in section.teachers:
        require_side(teacher, section.tower, setting="distill.tower")


def translations_of(settings: MultilingualSettings) -> list[ParallelSource]:
    """The sources of translations."""
    data = settings.data
    if not data.parallel:
        raise ConfigError(
            f"data.parallel must be given, got none; write it into the file, or add {option('parallel')}"
        )
    return parallel_sources(data.parallel, source=data.source, languages=data.languages)


def out_of(settings: TeachSettings) -> Path:
    """The directory of the job, after checking the required settings."""
    section = settings.distill
    required = {
        "distill.teachers": section.teachers,
        "distill.student": section.student,
        "distill.out": section.out,
    }
    if missing := [f"{name} must be given, got none" for name, value in required.items() if not value]:
        raise ConfigError(f"{several(missing)}; write it into the file, or give its option")
    if (processes := os.environ.get("WORLD_SIZE", "1")) != "1":
        raise ConfigError(
            f"distillation must run in one process, got {processes}; start it without a launcher"
        )
    return Path(str(section.out))


def require_ablation(teacher: str, settings: AblateSettings, *, resume: bool) -> None:
    """Check that an ablation can start or resume."""
    section = settings.ablate
    if missing := [
        f"ablate.{name} must be given, got none"
        for name in ("suite", "out")
        if getattr(section, name) is None
    ]:
        raise ConfigError(f"{several(missing)}; write it into the file, or give its option")
    require_names(teacher)
    require_device_name(settings.run.device)
    require_path(suite_file(str(section.suite)))
    examples = [*section.queries, *filter(None, [section.pairs])]
    require_inputs(examples, corpora=[*section.texts, *filter(None, [settings.static.weighting.corpus])])
    begun_ablation(Path(str(section.out)), resume=resume)
    require_reachable(teacher)


def begun_ablation(folder: Path, *, resume: bool) -> tuple[bool, str | None]:
    """Whether a directory holds an ablation to resume, and a note if there is none."""
    begun = is_described(folder, ABLATE)
    return begun, require_begun(folder, "static ablation", begun=begun, resume=resume)
