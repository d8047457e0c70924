"""Second tier: saved models give the same vectors in the oldest versions of the libraries that they load in,
and in the newest.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers.normalizers import Lowercase
from transformers import (
    BertTokenizer,
    LlamaConfig,
    LlamaModel,
    ModernBertConfig,
    ModernBertModel,
    PreTrainedModel,
)

from adiabat.data.records import SIDES
from adiabat.models.adapters import add_lora
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.encoder import Encoder
from adiabat.models.former_versions import OLDEST, oldest_versions
from adiabat.models.loading import load
from adiabat.models.saving import save
from adiabat.models.towers import DualEncoder, build_towers, merged_tower
from tests.architectures import GROUPED, MODERN, SIZES, tiny_architecture
from tests.models.peer_directories import assert_same_vectors
from tests.models.static_models import write_static
from tests.tiny import SPREAD, tiny_dual, tiny_encoder, tiny_tokenizer

pytestmark = pytest.mark.real

OLD = Path(sys.prefix) / "oldest"

# Versions before 6 take blanks from the ends of a text, and of a prompt whose tokens they count.
TEXTS = [
    "a",
    "where does the RIVER rise?",
    "שלום עולם",
    "the longest of all the texts in this batch, which fills its row " * 3,
    "two  words",
]

IN_OLD = """
import json, sys, warnings
warnings.simplefilter("ignore")
import numpy as np, sentence_transformers, transformers
transformers.utils.logging.set_verbosity_error()
folders, texts = json.loads(sys.stdin.read())
told = {"versions": [sentence_transformers.__version__, transformers.__version__]}
for folder in folders:
    try:
        model = sentence_transformers.SentenceTransformer(folder, device="cpu")
        np.savez(folder + ".npz", query=model.encode_query(texts), document=model.encode_document(texts))
    except Exception as fault:
        told[folder] = f"{type(fault).__name__}: {fault}"
