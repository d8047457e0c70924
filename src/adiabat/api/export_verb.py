"""`adiabat.export`: one tower, or what differs from its base model, in the formats of other programs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adiabat.api.arguments import PathLike, SettingsLike, place_of, require_model, settings_of
from adiabat.api.call import Progress
from adiabat.api.repeated import Asked
from adiabat.config.exporting import ExportSettings
from adiabat.core.files import read_json
from adiabat.core.text import amount
from adiabat.exporting.export_checks import RECORD, require_export
from adiabat.models.model_paths import Model


@dataclass(frozen=True, slots=True)
class Exported:
    """What `export` wrote; a path to its directory (`os.fspath`).

    Attributes:
        folder: The directory.
        to: Format.
        precision: Of the weights.
        sizes: Bytes of each file, by its path in the directory.
        parity: For each tower that was compared, the texts, the least and the mean cosine to the model's own
            vectors, the text of the least, and for int8 the paired change of the ranking.

    Example:
        >>> exported = adiabat.export("demo", out="tower", to="sentence-transformers")
        >>> exported.parity["query"]["minimum_cosine"] > 0.9999
        True
    """

    folder: Path
    to: str
    precision: str
    sizes: dict[str, int]
    parity: dict[str, dict[str, Any]]

    def __fspath__(self) -> str:
        return str(self.folder)

    def summary(self) -> str:
        """A line for each tower, and one for the files."""
        lines = [
            f"{side} tower, {found['texts']}: cosine at least {found['minimum_cosine']:.6f}, "
            f"mean {found['mean_cosine']:.6f}"
            for side, found in self.parity.items()
        ]
        for found in self.parity.values():
            if change := found.get("change"):
                moved = f"{change['before']:.4f} to {change['after']:.4f}"
                lines.append(f"{change['measure']} {moved}, {change['verdict']}")
        return "\n".join([*lines, f"{self.to}, {self.precision}: {amount(sum(self.sizes.values()))}"])

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "folder": str(self.folder),
            "to": self.to,
            "precision": self.precision,
            "bytes": self.sizes,
            "parity": self.parity,
        }


def export(
    model: Model,
    out: PathLike,
    *,
    exist_ok: bool | None = None,
    settings: SettingsLike = None,
    progress: Progress = None,
    **options: Any,
) -> Exported:
    """Write one tower of a model for other programs, and compare it with the model's own vectors.

    The directory holds everything in its root, with the prompt of the tower as the default one, so that
    programs that know nothing of two towers load it. Nothing is left if the vectors differ.

    Args:
        model: Model or finished job.
        out: Directory of the export.
        exist_ok: True returns the result of the same call at once, as in `tune`. None refuses a directory in
            use.
        settings: `ExportSettings`, a TOML file or nested dicts; ``adiabat settings export`` lists them.
        progress: None is silent without a terminal or a notebook, and shows notes on one. True shows them
            everywhere. False is silent.
        **options: Single settings, such as ``to="onnx"`` (required), ``tower="document"`` or
            ``precision="int8"``.

    Returns:
        Files, and their agreement with the model.

    Raises:
        AdiabatError: If the model does not fit the format, a package is missing, the directory is in use, or
            the export gives other vectors.

    Example:
        >>> exported = adiabat.export("demo", out="tower", to="sentence-transformers", tower="document")
        >>> sorted(exported.parity)
        ['document']
    """
    chosen = settings_of(ExportSettings, settings, options, section="export", function="export")
    require_model(model, "model")
    folder = place_of(out)
    asked = Asked.of("export", folder, exist_ok, settings=chosen, proof=RECORD, model=model)
    if asked.is_finished():
        return _read(folder)
    require_export(model, folder, chosen)
    # Imported after the checks: torch takes seconds to load.
    from adiabat.exporting.export import export as write

    with asked.carried_out(progress) as call:
        write(model, folder, chosen, call.watch)
    return _read(folder)


def _read(folder: Path) -> Exported:
    record = read_json(folder / RECORD, remedy="export the model again")
    return Exported(folder, record["to"], record["precision"], record["bytes"], record["parity"])
