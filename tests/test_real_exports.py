"""Second tier: exported graphs give the model's own vectors by the backends of sentence-transformers and by
FastEmbed, in versions of the libraries that these take.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import adiabat
from adiabat.exporting.openvino_files import OPTIONS
from adiabat.models.embedding_head import EncoderSettings
from tests.test_real_versions import OLD
from tests.tiny import tiny_dual

pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("ignore")]

TEXTS = ["a", "where does the RIVER rise?", "שלום עולם", "the longest of all these texts, cut " * 6]

IN_OLD = """
import json, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
folder, program, options, prompt, texts = json.loads(sys.stdin.read())
if program == "fastembed":
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType
    TextEmbedding.add_custom_model(model="exported", sources=ModelSource(url="none"), dim=16,
        model_file="onnx/model.onnx", pooling=PoolingType.DISABLED, normalization=False,
        output_name="sentence_embedding")
    model = TextEmbedding("exported", specific_model_path=folder)
    vectors = np.array(list(model.embed([prompt + text for text in texts])))
else:
    from sentence_transformers import SentenceTransformer
    model = SentenceTransformer(folder, backend=program, device="cpu", model_kwargs=options)
    vectors = model.encode(texts)
np.save(folder + ".npy", vectors)
"""


@pytest.mark.parametrize("program", ["onnx", "openvino", "fastembed"])
def test_a_graph_is_read_by_other_programs(program: str, tmp_path: Path) -> None:
    if not OLD.is_dir():
        pytest.skip(f"there is no {OLD}; make test-real installs it from requirements/oldest.txt")
    settings = EncoderSettings(max_tokens=40, query_prompt="query: ", document_prompt="passage: ")
    model = tiny_dual(settings=replace(settings, query_max_tokens=30), projection=16, shared=False)
    out, form = tmp_path / "exported", "openvino" if program == "openvino" else "onnx"
    adiabat.export(model, out, to=form)
    options = {"ov_config": OPTIONS} if program == "openvino" else {}
    done = subprocess.run(
        [sys.executable, "-c", IN_OLD],
        input=json.dumps([str(out), program, options, settings.query_prompt, TEXTS]),
        env={**os.environ, "PYTHONPATH": str(OLD), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    own = model.encode(TEXTS, side="query", precision="fp32")
    np.testing.assert_allclose(np.load(f"{out}.npy"), own, atol=1e-5)
