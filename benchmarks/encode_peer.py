"""A peer of `encode.py` in a process of its own: sentence-transformers with one of its backends.

It needs optimum, which holds transformers back, so it runs with the libraries of a folder that
``requirements/oldest.txt`` fills. It prints its best batch size, then, for each line that it reads, the
seconds in which it encodes all texts. Vectors are in the file that the last argument names.
"""

import json
import sys
import tempfile
import time
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

warnings.simplefilter("ignore")

BATCH_SIZES = (8, 16, 32, 64)
CALIBRATED = 300


def load(backend: str, model: str, texts: list[str]) -> Any:
    """The model with a backend: torch, onnx, openvino, onnx-int8, openvino-int8."""
    # Of another version than that of the checks of types.
    peer: Any = import_module("sentence_transformers")
    program, _, precision = backend.partition("-")
    # Some processors would compute in bfloat16 unasked.
    options = {"ov_config": {"INFERENCE_PRECISION_HINT": "f32"}} if program == "openvino" else {}
    plain = peer.SentenceTransformer(model, backend=program, device="cpu", model_kwargs=options)
    if not precision:
        return plain
    # These versions look for it among the modules of torch, which a graph is none of.
    peer.SentenceTransformer.transformers_model = property(lambda self: self[0].auto_model)
    folder = tempfile.mkdtemp()
    plain.save_pretrained(folder)
    if program == "onnx":
        peer.export_dynamic_quantized_onnx_model(plain, "avx512_vnni", folder)
        name = "onnx/model_qint8_avx512_vnni.onnx"
    else:
        calibration = Path(folder) / "calibration"
        calibration.mkdir()
        rows = [json.dumps({"text": text}) for text in texts[:CALIBRATED]]
        (calibration / "train.jsonl").write_text("\n".join(rows))
        peer.export_static_quantized_openvino_model(
            plain, None, folder, str(calibration), "default", "train", "text"
        )
        name = "openvino/openvino_model_qint8_quantized.xml"
    return peer.SentenceTransformer(
        folder, backend=program, device="cpu", model_kwargs={**options, "file_name": name}
    )


def main() -> None:
    """Load, choose a batch size, then encode at each line."""
    backend, model, text_file, vector_file = sys.argv[1:]
    texts = json.loads(Path(text_file).read_text())
    out, sys.stdout = sys.stdout, sys.stderr
    peer = load(backend, model, texts)

    def seconds(some: list[str], size: int) -> float:
        began = time.perf_counter()
        vectors = peer.encode(some, batch_size=size, show_progress_bar=False)
        taken = time.perf_counter() - began
        np.save(vector_file, vectors)
        return taken

    part = texts[: max(len(texts) // 4, 1)]
    times = {size: min(seconds(part, size) for _ in range(2)) for size in BATCH_SIZES}
    best = min(times, key=times.__getitem__)
    print(best, file=out, flush=True)
    for _ in sys.stdin:
        print(seconds(texts, best), file=out, flush=True)


if __name__ == "__main__":
    main()
