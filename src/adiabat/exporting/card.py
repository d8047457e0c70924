"""The model card of an export: what was tuned and measured, and how other programs load it."""

import json
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path

import jinja2

from adiabat.config.exporting import ExportSection
from adiabat.core.disk import new_file, remove
from adiabat.core.text import IN_WORDS, printable
from adiabat.data.records import Side
from adiabat.exporting.job_tables import base_of, hub_name, training_of
from adiabat.exporting.parity import Parity
from adiabat.models.model_paths import HUB_NAME
from adiabat.models.static import StaticBackbone
from adiabat.models.towers import DualEncoder
from adiabat.report.format import improvement
from adiabat.results.evaluation_result import Result
from adiabat.results.record import read_result
from adiabat.results.training_record import TrainingRecord

FILE, TEMPLATE = "README.md", "card.md.j2"

ARGUMENTS = {
    "onnx": ', backend="onnx"',
    "openvino": ', backend="openvino", model_kwargs={"ov_config": {"INFERENCE_PRECISION_HINT": "f32"}}',
}
"""What sentence-transformers needs to load a graph."""

PLURALS: Mapping[Side, str] = {"query": "queries", "document": "documents"}


def write_card(
    folder: Path, model: DualEncoder, section: ExportSection, parities: Mapping[Side, Parity]
) -> None:
    """Write the card in the place of the one that saving wrote."""
    side: Side = section.tower
    tower, record = model.tower(side), training_of(model.name)
    prompt = tower.settings.prompt(side)
    base = section.base or base_of(model.name)
    text = _template().render(
        form=section.to,
        tower=side,
        texts=PLURALS[side],
        other_texts=PLURALS["document" if side == "query" else "query"],
        base=_published(base),
        is_static=isinstance(tower.backbone, StaticBackbone),
        is_one_of_two=not model.alike,
        width=model.width,
        similarity=IN_WORDS[model.similarity],
        limit=tower.settings.limit(side),
        prompt=prompt,
        quoted_prompt=json.dumps(prompt),
        with_prompt="put it before each text" if prompt else "none",
        trained_on=None if record is None else printable(record.trained_on),
        arguments=ARGUMENTS.get(str(section.to), ""),
        rows=[*_of_validation(record), *_of_evaluations(section)],
        agreement=[_agreement(side, found, section) for side, found in parities.items()],
    )
    remove(folder / FILE)
    with new_file(folder / FILE) as file:
        file.write(text.encode())


def _published(base: str | None) -> str | None:
    """The name of a base model on the hub; None for one that is a path of this machine."""
    if base is None or (base != "demo" and (Path(base).exists() or HUB_NAME.fullmatch(base) is None)):
        return None
    return hub_name(base)


def _template() -> jinja2.Template:
    source = (resources.files("adiabat.exporting") / TEMPLATE).read_text(encoding="utf-8")
    # Markdown, in which nothing is escaped; a missing value is a defect.
    environment = jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined
    )
    return environment.from_string(source)


Row = tuple[str, str, str, str, str]
"""Data, queries, measure, change, verdict."""


def _of_validation(record: TrainingRecord | None) -> Iterator[Row]:
    """The gain that the validation queries of a job showed."""
    if record is not None and record.chosen is not None:
        target = record.chosen.figures[0]
        gain, lowest = target.in_percent(target.change), target.in_percent(target.lowest)
        name = f"{printable(target.name)}, validation"
        yield name, f"{target.queries:,}", "nDCG@10", f"{gain:+.1f} % (at least {lowest:+.1f} %)", "better"


def _of_evaluations(section: ExportSection) -> Iterator[Row]:
    for folder in section.evaluations:
        for dataset in read_result(Path(folder) / "result.json", Result).datasets:
            change = dataset.main_change()
            name, queries = printable(dataset.name), f"{dataset.queries:,}"
            yield name, queries, change.measure, improvement(change), change.verdict or ""


def _agreement(side: Side, found: Parity, section: ExportSection) -> str:
    agreement = (
        f"{side.capitalize()} tower in {section.settled_precision}, {found.texts}: cosine at least "
        f"{found.minimum:.6f}, mean {found.mean:.6f}"
    )
    if found.change is None:
        return agreement
    return f"{agreement}; {found.change.measure} {improvement(found.change)}, {found.change.verdict}"
