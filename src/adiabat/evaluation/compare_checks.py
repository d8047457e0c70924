"""Checks of a comparison by its settings and paths, before torch is loaded."""

from pathlib import Path

from adiabat.config.tasks import CompareSettings, RunsMeasureSection
from adiabat.core.errors import ConfigError, DataError
from adiabat.core.wording import option
from adiabat.data.folders import require_path
from adiabat.evaluation.score_files import SUFFIX


def require_comparable(
    first: Path, second: Path, *, qrels: Path | None, settings: CompareSettings
) -> list[bool]:
    """Check that two sides can be compared; returns whether each has stored scores, and is no TREC run."""
    if first.resolve() == second.resolve():
        raise ConfigError(f"the two must differ, got {first} twice; name two models or runs")
    stored = [_is_stored(path) for path in (first, second)]
    if all(stored) and qrels is not None:
        raise ConfigError(f"{option('qrels')} must be left out for saved scores, got {qrels}; leave it out")
    if all(stored) and settings.measure.ties != RunsMeasureSection().ties:
        raise ConfigError(
            "measure.ties has no effect on saved scores, whose rankings are exact; leave it out"
        )
    if qrels is not None:
        require_path(qrels)
    elif unjudged := [path for path, is_stored in zip((first, second), stored, strict=True) if not is_stored]:
        demand = f"{option('qrels')} must name the judgements of a run in the format of TREC"
        raise ConfigError(f"{demand}, got none for {unjudged[0]}; add {option('qrels', 'FILE')}")
    return stored


def _is_stored(path: Path) -> bool:
    """Whether a path holds stored scores; another file is a run in the format of TREC."""
    if not path.exists():
        raise DataError(
            f"{path} must be a folder with scores, or a run in the format of "
            "TREC, got no such file; check the path"
        )
    return path.is_dir() or path.suffix == SUFFIX
