"""OpenVINO: the graph of a tower converted and quantised, and many batches passed through it at a time.

The package is an extra, and is imported where it is used.
"""

import io
import sys
import warnings
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any, Literal

import torch

from adiabat.core.errors import ModelError, first_line, reraise_unrelated
from adiabat.data.records import Side
from adiabat.models.backbone import quietly
from adiabat.models.bulk import EmbeddedBatch, PreparedBatch
from adiabat.models.encoder import Encoder
from adiabat.models.graphs import STATES, VECTORS, EmbeddingGraph, as_graph, feed_of
from adiabat.models.towers import merged_tower

CALIBRATED = 300
"""Texts that int8 is calibrated on."""

OPTIONS = {"INFERENCE_PRECISION_HINT": "f32"}
"""Some processors would compute in bfloat16 unasked, which moves a vector by a hundredth."""

BUDGET = 512
"""Tokens of a request, padding included: on two cores, 256 and 1,024 are no faster."""

AHEAD = 2
"""Requests that wait beyond those that the processor works on, so that none of its cores waits for Python."""


def converted(graph: EmbeddingGraph) -> Any:
    """The graph of a tower as a model of OpenVINO, with named inputs and outputs."""
    openvino = openvino_package()
    with warnings.catch_warnings(), torch.no_grad(), quietly():
        # A tracer warns of each branch of the model's code that does not depend on the texts.
        warnings.simplefilter("ignore")
        try:
            model = openvino.convert_model(graph, example_input=graph.example())
        except Exception as fault:
            reraise_unrelated(fault)
            family = graph.tower.backbone.config.model_type
            raise ModelError(
                f"a tower for OpenVINO must be traceable, this one of {family} is not "
                f"({first_line(fault)}); use torch"
            ) from fault
    for given, name in zip(model.inputs, graph.inputs, strict=True):
        given.get_tensor().set_names({name})
    for output, name in zip(model.outputs, (STATES, VECTORS), strict=True):
        output.get_tensor().set_names({name})
    return model


def quantised(model: Any, graph: EmbeddingGraph, texts: Sequence[str], side: Side) -> Any:
    """A converted model in int8, calibrated on texts."""
    import nncf

    # One text at a time, as the calibration counts batches.
    feeds = [feed for text in texts for feed in graph.feeds([text], side)]
    nncf.set_log_level(40)
    # It prints bars of its own on stdout, which is for programs.
    with quietly(), redirect_stdout(io.StringIO()):
        return nncf.quantize(
            model,
            nncf.Dataset(feeds),
            subset_size=len(feeds),
            model_type=nncf.ModelType.TRANSFORMER,
        )


def openvino_package() -> Any:
    """The package, without its library for telemetry, which would report each conversion to its makers."""
    # None makes an import fail, as if it were not installed; both users of it then go on without.
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    import openvino

    return openvino


class OpenVinoRuntime:
    """A compiled graph of one side of a tower, which embeds batches in place of torch.

    Attributes:
        budget: Tokens of a batch, padding included.
    """

    budget = BUDGET

    def __init__(self, model: Any, precision: Literal["fp32", "bf16", "int8"]) -> None:
        """Compile a model, or the file of one, for as many threads as torch may use."""
        options = {
            "INFERENCE_PRECISION_HINT": "bf16" if precision == "bf16" else "f32",
            "PERFORMANCE_HINT": "THROUGHPUT",
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        }
        self._compiled = openvino_package().Core().compile_model(model, "CPU", options)
        self._inputs = [given.any_name for given in self._compiled.inputs]
        self._parallel: int = self._compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS")

    def embedded(self, batches: Iterable[PreparedBatch], limit: int) -> Generator[EmbeddedBatch]:
        """Embed batches, in their order; some are under way while the next ones are prepared.

        However it ends, no request is left running: an error of one, or an interrupt, reaches the caller
        once the others have ended.

        Args:
            batches: Any number.
            limit: Token limit at which texts are truncated.
        """
        idle = deque(self._compiled.create_infer_request() for _ in range(self._parallel + AHEAD))
        running: deque[tuple[Any, PreparedBatch]] = deque()
        try:
            for batch in batches:
                if not idle:
                    yield _awaited(*running[0], limit)
                    idle.append(running.popleft()[0])
                request = idle.popleft()
                request.start_async(feed_of(self._inputs, batch[1]))
                running.append((request, batch))
            while running:
                yield _awaited(*running[0], limit)
                running.popleft()
        finally:
            _end([request for request, _ in running])


def _awaited(request: Any, batch: PreparedBatch, limit: int) -> EmbeddedBatch:
    """The vectors of a request, copied, since its next batch overwrites them."""
    request.wait()
    rows, tokens = batch
    vectors = torch.from_numpy(request.get_tensor(VECTORS).data.copy())
    return EmbeddedBatch(rows, tokens.reaching(limit), vectors, None)


def _end(requests: Sequence[Any]) -> None:
    """Give up requests, and wait until they have ended."""
    for request in requests:
        request.cancel()
    for request in requests:
        # A request that was given up, or failed before, says so once more.
        with suppress(RuntimeError):
            request.wait()


def runtimes_of(
    tower: Encoder, side: Side, precisions: Sequence[Literal["fp32", "bf16"]]
) -> list[OpenVinoRuntime]:
    """Convert one side of a tower once, and compile it in each precision."""
    graph = as_graph(merged_tower(tower), side).cpu()
    model = _vectors_alone(converted(graph))
    return [OpenVinoRuntime(model, precision) for precision in precisions]


def write_quantised(tower: Encoder, side: Side, texts: Sequence[str], path: Path) -> None:
    """Quantise one side of a tower, and write the graph as an ``.xml`` file with a ``.bin`` beside it."""
    graph = as_graph(merged_tower(tower), side).cpu()
    model = quantised(_vectors_alone(converted(graph)), graph, texts, side)
    openvino_package().save_model(model, path, compress_to_fp16=False)


def _vectors_alone(model: Any) -> Any:
    """A model without the states of the tokens, which encoding does not read."""
    model.remove_result(model.output(STATES).node)
    return model
