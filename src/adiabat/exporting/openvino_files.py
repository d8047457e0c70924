"""OpenVINO: a graph in the layout that sentence-transformers' backend reads, and its runtime."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adiabat.config.exporting import Precision
from adiabat.core.disk import make_folder
from adiabat.data.records import Side
from adiabat.models.graphs import VECTORS, EmbeddingGraph, Run
from adiabat.models.openvino_graphs import OPTIONS, converted, openvino_package, quantised

FILE = Path("openvino") / "openvino_model.xml"


def write_openvino(
    graph: EmbeddingGraph, folder: Path, precision: Precision, texts: Sequence[str], side: Side
) -> None:
    """Write the graph of a tower below a folder; int8 is calibrated on `texts`."""
    make_folder((folder / FILE).parent)
    model = converted(graph)
    if precision == "int8":
        model = quantised(model, graph, texts, side)
    openvino_package().save_model(model, folder / FILE, compress_to_fp16=precision == "fp16")


def openvino_run(folder: Path) -> Run:
    """The graph of a folder in OpenVINO, on the CPU."""
    compiled = openvino_package().Core().compile_model(folder / FILE, "CPU", OPTIONS)

    def run(feed: Any) -> Any:
        return compiled(feed)[VECTORS]

    return run
