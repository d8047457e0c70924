"""OpenVINO: a graph in the layout that sentence-transformers' backend reads, and its runtime."""

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from adiabat.config.exporting import Precision
from adiabat.core.disk import make_folder
from adiabat.data.records import Side
from adiabat.exporting.graphs import STATES, VECTORS, EmbeddingGraph, Run

FILE = Path("openvino") / "openvino_model.xml"

OPTIONS = {"INFERENCE_PRECISION_HINT": "f32"}
"""Some processors would compute in bfloat16 unasked, which moves a vector by a hundredth."""


def write_openvino(
    graph: EmbeddingGraph, folder: Path, precision: Precision, texts: Sequence[str], side: Side
) -> None:
    """Write the graph of a tower below a folder; int8 is calibrated on `texts`."""
    openvino = _openvino()
    make_folder((folder / FILE).parent)
    with warnings.catch_warnings(), torch.no_grad():
        # A tracer warns of each branch of the model's code that does not depend on the texts.
        warnings.simplefilter("ignore")
        model = openvino.convert_model(graph, example_input=graph.example())
    for given, name in zip(model.inputs, graph.inputs, strict=True):
        given.get_tensor().set_names({name})
    for output, name in zip(model.outputs, (STATES, VECTORS), strict=True):
        output.get_tensor().set_names({name})
    if precision == "int8":
        model = _quantised(model, graph, texts, side)
    openvino.save_model(model, folder / FILE, compress_to_fp16=precision == "fp16")


def openvino_run(folder: Path) -> Run:
    """The graph of a folder in OpenVINO, on the CPU."""
    compiled = _openvino().Core().compile_model(folder / FILE, "CPU", OPTIONS)

    def run(feed: Any) -> Any:
        return compiled(feed)[VECTORS]

    return run


def _quantised(model: Any, graph: EmbeddingGraph, texts: Sequence[str], side: Side) -> Any:
    import nncf

    # One text at a time, as the calibration counts batches.
    feeds = [feed for text in texts for feed in graph.feeds([text], side)]
    nncf.set_log_level(40)
    return nncf.quantize(
        model,
        nncf.Dataset(feeds),
        subset_size=len(feeds),
        model_type=nncf.ModelType.TRANSFORMER,
    )


def _openvino() -> Any:
    """The package, without its library for telemetry, which would report each conversion to its makers."""
    # None makes an import fail, as if it were not installed; both users of it then go on without.
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    import openvino

    return openvino
