r"""Freezing by name: one grammar of presets over the parameter names of every backbone layout (Vasilyev et
al. 2024).

A pattern is one of

- ``embeddings.base``: the tables of tokens, absolute positions and token types;
- ``embeddings``: the whole embedding block, that is, the tables with their norm and their projection to the
  hidden width;
- ``blocks``, ``blocks[0]``, ``blocks[-1]``, ``blocks[0:6]``, ``blocks[:]``: transformer blocks, counted as
  Python counts; alone or followed by ``.attention``, ``.intermediate``, ``.output``, ``.output.dense``,
  ``.output.dense.weight`` or ``.output.dense.bias``, a part of those blocks;
- ``attention``, ``intermediate``, ``output``, ``output.dense``, ``output.dense.weight``,
  ``output.dense.bias``: that part of every block;
- anything else: a regular expression, looked for anywhere in the full parameter name (`re.search`; anchor it
  with ``^`` and ``$``).

A low-rank adapter goes with its dense layer: every pattern that names the layer's weight names its adapter
too.

Presets read names, not classes, so a prefix such as ``encoder.`` or a wrapping module does not matter. Known
layouts: BERT and its relatives (RoBERTa, XLM-R, MPNet, ELECTRA), DistilBERT, ALBERT, ModernBERT, the T5
encoder, GPT-2, GPT-NeoX, and Llama and its relatives (Mistral, Qwen, Gemma, Phi-3), Falcon, GPT-J, OPT. There
``attention``, ``intermediate`` and ``output`` make up the whole block, and the others are parts of
``output``:

- ``attention``: the projections of attention, relative position tables inside a block (T5 keeps in block 0
  one that all blocks read), and the norms of queries and keys;
- ``intermediate``: the up projection of the feed-forward, gates included;
- ``output.dense``: its down projection, weight and bias, never attention's ``output.dense`` (write
  ``attention\.output\.dense`` for it);
- ``output``: the down projection with the norm that follows it.

A norm that follows a part belongs to that part (BERT: ``attention.output.LayerNorm`` to ``attention``), one
that precedes a part to the part that it feeds (Llama: ``post_attention_layernorm`` to ``intermediate``).
Outside blocks and embeddings are the final norm, poolers, and tables of relative positions shared by all
blocks (MPNet, DeBERTa): only a regular expression matches those.

Reference:
    Vasilyev et al. 2024, table 1 (embeddings, attention, intermediate, output.dense).
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, get_args

from torch import nn

from adiabat.core.errors import ConfigError, ModelError, several

Part = Literal[
    "attention", "intermediate", "output", "output.dense", "output.dense.weight", "output.dense.bias"
]
"""Parts of a transformer block: the three that make it up, then the dense layer of the third and its two
parameters."""

_PARTS: tuple[Part, ...] = get_args(Part)

_BLOCK = re.compile(r"(?:^|\.)(?:layers?|blocks?|h|albert_layer_groups)\.(\d+)\.")
_TABLE = re.compile(
    r"(?:^|\.)(?:(?:word|tok|token|position|token_type)_embeddings|embed_(?:in|tokens|positions)|shared|wte|wpe)\."
)
_EMBEDDING = re.compile(
    r"(?:^|\.)(?:embeddings|embeddings_project|embedding_hidden_mapping_in|word_embeddings_layernorm|layernorm_embedding|project_in)\."
)
_POOLER = re.compile(r"(?:^|\.)pooler\.")
_ADAPTER = re.compile(r"\.(?:base_layer|lora_[AB]\.\w+)(?=\.)")
"""peft's infix between a dense layer's name and ``weight`` or ``bias``."""

# Patterns of the name after the block number, for each part; the first match decides.
_PART_PATTERNS: tuple[tuple[Part, str], ...] = (
    ("output.dense", r"layer\.1\.DenseReluDense\.wo\."),
    # T5 numbers its sublayers: 0 attends, 1 feeds forward.
    ("attention", r"layer\.0\."),
    ("intermediate", r"layer\.1\."),
    ("attention", r"(?:albert_layers\.\d+\.)?(?:attention|self_attn|self_attention|attn)\."),
    ("attention", r"(?:attn_norm|sa_layer_norm|self_attn_layer_norm|input_layernorm|ln_1|norm_1)\."),
    ("output.dense", r"(?:output\.dense|(?:albert_layers\.\d+\.)?ffn_output|ffn\.lin2|ffn\.down_proj|fc2)\."),
    ("output.dense", r"mlp\.(?:dense_4h_to_h|down_proj|Wo|c_proj|fc_out|fc2)\."),
    ("output", r"(?:output|(?:albert_layers\.\d+\.)?full_layer_layer_norm|output_layer_norm)\."),
    ("output", r"post_(?:feedforward|mlp)_layernorm\."),
    ("intermediate", r"(?:albert_layers\.\d+\.ffn|intermediate|ffn\.(?:lin1|up_proj)|fc1)\."),
    ("intermediate", r"(?:mlp_norm|ln_2|norm_2|pre_feedforward_layernorm|final_layer_norm)\."),
    ("intermediate", r"mlp\.(?:dense_h_to_4h|gate_proj|up_proj|gate_up_proj|Wi|c_fc|fc_in|fc1)\."),
)
_PART_RULES = tuple((part, re.compile(pattern)) for part, pattern in _PART_PATTERNS)

_PRESET = re.compile(
    r"(blocks)(?:\[([^\[\]]*)\])?(?:\.(attention|intermediate|output(?:\.dense(?:\.(?:weight|bias))?)?))?"
)
_SPAN = re.compile(r"\s*(-?\d+)?\s*(:)?\s*(-?\d+)?\s*")


@dataclass(frozen=True, slots=True)
class FreezeReport:
    """Parameters frozen by patterns, in the model's order, with the numbers of frozen (including earlier
    ones) and trainable weights.
    """

    names: tuple[str, ...]
    frozen: int
    trainable: int


@dataclass(frozen=True, slots=True)
class _Layout:
    """The parameters of one model, sorted by their names.

    Attributes:
        tables: Names of ``embeddings.base``.
        embeddings: Names of the whole embedding block.
        blocks: Names of each block, in order.
        part_of: Part of each name inside a block, if known.
        stacks: Name prefixes of blocks; several if the model has two stacks of blocks.
    """

    tables: list[str]
    embeddings: list[str]
    blocks: list[list[str]]
    part_of: dict[str, Part]
    stacks: list[str]


_BlockPattern = tuple[int | slice, Part | None]
"""A parsed ``blocks[...]``: one or several blocks, and the part of each; None for the whole block."""


def frozen_parameters(backbone: nn.Module, patterns: Sequence[str], *, alone: bool = True) -> list[str]:
    """Names of the parameters that any pattern matches, in the model's order; with `alone`, some weights must
    remain trainable.
    """
    check_patterns(patterns)
    first: dict[int, str] = {}
    # Every name of every parameter to its first name, because a tied table has several.
    aliases = {
        name: first.setdefault(id(weight), name)
        for name, weight in backbone.named_parameters(remove_duplicate=False)
    }
    layout = _layout(list(dict.fromkeys(aliases.values())))
    chosen: set[str] = set()
    faults = []
    for pattern in patterns:
        try:
            chosen.update(_match(pattern, layout, aliases))
        except ModelError as error:
            faults.append(str(error))
    if faults:
        raise ModelError(several(faults))
    trained = [
        name for name, weight in backbone.named_parameters() if weight.requires_grad and name not in chosen
    ]
    if alone and chosen and all(_POOLER.search(name) for name in trained):
        advice = "remove a pattern"
        if not layout.blocks:
            advice = "a model without blocks has only embeddings: set freeze = []"
        quoted = ", ".join(f'"{pattern}"' for pattern in dict.fromkeys(patterns))
        raise ModelError(
            f"freeze must leave something to train, got [{quoted}], which match every weight; {advice}"
        )
    return [name for name, _ in backbone.named_parameters() if name in chosen]


def freeze(backbone: nn.Module, patterns: Sequence[str], *, alone: bool = True) -> FreezeReport:
    """Disable the gradients of the parameters that the patterns match; see `frozen_parameters`."""
    names = frozen_parameters(backbone, patterns, alone=alone)
    for name in names:
        backbone.get_parameter(name).requires_grad_(False)
    trainable = trainable_weights(backbone)
    total = sum(weight.numel() for weight in backbone.parameters())
    return FreezeReport(tuple(names), frozen=total - trainable, trainable=trainable)


def trainable_weights(module: nn.Module) -> int:
    """Number of the weights that have gradients."""
    return sum(weight.numel() for weight in module.parameters() if weight.requires_grad)


def check_patterns(patterns: Sequence[str]) -> None:
    """Check the syntax of patterns, which needs no model."""
    if isinstance(patterns, str):
        raise ConfigError(f'freeze must be a list of patterns, got "{patterns}"; write ["{patterns}"]')
    faults = [fault for pattern in patterns if (fault := _form_fault(pattern))]
    if faults:
        raise ConfigError(several(faults))


def _form_fault(pattern: str) -> str | None:
    """What is wrong with the form of a pattern; None if it is right."""
    if not pattern.strip():
        return 'freeze must hold patterns, got an empty text; remove it, or write "." for every parameter'
    if pattern.startswith("blocks["):
        usage = f"blocks[i], blocks[i:j] or blocks[:], alone or with .{', .'.join(_PARTS)}"
        return None if _block_pattern(pattern) else f'freeze must use {usage}, got "{pattern}"; correct it'
    try:
        re.compile(pattern)
    except re.error as error:
        return (
            f'freeze must hold presets or regular expressions, got "{pattern}" ({error}); '
            "escape special characters with a backslash"
        )
    return None


def _block_pattern(pattern: str) -> _BlockPattern | None:
    """Parse ``blocks[...]``, ``blocks.PART`` or a part alone; None for anything else."""
    match = _PRESET.fullmatch(f"blocks.{pattern}" if pattern in _PARTS else pattern)
    if match is None:
        return None
    block_part = next((name for name in _PARTS if name == match[3]), None)
    if match[2] is None:
        return slice(None), block_part
    span = _SPAN.fullmatch(match[2])
    if span is None:
        return None
    start, stop = (int(text) if text else None for text in (span[1], span[3]))
    if span[2] is not None:
        return slice(start, stop), block_part
    return None if start is None or stop is not None else (start, block_part)


def _match(pattern: str, layout: _Layout, aliases: Mapping[str, str]) -> list[str]:
    """The names that a pattern matches; ModelError if there are none."""
    block_pattern = _block_pattern(pattern)
    if block_pattern:
        names = _in_blocks(pattern, *block_pattern, layout)
    elif pattern in ("embeddings.base", "embeddings"):
        names = layout.tables if pattern == "embeddings.base" else layout.embeddings
    else:
        search = re.compile(pattern).search
        is_meant = {name: search(name) or search(_ADAPTER.sub("", name)) for name in aliases}
        names = list(dict.fromkeys(first for name, first in aliases.items() if is_meant[name]))
    if not names:
        raise ModelError(_no_match(pattern, layout, set(aliases.values())))
    return names


def _in_blocks(pattern: str, span: int | slice, block_part: Part | None, layout: _Layout) -> list[str]:
    """The names that a block pattern matches; ModelError if the model lacks one of its blocks."""
    if len(layout.stacks) > 1:
        raise ModelError(
            f'freeze pattern "{pattern}" must mean one stack of blocks, got '
            f"a model with {len(layout.stacks)} "
            f"({', '.join(layout.stacks)}); use a regular expression on the parameter names"
        )
    count = len(layout.blocks)
    bounds, last = ((span.start, span.stop), count) if isinstance(span, slice) else ((span,), count - 1)
    if any(bound is not None and not -count <= bound <= last for bound in bounds):
        raise ModelError(
            f'freeze pattern "{pattern}" must stay within the blocks of this model, '
            f"which has {count} blocks, counted from 0; correct it"
        )
    chosen = layout.blocks[span] if isinstance(span, slice) else [layout.blocks[span]]
    names = chain.from_iterable(chosen)
    return [name for name in names if block_part is None or _belongs(name, block_part, layout)]


def _belongs(name: str, block_part: Part, layout: _Layout) -> bool:
    """Whether a parameter belongs to a part of its block; ``output.dense.weight`` belongs to ``output.dense``
    and to ``output`` too.
    """
    parameter = _ADAPTER.sub("", name).rpartition(".")[2]
    path = f"{layout.part_of.get(name)}.{parameter}."
    return path.startswith(f"{block_part}.")


def _layout(names: Iterable[str]) -> _Layout:
    """Sort parameter names into embeddings, blocks and parts of blocks."""
    tables: list[str] = []
    embeddings: list[str] = []
    blocks: dict[tuple[str, int], dict[str, str]] = {}
    for name in names:
        block = _BLOCK.search(name)
        if block:
            blocks.setdefault((name[: block.start(1)], int(block[1])), {})[name] = name[block.end() :]
        elif _TABLE.search(name):
            tables.append(name)
            embeddings.append(name)
        elif _EMBEDDING.search(name):
            embeddings.append(name)
    ordered = [block for _, block in sorted(blocks.items())]
    part_of = dict(chain.from_iterable(map(_parts_of, ordered)))
    stacks = sorted({stack for stack, _ in blocks})
    return _Layout(tables, embeddings, [list(block) for block in ordered], part_of, stacks)


def _parts_of(block: Mapping[str, str]) -> Iterator[tuple[str, Part]]:
    """Name and part of the parameters of a block, from a map of full names to names inside the block; unknown
    ones are left out. Rules are tried in their order, and the first that matches decides.
    """
    # Llama's `post_attention_layernorm` precedes the feed-forward; in blocks with a norm after that (Gemma
    # 2), it follows attention.
    sandwiched = any(
        "_feedforward_layernorm." in inner or "post_mlp_layernorm." in inner for inner in block.values()
    )
    after_attention: Part = "attention" if sandwiched else "intermediate"
    rules = ((after_attention, re.compile(r"post_attention_layernorm\.")), *_PART_RULES)
    for name, inner in block.items():
        found = next((block_part for block_part, rule in rules if rule.match(inner)), None)
        if found is not None:
            yield name, found


def _no_match(pattern: str, layout: _Layout, names: Iterable[str]) -> str:
    """Message for a pattern without a match: similar names, then the presets of this model."""
    presets = {"embeddings.base": layout.tables, "embeddings": layout.embeddings, "blocks": layout.blocks}
    known = [preset for preset, matched in presets.items() if matched]
    for block_part in _PARTS:
        if any(_belongs(name, block_part, layout) for name in layout.part_of):
            known.append(block_part)
    near = difflib.get_close_matches(pattern.removeprefix("blocks."), [*known, *sorted(names)], n=5)
    hint = f"near names: {', '.join(near)}; " if near else ""
    return (
        f'freeze pattern "{pattern}" must match a parameter, got no match; {hint}'
        f"this model knows {', '.join(known)} and has {len(layout.blocks)} blocks, counted from 0"
    )
