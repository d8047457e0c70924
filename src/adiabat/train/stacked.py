"""Copies of one tower that pass a batch together: their trained weights lie in one stack, so that each kernel serves all of them.

Runs of a study that differ in rate, decay or margin see the same texts. A batch of 14 leaves a GPU idle while kernels are launched; with
K towers in one pass there are as many kernels as for one, each with K times the work. Torch maps the pass over the stack (`torch.vmap`):
a product with K trained matrices becomes one grouped product, and what comes before the first trained weight is computed once for all.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.func import functional_call
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from adiabat.errors import ModelError
from adiabat.model.batches import TokenBatch
from adiabat.model.encoder import Encoder
from adiabat.model.packing import ATTENTION as PLAIN_PACKED
from adiabat.model.packing import PackedBackbone
from adiabat.model.precision import PROBE, Precision, autocast, minimum_cosine
from adiabat.model.tokens import TokenTable
from adiabat.train.chunking import Chunking
from adiabat.train.copies import training_copies
from adiabat.train.randomness import draws

PADDED, PACKED = "adiabat_stacked", "adiabat_stacked_packed"

ALIKE = 0.9999
"""Least cosine between what a tower gives by itself and in the stack, in float32: a kind of attention that goes wrong is far below."""

AS_ONE = "run them one after another"


class StackedTowers:
    """Towers that start from one model, as slices of one stack.

    Each trained parameter of a tower is a view of its slice: whatever reads a tower or writes into it, such as an optimizer, a checkpoint
    or a validation, works as it does on a tower by itself. What is frozen is held once. Beside the weights there is never more than one
    further copy of a single parameter of all towers, while the stack is made or made anew; gradients are as large as the trained weights,
    and a pass keeps what K passes would. A trained embedding table is copied in every step, for torch looks tokens up in K tables only
    where their rows lie side by side.
    """

    def __init__(self, towers: Sequence[Encoder], *, precision: Precision = "fp32") -> None:
        """Stack towers.

        Args:
            towers: Of one architecture and one device, with the same frozen weights, in which the same weights are trained; at least one.
            precision: Of the forward pass.

        Raises:
            ValueError: If two towers differ in anything but the values of their trained weights.
            ModelError: If dropout is on, or torch cannot map a pass of such a tower over a stack.
        """
        first = towers[0]
        if any(draws(tower) for tower in towers):
            raise ModelError(f"tune.dropout must be false where several runs are stepped together, got true; set it to false, or {AS_ONE}")
        for tower in towers[1:]:
            _share_frozen(first, tower)
        self._towers, self._precision = list(towers), precision
        self._trained = [{name: weights for name, weights in tower.named_parameters() if weights.requires_grad} for tower in towers]
        self._template = _template_of(first)
        inside = {id(weights): name for name, weights in self._template.named_parameters()}
        self._inside = {name: inside[id(weights)] for name, weights in self._trained[0].items()}
        self._stacks: dict[str, Tensor] = {}
        self._lanes: tuple[int, ...] = ()
        self.stack(range(len(towers)))
        try:
            self._require_sound_passes()
        except ModelError:
            self.stack([])
            raise

    def __len__(self) -> int:
        return len(self._towers)

    def stack(self, lanes: Sequence[int]) -> None:
        """Say which towers pass from now on; the stack is made anew where they are others than before.

        A tower that leaves takes its weights with it. Parameters stay the objects they are, so that optimizers keep their state.

        Args:
            lanes: Numbers of towers, each once; with none of them every tower is by itself again.
        """
        lanes = tuple(lanes)
        if lanes == self._lanes:
            return
        leaving = set(self._lanes).difference(lanes)
        for name, inside in self._inside.items():
            own = [trained[name] for trained in self._trained]
            # The former stack of this parameter goes with the last view of it.
            self._stacks.pop(inside, None)
            for lane in leaving:
                own[lane].data = own[lane].data.clone()
            if lanes:
                stacked = torch.stack([own[lane].data for lane in lanes])
                for lane, part in zip(lanes, stacked, strict=True):
                    own[lane].data = part
                self._stacks[inside] = stacked.requires_grad_()
        self._lanes = lanes

    def embed(self, table: TokenTable, picked: Int[np.ndarray, " b"], lanes: Sequence[int]) -> Float[Tensor, "k b e"]:
        """Embed some texts with several towers at once, differentiably.

        Args:
            table: Tokenised by the towers.
            picked: Which texts.
            lanes: Numbers of towers; see `stack`.

        Returns:
            For each of these towers the embeddings of all texts. Differentiating them leaves a gradient in the stack
            (`hand_out_gradients`).
        """
        self.stack(lanes)
        return self._pass(self._template.collate(table.lists(picked), side=table.side), self._precision)

    def hand_out_gradients(self, lanes: Sequence[int]) -> None:
        """Give each tower the gradient of its slice, and forget that of the stack.

        Args:
            lanes: Those that have one; the others' is dropped.
        """
        places = [(place, lane) for place, lane in enumerate(self._lanes) if lane in set(lanes)]
        for name, inside in self._inside.items():
            gradient, self._stacks[inside].grad = self._stacks[inside].grad, None
            if gradient is None:
                continue
            for place, lane in places:
                weights, own = self._trained[lane][name], gradient[place]
                weights.grad = own if weights.grad is None else weights.grad.add_(own)

    def _pass(self, batch: TokenBatch, precision: Precision) -> Float[Tensor, "k b e"]:
        with autocast(self._template.device, precision):
            embeddings: Tensor = torch.vmap(partial(_embedded, self._template, batch))(self._stacks)
        return embeddings

    def _require_sound_passes(self) -> None:
        """Let a few texts pass and their gradient come back, and compare with the first tower by itself."""
        first, template = self._towers[0], self._template
        name = type(first.backbone).__name__
        batch = template.collate(template.tokenize(PROBE[:3], side="query"), side="query")
        try:
            self._pass(batch, self._precision).sum().backward()  # type: ignore[no-untyped-call]
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, ValueError) as fault:
            said = str(fault).strip().split("\n")[0]
            raise ModelError(f"{name} must be one whose passes torch can map over a stack of weights, got: {said}; {AS_ONE}") from fault
        self.hand_out_gradients([])
        with torch.no_grad():
            together, alone = self._pass(batch, "fp32")[0], first(batch)
        if minimum_cosine(together.cpu().numpy(), alone.cpu().numpy()) < ALIKE:
            raise ModelError(f"{name} must give the same vectors in a stack of weights as by itself, got others; {AS_ONE}")


def _embedded(template: Encoder, batch: TokenBatch, weights: Mapping[str, Tensor]) -> Float[Tensor, "b e"]:
    embeddings: Tensor = functional_call(template, dict(weights), (batch,))
    return embeddings


def _share_frozen(first: Encoder, other: Encoder) -> None:
    """Let a tower hold what is frozen in the memory of the first, or say in what it differs."""
    if (type(first.backbone), first.settings, _form(first)) != (type(other.backbone), other.settings, _form(other)):
        differing = sorted(name for name, _ in set(_form(first).items()) ^ set(_form(other).items()))
        raise ValueError(f"stacked towers must be alike in all but values, got others in {', '.join(differing[:3]) or 'their settings'}")
    ours = {**dict(first.named_parameters()), **dict(first.named_buffers())}
    for name, theirs in (*other.named_parameters(), *other.named_buffers()):
        if theirs.requires_grad:
            continue
        if not torch.equal(ours[name], theirs):
            raise ValueError(f"stacked towers must have the same frozen weights, got others in {name}")
        theirs.data = ours[name].data


def _form(tower: Encoder) -> dict[str, tuple[Any, ...]]:
    return {
        name: (tuple(weights.shape), weights.dtype, weights.device, weights.requires_grad)
        for name, weights in (*tower.named_parameters(), *tower.named_buffers())
    }


def _template_of(tower: Encoder) -> Encoder:
    """A copy whose attention can be mapped; its parameters are the tower's own."""
    copy = training_copies([tower], 1, Chunking())[0][0]
    backbone, attention = copy.backbone, PADDED
    if isinstance(backbone, PackedBackbone):
        backbone, attention = backbone.backbone, PACKED
    # What has no other attention than a plain one is mapped as it is.
    if backbone.config._attn_implementation != "eager":
        backbone.set_attn_implementation(attention)
    return copy


