"""An export from start to end: written beside its place, compared with the model, then moved there."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from adiabat.config.exporting import ExportSection, ExportSettings, Format
from adiabat.core.disk import give_usual_mode, remove
from adiabat.core.errors import ModelError
from adiabat.core.files import whole_folder, write_json
from adiabat.core.progress import Watch
from adiabat.core.text import cut
from adiabat.core.wording import option
from adiabat.data.records import SIDES, Side
from adiabat.exporting.adapter_files import write_adapter
from adiabat.exporting.card import write_card
from adiabat.exporting.differences import differences, factored
from adiabat.exporting.export_checks import RECORD
from adiabat.exporting.job_tables import base_of, hub_name, tables_of
from adiabat.exporting.one_tower import in_half_precision, one_tower, require_transformer
from adiabat.exporting.parity import Compared, Parity, Vectors, compared_texts, parity
from adiabat.exporting.static_files import as_model2vec, write_static
from adiabat.models.deltas import TowerDelta, is_delta, load_delta, write_delta
from adiabat.models.embedding_head import NAMES
from adiabat.models.encoder import Encoder
from adiabat.models.graphs import EmbeddingGraph, Run, as_graph
from adiabat.models.model_names import load
from adiabat.models.model_paths import Model, directory_of
from adiabat.models.saving import save
from adiabat.models.static import StaticBackbone
from adiabat.models.towers import DualEncoder, merged_tower

Embed = Callable[[Sequence[str]], Vectors]
"""The export at work: texts to vectors."""


def export(model: Model, folder: Path, settings: ExportSettings, watch: Watch) -> None:
    """Write one tower, or what differs from the base model, and compare it with the model.

    Raises:
        ModelError: If the model does not fit the format, or the export gives other vectors; nothing is left.
    """
    loaded = load(model, settings=settings.encoder)
    section = settings.export
    assert section.to is not None
    with whole_folder(folder) as making:
        watch.note(f"writing {section.to} in {section.settled_precision}")
        if section.to == "delta":
            parities = {}
            for side, run in _delta(loaded, section, making).items():
                compared = compared_texts(loaded, section, side, watch)
                parities[side] = _compared(loaded, section, side, run, compared, watch)
        else:
            side = section.tower
            compared = compared_texts(loaded, section, side, watch)
            run = WRITERS[section.to](loaded, section, making, compared.others)
            parities = {side: _compared(loaded, section, side, run, compared, watch)}
        write_card(making, loaded, section, parities)
        give_usual_mode(*making.rglob("*.safetensors"))
        files = sorted(file for file in making.rglob("*") if file.is_file())
        record = {
            "to": section.to,
            "precision": section.settled_precision,
            "bytes": {str(file.relative_to(making)): file.stat().st_size for file in files},
            "parity": {side: _parity_in_json(found) for side, found in parities.items()},
        }
        write_json(record, making / RECORD)


def _parity_in_json(found: Parity) -> dict[str, Any]:
    record: dict[str, Any] = {
        "texts": found.texts,
        "minimum_cosine": found.minimum,
        "mean_cosine": found.mean,
        "worst_text": found.worst,
    }
    if (change := found.change) is not None:
        record["change"] = {
            "measure": change.measure,
            "before": change.before,
            "after": change.after,
            "improvement_percent": change.improvement,
            "improvement_interval": change.improvement_interval,
            "verdict": change.verdict,
        }
    return record


def _saved(model: DualEncoder, section: ExportSection, folder: Path, calibrated: Sequence[str]) -> Embed:
    """A plain model of sentence-transformers."""
    one = one_tower(model, section.tower)
    save(in_half_precision(one) if section.settled_precision == "fp16" else one, folder)
    return partial(_by_model, folder, section.tower)


def _static(model: DualEncoder, section: ExportSection, folder: Path, calibrated: Sequence[str]) -> Embed:
    """A static model of model2vec."""
    tower = one_tower(model, section.tower).query
    if not isinstance(tower.backbone, StaticBackbone):
        raise ModelError(
            "export.to must be another format for a transformer, got model2vec, which holds static models; "
            f"distill one first, or choose {option('to', 'sentence-transformers')}"
        )
    half = section.settled_precision == "fp16"
    write_static(tower, section.tower, NAMES[model.similarity], folder, half=half)
    return partial(_by_model2vec, folder, section.tower)


def _adapter(model: DualEncoder, section: ExportSection, folder: Path, calibrated: Sequence[str]) -> Embed:
    """Low-rank adapters beside the modules that a base model lacks."""
    one = one_tower(model, section.tower)
    require_transformer(one.query, "peft")
    base, name, rank = _base(model, section)
    if rank is None:
        raise ModelError(
            f"export.to must be delta or sentence-transformers for {model.name}, which was not tuned "
            "with adapters, got peft; choose one of them"
        )
    half = section.settled_precision == "fp16"
    save(one, folder)
    write_adapter(one, merged_tower(base.tower(section.tower)), hub_name(name), rank, folder, half=half)
    # The base model has both.
    remove(folder / "config.json", *folder.glob("model*.safetensors*"))
    return partial(_by_model, folder, section.tower)


def _graph(model: DualEncoder, section: ExportSection, folder: Path, calibrated: Sequence[str]) -> Embed:
    """A graph of another runtime, beside the tokenizer and the settings of its modules."""
    side, precision = section.tower, section.settled_precision
    one = one_tower(model, side)
    require_transformer(one.query, str(section.to))
    save(one, folder)
    # Nothing loads them here but a call that forgot the backend, and would get vectors of other weights.
    remove(*folder.glob("model*.safetensors*"))
    graph = as_graph(one.query, side)
    if section.to == "onnx":
        from adiabat.exporting.onnx_files import onnx_run, write_onnx

        write_onnx(graph, folder, precision)
        return partial(_by_graph, graph, onnx_run, folder, side)
    from adiabat.exporting.openvino_files import openvino_run, write_openvino

    write_openvino(graph, folder, precision, calibrated, side)
    return partial(_by_graph, graph, openvino_run, folder, side)


WRITERS: Mapping[Format, Callable[[DualEncoder, ExportSection, Path, Sequence[str]], Embed]] = {
    "sentence-transformers": _saved,
    "model2vec": _static,
    "peft": _adapter,
    "onnx": _graph,
    "openvino": _graph,
}
"""What writes one tower in a format, given texts to calibrate int8 on, and gives the export at work."""


def _by_model(folder: Path, side: Side, texts: Sequence[str]) -> Vectors:
    return np.asarray(load(folder).encode(texts, side=side, precision="fp32"))


def _by_model2vec(folder: Path, side: Side, texts: Sequence[str]) -> Vectors:
    return np.asarray(as_model2vec(folder).encode(texts, side=side, precision="fp32"))


def _by_graph(
    graph: EmbeddingGraph, run_of: Callable[[Path], Run], folder: Path, side: Side, texts: Sequence[str]
) -> Vectors:
    return graph.vectors(run_of(folder), texts, side)


def _by_delta(folder: Path, base: DualEncoder, side: Side, texts: Sequence[str]) -> Vectors:
    def loaded(name: str) -> DualEncoder:
        # The base that was compared with, under whatever name.
        del name
        return base

    return np.asarray(load_delta(folder, loaded).encode(texts, side=side, precision="fp32"))


def _delta(model: DualEncoder, section: ExportSection, folder: Path) -> dict[Side, Embed]:
    """Write each tower that differs from that of the base model."""
    base, name, rank = _base(model, section)
    query = merged_tower(model.query)
    merged = replace(model, query=query, document=query if model.shared else merged_tower(model.document))
    deltas = []
    for side in SIDES[:1] if model.shared else SIDES:
        tower, start = merged.tower(side), merged_tower(base.tower(side))
        require_transformer(tower, "delta")
        if tower.tokenizer_digest() != start.tokenizer_digest():
            raise ModelError(
                f"export.to must be sentence-transformers where the tokenizer of {model.name} is not that of "
                f"its base {name}, got delta; choose another format"
            )
        changes = differences(tower, start)
        if rank is not None:
            changes = factored(changes, rank)
        if section.settled_precision == "fp16":
            changes = {key: each.half() for key, each in changes.items()}
        projections = not _same_projections(tower, start)
        if changes or projections or tower.settings != start.settings:
            deltas.append(TowerDelta(side, tower.settings, changes, projections))
    write_delta(merged, base, name, deltas, folder)
    sides: Sequence[Side] = SIDES[:1] if model.shared else [delta.side for delta in deltas] or SIDES[:1]
    return {side: partial(_by_delta, folder, base, side) for side in sides}


def _compared(
    model: DualEncoder, section: ExportSection, side: Side, run: Embed, compared: Compared, watch: Watch
) -> Parity:
    """The proof of one tower, which must agree."""
    watch.note(f"comparing the {side} tower on {compared.named}")
    own = model.encode(compared.texts, side=side, precision="fp32")
    found = parity(compared, own, run(compared.texts), ranked=section.settled_precision == "int8")
    _require_agreement(found, side, section)
    return found


def _require_agreement(found: Parity, side: Side, section: ExportSection) -> None:
    # A NaN is below every limit.
    if found.minimum >= section.least_cosine:
        return
    accepted = math.floor(1e4 * found.minimum) / 1e4 if math.isfinite(found.minimum) else -1.0
    raise ModelError(
        f"the exported {side} tower must agree with the model at cosine >= {section.least_cosine:g}, got "
        f"{found.minimum:.6f} for {cut(found.worst, limit=80)!r} (mean {found.mean:.6f}, {found.texts}); "
        f"choose another {option('precision')}, or accept it by {option('min_cosine', accepted)}"
    )


def _base(model: DualEncoder, section: ExportSection) -> tuple[DualEncoder, str, int | None]:
    """The base model with its name, and the rank of the adapters that a job trained; None for none."""
    tables = tables_of(model.name)
    name = section.base or base_of(model.name)
    if name is None:
        raise ModelError(
            f"export.base must name the model that {model.name or 'the model'} was tuned from, for "
            f"{option('to', str(section.to))}, got none, and no job knows it; add {option('base', 'MODEL')}"
        )
    methods = (tables.get(verb, {}).get("method", {}) for verb in ("tune", "train"))
    rank = next((method["rank"] for method in methods if method.get("kind") == "lora"), None)
    if is_delta(Path(directory_of(name))):
        raise ModelError(
            f"export.base must be a model with weights of its own, got the delta {name}; name its base, "
            f"or export {name} to sentence-transformers first"
        )
    # A path is read from any working directory.
    located = str(Path(name).absolute()) if name != "demo" and Path(name).exists() else name
    return load(name), located, rank


def _same_projections(tower: Encoder, start: Encoder) -> bool:
    ours, others = tower.projections.state_dict(), start.projections.state_dict()
    return ours.keys() == others.keys() and all(ours[name].equal(others[name]) for name in ours)
