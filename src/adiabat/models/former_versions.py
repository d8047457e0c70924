"""Saved models in former versions of sentence-transformers and transformers.

Both libraries have moved keys of their files. A saved model has the former keys beside the present ones, so
that all versions from `OLDEST` on give equal vectors. Settings that former versions lack need later ones
(`oldest_versions`), which card and root configuration name.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerBase

from adiabat.models.encoder import Encoder
from adiabat.models.json_files import read_json, write_json
from adiabat.models.static import StaticBackbone

Version = tuple[int, int]


class Versions(NamedTuple):
    """One version of each library."""

    sentence_transformers: Version
    transformers: Version


OLDEST = Versions((5, 0), (4, 50))
"""Versions that a saved model loads in unless it needs more; Router is new in sentence-transformers 5.0."""


def stamp(versions: Versions) -> dict[str, str]:
    """The entry of a root configuration by which sentence-transformers warns users of an earlier version."""
    return {name: f"{major}.{minor}.0" for name, (major, minor) in versions._asdict().items()}


def oldest_versions(*towers: Encoder) -> Versions:
    """The oldest versions that give the vectors of towers."""
    needs = [OLDEST, *chain.from_iterable(map(_needs, towers))]
    return Versions(
        max(need.sentence_transformers for need in needs), max(need.transformers for need in needs)
    )


def _needs(tower: Encoder) -> Iterator[Versions]:
    """What a tower needs beyond `OLDEST`, by the first version whose source has it.

    An earlier version would load the tower too, and leave out what it does not know.
    """
    settings = tower.settings
    has_limits = settings.query_max_tokens is not None or settings.document_max_tokens is not None
    if has_limits or any(projection.residual is not None for projection in tower.projection_list()):
        yield OLDEST._replace(sentence_transformers=(6, 0))
    if not isinstance(tower.backbone, StaticBackbone):
        config = tower.backbone.config.to_dict()
        if config.get("model_type") in ("umt5", "longt5"):
            yield OLDEST._replace(sentence_transformers=(5, 4))
        for version in _transformers_needed(config):
            # sentence-transformers before 5.2 refuses transformers 5.
            yield Versions((5, 2) if version >= (5, 0) else OLDEST.sentence_transformers, version)


def _transformers_needed(config: Mapping[str, Any]) -> Iterator[Version]:
    """Versions from which on transformers takes settings that earlier ones leave out in silence."""
    family, rope = config.get("model_type"), config.get("rope_parameters") or {}
    if config.get("is_causal") is False:
        yield (5, 2)
    if config.get("use_bidirectional_attention"):
        yield (4, 57) if family == "gemma3_text" else (5, 0)
    if len(set(config.get("layer_types") or ())) > 1 and _period(config) is None:
        yield (5, 0) if family == "modernbert" else (4, 53)
    if rope.get("rope_type") == "yarn" and not _is_original_length(config, rope):
        yield (4, 51)
    if family == "modernbert" and any(part["rope_type"] != "default" for part in rope.values()):
        yield (5, 0)


def write_former_keys(folder: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    """Add former keys to ``config.json`` and ``tokenizer_config.json`` as transformers has just written
    them.
    """
    config = read_json(folder / "config.json")
    write_json(folder / "config.json", {**config, **_former_layers(config), **_former_rope(config)})
    path = folder / "tokenizer_config.json"
    write_json(path, _for_all_versions(read_json(path), tokenizer))


def has_own_code(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the class of a tokenizer is Python code of the model, and not of transformers."""
    return not type(tokenizer).__module__.startswith("transformers.")


_LOADING = ("backend", "is_local", "local_files_only")
"""Keys by which transformers 5 notes how it loaded a tokenizer."""