def _attention(
    attend: Callable[..., tuple[Tensor, None]],
    axis: int,
    module: nn.Module,
    query: Float[Tensor, "b h n d"],
    key: Float[Tensor, "b g n d"],
    value: Float[Tensor, "b g n d"],
    attention_mask: Tensor | None,
    *,
    position_bias: Tensor | None = None,
    **options: Any,
) -> tuple[Float[Tensor, "b n h d"], None]:
    """Attention of all towers as of one that has more texts (axis 0) or heads (axis 1); the rest in the form that transformers calls."""

    def whole(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
        own = options if bias is None else {**options, "position_bias": bias}
        return attend(module, query, key, value, mask, **own)[0]

    attended: Tensor = _Folded.apply(whole, axis, query, key, value, attention_mask, position_bias)  # type: ignore[no-untyped-call]
    return attended, None


AttentionInterface.register(PADDED, partial(_attention, sdpa_attention_forward, 0))
AttentionMaskInterface.register(PADDED, sdpa_mask)
# Packed texts are one row, and take no mask.
AttentionInterface.register(PACKED, partial(_attention, ALL_ATTENTION_FUNCTIONS[PLAIN_PACKED], 1))


class _Folded(torch.autograd.Function):
    """A function of batches, given those of all towers as one larger batch: torch itself maps no attention kernel of a CPU."""

    @staticmethod
    def forward(attend: Callable[..., Tensor], axis: int, *batches: Tensor | None) -> Tensor:
        """Where nothing is trained before it, attention is the same in all towers, and has no gradient."""
        return attend(*batches)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep nothing."""

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> None:
        """There is none to come; see `forward`."""
        raise RuntimeError("attention must be mapped over towers to be differentiated, got one that is not")

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], attend: Callable[..., Tensor], axis: int, *batches: Tensor | None
    ) -> tuple[Tensor, int]:
        """Attend side by side; torch differentiates that by itself."""
        lanes: int = info.batch_size
        split = [_with_lanes(batch, place, lanes) for batch, place in zip(batches, in_dims[2:], strict=True)]
        rows = max(batch.shape[1] for batch in split if batch is not None)
        whole = [None if batch is None else _joined(batch, axis, rows) for batch in split]
        # (b, h, n, d) has become (b, n, h, d).
        attended: Tensor = attend(*whole).unflatten(2 * axis, (lanes, -1))  # type: ignore[no-untyped-call]
        return attended, 2 * axis


def _with_lanes(batch: Tensor | None, place: int | None, lanes: int) -> Tensor | None:
    """The axis of towers first, also of what is the same for all of them."""
    if batch is None:
        return None
    return batch.expand(lanes, *batch.shape) if place is None else batch.movedim(place, 0)


def _joined(batch: Shaped[Tensor, "k b h n d"], axis: int, rows: int) -> Shaped[Tensor, "r m n d"]:
    """Towers and texts, or towers and heads, as one axis; what is one for all texts is repeated."""
    return batch.expand(-1, rows, -1, -1, -1).movedim(0, axis).flatten(axis, axis + 1)
