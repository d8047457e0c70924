"""One tower as a model of its own, which knows nothing of routes."""

import copy
from dataclasses import replace

import torch

from adiabat.core.errors import ModelError
from adiabat.data.records import Side
from adiabat.models.encoder import Encoder
from adiabat.models.static import StaticBackbone
from adiabat.models.towers import DualEncoder, merged_tower


def one_tower(model: DualEncoder, side: Side) -> DualEncoder:
    """A model whose only tower is that of one side, with the prompt and the token limit of that side.

    Programs that know one prompt apply this one by default. The tokenizer states the limit too, since some
    programs read it there alone.
    """
    tower = merged_tower(model.tower(side))
    limit = tower.settings.limit(side)
    settings = replace(tower.settings, max_tokens=limit, query_max_tokens=None, document_max_tokens=None)
    tokenizer = copy.deepcopy(tower.tokenizer)
    tokenizer.model_max_length = limit
    alone = tower.with_settings(settings, tokenizer=tokenizer).eval()
    default = side if settings.prompt(side) else None
    return replace(model, query=alone, document=alone, root={**model.root, "default_prompt_name": default})


def in_half_precision(model: DualEncoder) -> DualEncoder:
    """A one-tower model whose weights are float16; the original is unchanged."""
    tower = copy.deepcopy(model.query).to(torch.float16)
    tower.backbone.config.dtype = torch.float16
    return replace(model, query=tower, document=tower)


def require_transformer(tower: Encoder, form: str) -> None:
    """Refuse a static model, which is a table of vectors without a graph or layers."""
    if isinstance(tower.backbone, StaticBackbone):
        raise ModelError(
            f"export.to must be model2vec or sentence-transformers for a static model, got {form}, which "
            "holds transformers; choose one of them"
        )
