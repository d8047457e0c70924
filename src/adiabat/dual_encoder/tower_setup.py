"""From settings to trainable towers: models, method, freezing (Ziarko et al. 2024; Moiseev et al. 2023)."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import Optimizer

from adiabat.config.dual_training import TrainSection, TrainSettings
from adiabat.config.shared import EncoderSection
from adiabat.core.errors import ConfigError, ModelError, first_line, reraise_unrelated, several
from adiabat.core.files import open_plain
from adiabat.core.wording import positional
from adiabat.data.records import SIDES, Fingerprint
from adiabat.models.adapters import train_part
from adiabat.models.backbone import require_pad_token
from adiabat.models.encoder import Encoder
from adiabat.models.freezing import freeze
from adiabat.models.towers import DualEncoder, build_towers, freeze_tower, merged_tower
from adiabat.training.optimizers import decay_groups, make_optimizer

Loader = Callable[[str, EncoderSection], DualEncoder]
"""Loads a model by name, with overriding settings."""


@dataclass(frozen=True, slots=True)
class Built:
    """The towers to train, in training mode, and data about their start.

    Attributes:
        guide: Another model that excludes candidates from the negatives; None if there is none.
        prints: Fingerprints of the loaded models, for each side, before any change.
        projection: Digest of the given initial weights of a new projection; None if there are none.
        before: Initial weights that an embedding depends on, by name (`named_weights`); biases that a method
            adds to a backbone begin at 0 and are left out.
        note: A note if the model states another similarity than training uses.
    """

    towers: DualEncoder
    guide: DualEncoder | None
    prints: tuple[Fingerprint, ...]
    projection: str | None
    before: Mapping[str, Tensor]
    note: str = ""

    @property
    def digest(self) -> str:
        """SHA-256 of all weights and tokenizers of towers and guide."""
        prints = json.dumps([fingerprint.to_json() for fingerprint in self.prints], sort_keys=True) + (
            self.projection or ""
        )
        return hashlib.sha256(prints.encode()).hexdigest()


def build(settings: TrainSettings, load: Loader) -> Built:
    """Load the models of the settings, and build the towers to train.

    Weights are remembered before adapters change their names. Fingerprints are those of the loaded models, by
    which a resumed run recognises its inputs.
    """
    section = settings.towers
    assert settings.job.model is not None
    start, document_start = _loaded(load, settings.job.model, settings.encoder, named_by="job.model"), None
    if section.document_model is not None:
        document_start = _loaded(
            load, section.document_model, settings.encoder, named_by="towers.document_model"
        )
    matrix = None if section.projection_start is None else _matrix(Path(section.projection_start))
    frozen = None if section.frozen == "none" else section.frozen
    towers = build_towers(
        start,
        kind=section.kind,
        projection_width=section.projection_width,
        projection_start=matrix,
        document_start=document_start,
        frozen=frozen,
        seed=settings.run.seed,
    )
    for tower in _distinct(towers):
        require_pad_token(tower.tokenizer)
    if wide := [width for width in settings.train.matryoshka if width >= towers.width]:
        raise ConfigError(
            f"train.matryoshka must hold widths below {towers.width}, that of the "
            f"embeddings, got {wide[0]}; leave it out"
        )
    require_numbers(towers)
    before = {name: weights.detach().cpu().clone() for name, weights in named_weights(towers).items()}
    # Adapters are drawn from the run's seed, whatever was drawn before.
    with torch.random.fork_rng([]):
        torch.manual_seed(settings.run.seed)
        for tower in _distinct(towers):
            if frozen is not None and tower is towers.tower(frozen):
                freeze_tower(tower)
            else:
                _prepare(tower, settings)
    guide = _guide(settings, load)
    prints = tuple(
        chain.from_iterable(
            model.fingerprints() for model in (start, document_start, guide) if model is not None
        )
    )
    projection = None if matrix is None else hashlib.sha256(matrix.numpy().tobytes()).hexdigest()
    # The saved model states the similarity that was trained.
    trained = replace(towers, root={**towers.root, "similarity_fn_name": settings.train.loss.ranks_by})
    return Built(trained, guide, prints, projection, before, _similarity_note(towers, trained))


def _matrix(path: Path) -> Float[Tensor, "d e"]:
    """The initial weights of a projection."""
    requirement = "towers.projection_start must be a .npy file of a matrix of finite numbers"
    try:
        with open_plain(path, error=ConfigError) as file:
            matrix = np.lib.format.read_array(file, allow_pickle=False)
    except (OSError, ValueError) as fault:
        reraise_unrelated(fault)
        raise ConfigError(
            f"{requirement}, got {path}, which cannot be read ({first_line(fault)}); name another"
        ) from fault
    if matrix.ndim != 2 or not matrix.size or matrix.dtype.kind not in "fiu" or not np.isfinite(matrix).all():
        raise ConfigError(
            f"{requirement}, got {matrix.dtype} of shape {matrix.shape} in {path}; name another"
        )
    return torch.from_numpy(matrix.astype(np.float32))


def _guide(settings: TrainSettings, load: Loader) -> DualEncoder | None:
    """The other model that guides the choice of negatives, without the pooling, prompts and blocks set for
    the trained towers.
    """
    guide = settings.train.loss.guide
    if guide is None or guide.model == "self":
        return None
    trust = EncoderSection(
        trust_remote_code=settings.encoder.trust_remote_code, allow_pickles=settings.encoder.allow_pickles
    )
    return _loaded(load, guide.model, trust, named_by="train.loss.guide")


def _loaded(load: Loader, name: str, section: EncoderSection, *, named_by: str) -> DualEncoder:
    """Load a model; an error names its setting in place of the argument of other verbs."""
    try:
        return load(name, section)
    except ModelError as fault:
        message = str(fault)
        if message.startswith(f"{positional('model')} "):
            raise ModelError(message.replace(positional("model"), named_by, 1)) from fault
        raise


def require_numbers(towers: DualEncoder) -> None:
    """Refuse a model with non-finite weights: the loss may not depend on them, but a saved model would be
    damaged.
    """
    faults = [
        name for name, weights in named_weights(towers).items() if not bool(weights.detach().isfinite().all())
    ]
    if faults:
        raise ModelError(
            f"{towers.name}: every weight must be a finite number, got others in "
            f"{several(faults, of='tensors')}; get the model again"
        )


def _distinct(towers: DualEncoder) -> list[Encoder]:
    """Both towers, or the shared one once."""
    return list(dict.fromkeys((towers.query, towers.document)))


def _prepare(tower: Encoder, settings: TrainSettings) -> None:
    """Enable the gradients that the method trains, and disable those frozen by name."""
    section = settings.train
    train_part(tower.backbone, section.method)
    if section.freeze:
        # A projection on top may be all that is trained.
        freeze(tower.backbone, section.freeze, alone=not len(tower.projections))
    tower.train(section.dropout)


def _similarity_note(start: DualEncoder, trained: DualEncoder) -> str:
    """A note where training compares by another similarity than the model states; "" where both rank
    alike.
    """
    stated, now = (model.root.get("similarity_fn_name") or "cosine" for model in (start, trained))
    if stated == now or trained.unit:
        return ""
    return (
        f"{start.name} states the similarity {stated}; training uses {now}, "
        "and so will the saved model (train.loss)"
    )


def merged(towers: DualEncoder) -> DualEncoder:
    """The towers without adapters, for saving; shared parts stay shared."""
    plain = {id(tower): merged_tower(tower) for tower in _distinct(towers)}
    return replace(towers, query=plain[id(towers.query)], document=plain[id(towers.document)])


def named_weights(towers: DualEncoder) -> dict[str, Tensor]:
    """Weights that an embedding depends on; those of asymmetric towers have the side as a prefix."""
    if towers.shared:
        return dict(towers.query.used_parameters())
    return {
        f"{side}.{name}": weights
        for side in SIDES
        for name, weights in towers.tower(side).used_parameters().items()
    }


def optimizer_of(module: nn.Module, section: TrainSection) -> Optimizer:
    """The optimiser of the settings; only matrices decay."""
    groups = decay_groups(module)
    return make_optimizer(
        section.optimizer, groups, learning_rate=section.learning_rate, weight_decay=section.weight_decay
    )