def _for_all_versions(record: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """The settings of a tokenizer with which every version takes all else from ``tokenizer.json``.

    Classes of transformers build a tokenizer anew from settings whose names and defaults have changed.
    """
    stated = {key: value for key, value in record.items() if key not in _LOADING}
    # Padding on the left would move the positions of a text's tokens.
    stated["padding_side"] = "right"
    if has_own_code(tokenizer):
        return stated
    stated["tokenizer_class"] = "PreTrainedTokenizerFast"
    # Its former default has token types, which most families refuse.
    stated["model_input_names"] = list(tokenizer.model_input_names)
    splitter = tokenizer.backend_tokenizer.pre_tokenizer
    if isinstance(splitter, ByteLevel):
        # Transformers 4 sets it to false unless told otherwise.
        stated["add_prefix_space"] = splitter.add_prefix_space
    if isinstance(stated.get("extra_special_tokens"), list):
        stated["additional_special_tokens"] = stated.pop("extra_special_tokens")
    return stated


class _Layers(NamedTuple):
    """Layers with full attention in transformers 4.50, among those with a window: where ``(layer + offset) %
    period == 0``.
    """

    setting: str | None
    offset: int


_LAYERS: Mapping[str, _Layers] = {
    "modernbert": _Layers("global_attn_every_n_layers", 0),
    "gemma3_text": _Layers("sliding_window_pattern", 1),
    "cohere2": _Layers("sliding_window_pattern", 1),
    "gemma2": _Layers(None, 1),
}
"""By family: name of the period in ``config.json``, None if it is always 2."""


def _former_layers(config: Mapping[str, Any]) -> dict[str, Any]:
    """The period of layers with full attention, under its former name."""
    layers, period = _LAYERS.get(config.get("model_type", "")), _period(config)
    return {} if layers is None or layers.setting is None or period is None else {layers.setting: period}


def _period(config: Mapping[str, Any]) -> int | None:
    """The period that gives a configuration's ``layer_types``; None if there is none.

    Former versions have only the period. A list of layers without one cannot be written for them.
    """
    layers = _LAYERS.get(config.get("model_type", ""))
    if layers is None:
        return None
    full = [kind == "full_attention" for kind in config["layer_types"]]
    for period in [2] if layers.setting is None else range(1, len(full) + 2):
        if full == [(layer + layers.offset) % period == 0 for layer in range(len(full))]:
            return period
    return None


_THETAS: Mapping[str, Mapping[str, str]] = {
    "modernbert": {"full_attention": "global_rope_theta", "sliding_attention": "local_rope_theta"},
    "gemma3_text": {"full_attention": "rope_theta", "sliding_attention": "rope_local_base_freq"},
}
"""Former names of the base of rotary angles in families with one for each kind of layer."""

_NAMES: Mapping[str, Mapping[str, str]] = {
    "gpt_neox": {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"}
}
"""Former names of other families, where they are not the present ones."""


def _former_rope(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of rotary positions at their former places; since transformers 5 they are a table of their
    own.
    """
    rope, family = config.get("rope_parameters"), config.get("model_type", "")
    if not rope:
        return {}
    if family in _THETAS:
        thetas = {name: rope[kind]["rope_theta"] for kind, name in _THETAS[family].items()}
        return thetas | _former_scaling(config, rope["full_attention"])
    names = _NAMES.get(family, {})
    moved = {names.get(key, key): rope[key] for key in ("rope_theta", "partial_rotary_factor") if key in rope}
    return moved | _former_scaling(config, rope)


def _former_scaling(config: Mapping[str, Any], rope: Mapping[str, Any]) -> dict[str, Any]:
    """The scaling of rotary positions as transformers 4.50 reads it."""
    kind = rope.get("rope_type", "default")
    if kind == "default":
        return {}
    if config.get("model_type") == "phi3":
        # It takes these three keys and no others.
        return {
            "rope_scaling": {
                "type": kind,
                "short_factor": rope["short_factor"],
                "long_factor": rope["long_factor"],
            }
        }
    left_out = {"rope_theta", "partial_rotary_factor"}
    if kind == "yarn" and _is_original_length(config, rope):
        # Versions from 4.51 on would compute the factor from it.
        left_out.add("original_max_position_embeddings")
    return {"rope_scaling": {key: value for key, value in rope.items() if key not in left_out}}


def _is_original_length(config: Mapping[str, Any], rope: Mapping[str, Any]) -> bool:
    """Whether the scaling of rotary positions starts from the number of positions, as transformers 4.50 takes
    for granted.
    """
    return rope.get("original_max_position_embeddings") in (None, config.get("max_position_embeddings"))
