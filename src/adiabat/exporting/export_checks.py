"""Checks of an export by its settings, packages and paths, before torch is loaded."""

from pathlib import Path

from adiabat.config.exporting import ExportSettings, Format
from adiabat.core.errors import ConfigError, require_packages
from adiabat.core.wording import option
from adiabat.models.backend_checks import PACKAGES as OPENVINO
from adiabat.models.model_paths import Model, require_names, require_reachable
from adiabat.results.evaluation_result import Result
from adiabat.results.record import read_result
from adiabat.runs.output_dir import require_free
from adiabat.store.addressing import require_inputs

RECORD = "export.json"
"""What was exported and how well it agrees, beside the files of the model."""

PACKAGES: dict[Format, tuple[str, ...]] = {
    "onnx": ("onnx", "onnxruntime", "onnxscript"),
    "openvino": OPENVINO,
}
"""Packages that a format needs, of the extra with its name."""


def require_export(model: Model, folder: Path, settings: ExportSettings) -> None:
    """Check that an export can begin."""
    section = settings.export
    if section.to is None:
        raise ConfigError(
            f"export.to must be given, got none; add {option('to', 'sentence-transformers')}, onnx, "
            "openvino, peft, delta or model2vec"
        )
    require_names(model)
    require_names(section.base, named_by="export.base")
    require_inputs(
        [] if section.data is None else [section.data],
        stores=[] if section.store is None else [section.store],
    )
    require_packages(PACKAGES.get(section.to, ()), extra=section.to, purpose=f"an export to {section.to}")
    require_free(folder)
    for evaluation in section.evaluations:
        read_result(Path(evaluation) / "result.json", Result)
    require_reachable(model)
    require_reachable(section.base, named_by="export.base")
