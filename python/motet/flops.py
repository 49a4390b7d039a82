"""What torch.utils.flop_counter counts of the operator, as it counts PyTorch's own attention: every query with every key,
hidden or not. Multiply-adds of a mix are those of its parts at each such place."""
import math

import torch
from torch.utils.flop_counter import register_flop_formula

import motet._library  # noqa: F401  registers torch.ops.motet


def _work(q, k, outputs, width, parts):
    """Multiply-adds of scores, of values and of the mixes; `outputs` heads of values `width` wide, `parts` by name."""
    batch, queries, heads, key_width = q
    mixes = outputs if parts.get("pair_lambda") is not None else 0
    for name, shape in parts.items():
        if shape is not None and name.startswith(("pre_", "post_")) and not name.endswith("_identity"):
            mixes += shape[-1] if name.endswith("_gate") else math.prod(shape[-2:])
    places = batch * queries * k[1]
    return places * heads * key_width, places * outputs * width, places * mixes


@register_flop_formula(torch.ops.motet.composed_attention)
def _forward(q, k, v, *, out_shape=None, **arguments):
    return 2 * sum(_work(q, k, *out_shape[0][2:], arguments))


@register_flop_formula(torch.ops.motet.composed_attention_backward)
def _backward(dout, out, lse, q, k, v, *, out_shape=None, **arguments):
    """Scores and mixes are made again; each product has two gradients."""
    scores, values, mixes = _work(q, k, *out[2:], arguments)
    return 2 * (3 * scores + 2 * values + 3 * mixes)