print(json.dumps(told))
"""

PROMPTS = EncoderSettings(max_tokens=40, query_prompt="query: ", document_prompt="passage: ")


def tower(name: str, settings: EncoderSettings = PROMPTS) -> Encoder:
    return Encoder(tiny_architecture(name), tiny_tokenizer(), settings).eval()


def one(encoder: Encoder) -> DualEncoder:
    return DualEncoder(encoder, encoder, "one")


def family(name: str) -> Callable[[Path], DualEncoder]:
    return lambda _: one(tower(name))


def of(backbone: Callable[[], PreTrainedModel]) -> Callable[[Path], DualEncoder]:
    """A model of a random backbone with settings that are not the defaults of any version."""

    def made(_: Path) -> DualEncoder:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = backbone()
            for weights in model.parameters():
                if weights.ndim >= 2:
                    torch.nn.init.normal_(weights, std=SPREAD)
        return one(Encoder(model, tiny_tokenizer(), PROMPTS).eval())

    return made


def llama(**rope: object) -> Callable[[Path], DualEncoder]:
    return of(
        lambda: LlamaModel(LlamaConfig(**SIZES, **GROUPED, rope_parameters={"rope_theta": 300.0, **rope}))
    )


def modernbert(folder: Path) -> DualEncoder:
    rope = {
        kind: {"rope_type": "default", "rope_theta": theta}
        for kind, theta in (("full_attention", 700.0), ("sliding_attention", 300.0))
    }
    config = ModernBertConfig(
        **SIZES, **MODERN, layer_types=["full_attention", "sliding_attention"], rope_parameters=rope
    )
    return of(lambda: ModernBertModel(config))(folder)


def tuned_by_lora(_: Path) -> DualEncoder:
    encoder = tiny_encoder(settings=PROMPTS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        add_lora(encoder.backbone, rank=2)
        for name, weights in encoder.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(weights, std=SPREAD)
    return DualEncoder(merged_tower(encoder), tiny_encoder(settings=PROMPTS), "tuned")


def projected(_: Path) -> DualEncoder:
    return build_towers(
        tiny_dual(settings=PROMPTS, projection=16, shared=False),
        kind="shared_projection",
        projection_width=8,
        seed=0,
    )


def two_families(_: Path) -> DualEncoder:
    query = Encoder(
        tiny_architecture("bert"), tiny_tokenizer(), replace(PROMPTS, pooling="cls", max_tokens=30)
    ).eval()
    return DualEncoder(query, tower("llama", replace(PROMPTS, pooling="last")), "two")


def word_pieces(_: Path) -> DualEncoder:
    """A tokenizer of a class of its own with settings that differ from the defaults of the class, extra
    tokens, and lower-casing.
    """
    words = [
        "[UNK]",
        "[PAD]",
        "[SEP]",
        "[CLS]",
        "[MASK]",
        "[Q]",
        *"abcdefghijklmnopqrstuvwxyz",
        *(f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"),
    ]
    tokenizer = BertTokenizer(
        vocab={word: number for number, word in enumerate(words)}, do_lower_case=False, strip_accents=False
    )
    tokenizer.add_special_tokens({"additional_special_tokens": ["[Q]"]})
    tokenizer.backend_tokenizer.normalizer = Lowercase()
    return one(Encoder(tiny_architecture("bert"), tokenizer, replace(PROMPTS, query_prompt="[Q] ")).eval())


def static(folder: Path) -> DualEncoder:
    return load(write_static(folder / "static", limit=6))


def cut(kind: str) -> Callable[[Path], DualEncoder]:
    return lambda _: one(tower(kind, replace(PROMPTS, truncate_dim=5)))


FAMILIES = (
    "bert",
    "xlm-roberta",
    "distilbert",
    "mpnet",
    "deberta-v3",
    "t5",
    "mt5",
    "modernbert",
    "gpt-neox",
    "mistral",
    "qwen2",
    "gemma2",
    "gemma3",
)

MODELS: Mapping[str, Callable[[Path], DualEncoder]] = {
    **{name: family(name) for name in FAMILIES},
    "modernbert with angles of its own": modernbert,
    "llama": llama(rope_type="default"),
    "llama with scaled angles": llama(
        rope_type="llama3",
        factor=3.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=32,
    ),
    "llama with yarn": llama(rope_type="yarn", factor=3.0),
    "word pieces": word_pieces,
    "static": static,
    "tuned by LoRA": tuned_by_lora,
    "a shared projection": projected,
    "two families": two_families,
    "cut": cut("bert"),
    "cut and loose": lambda _: one(tower("bert", replace(PROMPTS, truncate_dim=5, normalize=False))),
    "prompts outside the mean": lambda _: one(
        tower("bert", replace(PROMPTS, pool_prompt=False, query_prompt="query:", document_prompt="passage:"))
    ),
    "weighted mean": lambda _: one(tower("llama", replace(PROMPTS, pooling="weighted_mean"))),
}
"""Name to what makes the model in a folder; each loads in `OLDEST`."""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, DualEncoder]]:
    """Every model, saved."""
    folder = tmp_path_factory.mktemp("models")
    models = {
        name: (folder / str(number), make(folder)) for number, (name, make) in enumerate(MODELS.items())
    }
    for path, model in models.values():
        save(model, path)
    return models


@pytest.fixture(scope="module")
def told_by_old(saved: dict[str, tuple[Path, DualEncoder]]) -> dict[str, str]:
    """What the oldest versions say of each folder that they cannot load; they leave vectors of the others
    beside it.
    """
    if not OLD.is_dir():
        pytest.skip(f"there is no {OLD}; make test-real installs it from requirements/oldest.txt")
    folders = [str(path) for path, _ in saved.values()]
    surroundings = {**os.environ, "PYTHONPATH": str(OLD), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", IN_OLD],
        input=json.dumps([folders, TEXTS]),
        env=surroundings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    assert told.pop("versions") == [f"{major}.{minor}.0" for major, minor in OLDEST]
    return told


@pytest.mark.parametrize("name", MODELS)
def test_the_oldest_versions_give_our_vectors(
    name: str, saved: dict[str, tuple[Path, DualEncoder]], told_by_old: dict[str, str]
) -> None:
    path, model = saved[name]
    assert told_by_old.get(str(path)) is None
    assert oldest_versions(model.query, model.document) == OLDEST
    theirs = np.load(f"{path}.npz")
    for side in SIDES:
        np.testing.assert_allclose(theirs[side], model.encode(TEXTS, side=side, precision="fp32"), atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_the_newest_versions_and_our_loader_give_our_vectors(
    name: str, saved: dict[str, tuple[Path, DualEncoder]]
) -> None:
    path, model = saved[name]
    assert_same_vectors(model, path, TEXTS)
    again = load(path)
    for side in SIDES:
        np.testing.assert_array_equal(
            again.encode(TEXTS, side=side, precision="fp32"), model.encode(TEXTS, side=side, precision="fp32")
        )
