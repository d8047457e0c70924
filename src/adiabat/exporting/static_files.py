"""model2vec: a static model in the layout that model2vec and sentence-transformers both read."""

from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from adiabat.core.disk import make_folder
from adiabat.core.errors import ModelError
from adiabat.data.records import Side
from adiabat.models.encoder import Encoder
from adiabat.models.former_versions import OLDEST, stamp
from adiabat.models.json_files import ROOT_FILE, write_json
from adiabat.models.st_files import UNLIMITED
from adiabat.models.static import TOKENIZER, WEIGHTS, StaticBackbone, load_model2vec, require_saveable


def write_static(tower: Encoder, side: Side, similarity: str, folder: Path, *, half: bool) -> None:
    """Write table, tokenizer and settings.

    Raises:
        ModelError: If model2vec would use the tower differently: it knows no prompts and no layers.
    """
    backbone, settings = tower.backbone, tower.settings
    assert isinstance(backbone, StaticBackbone)
    require_saveable(tower)
    faults = {
        "a prompt": bool(settings.prompt(side)),
        "projections": bool(tower.projection_list()),
        "cut vectors": tower.width < tower.full_width,
    }
    if found := [name for name, is_there in faults.items() if is_there]:
        raise ModelError(
            f"export.to must be sentence-transformers for a static model with {' and '.join(found)}, got "
            "model2vec, which has none; choose it"
        )
    table = backbone.table.detach().cpu().numpy()
    save_file({"embeddings": table.astype(np.float16) if half else table}, folder / WEIGHTS)
    backend = tower.tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    backend.save(str(folder / TOKENIZER))
    limit = settings.max_tokens if settings.max_tokens < UNLIMITED else None
    write_json(
        folder / "config.json",
        {
            "model_type": "model2vec",
            "architectures": ["StaticModel"],
            "hidden_dim": tower.width,
            "seq_length": limit or UNLIMITED,
            # Without it, model2vec would cut texts at 512 tokens.
            "max_length": limit,
            "normalize": settings.normalize,
        },
    )
    root = {"__version__": stamp(OLDEST), "similarity_fn_name": similarity, "prompts": {}}
    write_json(folder / ROOT_FILE, root)
    kinds = {".": "StaticEmbedding"}
    if settings.normalize:
        make_folder(folder / "1_Normalize")
        kinds["1_Normalize"] = "Normalize"
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(kinds.items())
    ]
    write_json(folder / "modules.json", modules)


def as_model2vec(folder: Path) -> Encoder:
    """The directory as model2vec uses it."""
    return Encoder(*load_model2vec(folder)).eval()
