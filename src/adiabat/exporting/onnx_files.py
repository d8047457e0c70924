"""ONNX: a graph in the layout that sentence-transformers' backend and FastEmbed read, and its runtime."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from adiabat.config.exporting import Precision
from adiabat.core.disk import make_folder, move, remove
from adiabat.core.errors import ModelError
from adiabat.models.graphs import STATES, VECTORS, EmbeddingGraph, Run

FILE = Path("onnx") / "model.onnx"

LARGEST = 1_900_000_000
"""Bytes of weights in the file of the graph itself, which protobuf limits to 2 GiB; others lie beside it."""

OPSET = 18
"""Version of the operators: the lowest that torch's exporter writes without converting."""


def write_onnx(graph: EmbeddingGraph, folder: Path, precision: Precision) -> None:
    """Write the graph of a tower below a folder.

    int8 quantises weights now and activations while running, so that it needs no calibration.
    """
    is_large = sum(weights.nbytes for weights in graph.parameters()) > LARGEST
    if is_large and precision != "fp32":
        raise ModelError(
            f"export.precision must be fp32 for an ONNX graph of more than {LARGEST / 1e9:g} GB, got "
            f"{precision}; export to openvino"
        )
    path = folder / FILE
    make_folder(path.parent)
    batch, tokens = torch.export.Dim("batch"), torch.export.Dim("tokens")
    with _quiet(), torch.no_grad():
        torch.onnx.export(
            graph,
            graph.example(),
            path,
            input_names=graph.inputs,
            output_names=[STATES, VECTORS],
            opset_version=OPSET,
            dynamo=True,
            dynamic_shapes={name: {0: batch, 1: tokens} for name in graph.inputs},
            external_data=is_large,
            verbose=False,
        )
        if precision == "int8":
            _quantise(path)
        elif precision == "fp16":
            _halve(path)


def onnx_run(folder: Path) -> Run:
    """The graph of a folder in ONNX Runtime."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(folder / FILE), providers=["CPUExecutionProvider"])

    def run(feed: Any) -> Any:
        return session.run([VECTORS], feed)[0]

    return run


def _quantise(path: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    whole = path.with_name("whole.onnx")
    move(path, whole)
    quantize_dynamic(whole, path, weight_type=QuantType.QInt8, per_channel=True)
    remove(whole)


def _halve(path: Path) -> None:
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    half = convert_float_to_float16(onnx.load(path), keep_io_types=True)
    onnx.save(half, path)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporter says of its own versions and passes."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir", "root")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
