"""The operator: scores, mix over heads, softmax, mix over heads, values."""
import inspect

import torch

import motet._library  # noqa: F401  registers torch.ops.motet
import motet.flops  # noqa: F401  lets FlopCounterMode count it
from motet.options import as_integer, nearest

# The operator's own schema: the one place of its arguments and their defaults.
_ARGUMENTS = torch.ops.motet.composed_attention.default._schema.arguments
_NAMES = frozenset(argument.name for argument in _ARGUMENTS)
_TENSORS = frozenset(argument.name for argument in _ARGUMENTS if "Tensor" in str(argument.type))


def shown(value):
    """A value in one short line."""
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {list(value.shape)}"
    if isinstance(value, dict):
        return f"a dictionary of {', '.join(map(str, value)) or 'nothing'}"
    return " ".join(repr(value).split())[:80]


def check_tensor(function, name, value):
    """ValueError for what is no tensor, or none whose numbers lie densely in memory."""
    if not isinstance(value, torch.Tensor):
        raise ValueError(f"{function}: {name} is {shown(value)}, want a tensor")
    if value.is_nested or value.is_quantized or value.layout != torch.strided:
        kind = "nested" if value.is_nested else "quantized" if value.is_quantized else f"of layout {value.layout}"
        raise ValueError(f"{function}: {name} is {kind}, want a dense tensor")


def _integer(value):
    """As as_integer, but an int of a graph that torch.compile makes stays what it is."""
    return value if type(value) in (int, torch.SymInt) else as_integer(value)


def _heads(name, value):
    """A list of integers; ValueError for what is none."""
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"composed_attention: {name} is {shown(value)}, want a list of integers")
    numbers = [_integer(entry) for entry in value]
    for entry, number in zip(value, numbers, strict=True):
        if number is None or not -(2**63) <= number < 2**63:
            raise ValueError(f"composed_attention: {name} holds {shown(entry)}, want integers")
    return numbers


def _checked(name, value):
    """An argument as the operator takes it; ValueError for a wrong type. What it must be beyond that the operator says."""
    if name in _TENSORS:
        if value is not None:
            check_tensor("composed_attention", name, value)
    elif name in ("key_of", "value_of"):
        return None if value is None else _heads(name, value)
    elif name == "scale":
        if not (value is None or isinstance(value, (int, float, torch.SymFloat)) and not isinstance(value, bool)):
            raise ValueError(f"composed_attention: scale is {shown(value)}, want a number")
    elif name == "precision":
        if not (value is None or isinstance(value, str)):
            raise ValueError(f"composed_attention: precision is {shown(value)}, want 'highest' or 'high'")
    elif name == "kernel_name":
        if not (value is None or isinstance(value, str)):
            raise ValueError(f"composed_attention: kernel_name is {shown(value)}, want the name of one or None")
    elif name == "window":
        number = _integer(value)
        if number is None or number >= 2**63:
            raise ValueError(f"composed_attention: window is {shown(value)}, want 0 (none) or more, below 2^63")
        return number
    elif not isinstance(value, bool):
        raise ValueError(f"composed_attention: {name} is {shown(value)}, want True or False")
    return value


def composed_attention(q, k, v, *, return_lse=False, **arguments):
    """Composed attention: `out [B,T,Ho,E]`, or `(out, lse)` with `return_lse=True`.

        A[h,t,s] = scale * q[t,h] . k[s,key_of[h]]               Hs score heads
        L        = pre(A) + bias                                 Ha softmax heads
        P[a,t,:] = softmax over visible s of L[a,t,:]
        U        = post(P)                                       Ho output heads
        out[t,o] = sum_s U[o,t,s] v[s,value_of[o]]

    Shapes: B batch, T queries, S keys, D key width, E value width, R rank, Gk and Gv stored heads. Note the order
    B, T, H, D: no transpose between a projection and the operator.

    q [B,T,Hs,D], k [B,S,Gk,D], v [B,S,Gv,E]: one dtype, float32, bfloat16, float16 or float64; under a float32 q,
        k, v and the key side of the mixes may be in 16 bits (a cache in fewer bits).
    scale: a number, default 1/sqrt(D).
    key_of, value_of: lists of Hs and Ho integers, which stored head a score (output) head reads; default contiguous
        groups. Not tensors.
    causal, window: a query at position p sees keys s <= p and, with window > 0 (causal only), p - s < window.
    query_start [B]: position of query 0; default S - T, the last query sees the last key.
    key_begin, key_end [B]: key s is visible when key_begin <= s < key_end (left and right padding). What lies outside
        never leaks, NaN included.
    documents [B,S]: integers; a query sees keys of its own document.
    bias [1 or B, 1 or Ha, T, S]: added after the pre mix; -inf hides. Costs T x S.

    A mix from N to M heads, `pre_` and `post_`, adds up the parts that are given (mixing comes before mask and bias):
        _identity: True adds the input itself (N = M). Never inferred.
        _weight [N,M]: the same at every place.
        _query_down [B,T,R,N] with _query_up [B,T,R,M]; _key_down [B,S,R,N] with _key_up [B,S,R,M]: low rank.
        _query_gate [B,T,M], _key_gate [B,S,M]: multiply a head by a number (N = M).
        _query_full [B,T,N,M], _key_full [B,S,N,M]: a whole matrix.
    With no part the input passes. Alone as post mix:
        pair_lambda, a tensor [], [Ho] or [B,T,Ho]: U[i] = P[2i] - pair_lambda[i] P[2i+1].
    Mix tensors (the key side see above), pair_lambda and bias have q's dtype or float32; sums, softmax and mixing run in at least float32.

    precision: 'highest', or 'high', which multiplies float32 in three products of bfloat16 tiles (AMX) in place of six,
        off by at most 2^-15 of each term. A ValueError where there are none.
    kernel_name: that of an implementation (`motet doctor` lists them); default the best that runs the problem. A
        ValueError when it cannot run it.

    lse [B,Ha,T] = log sum_s exp L, float32 (float64 for float64), not differentiable. A query that sees no key gives
    0 (lse -inf) and passes no gradient. Gradients reach q, k, v, bias and every mix tensor; second derivatives do not
    exist. Works under torch.compile (fullgraph) and autocast (q, k, v in the autocast dtype, mixes in float32).

    Raises ValueError naming the argument, what it was and what is wanted; TypeError for an unknown argument;
    NotImplementedError for a second derivative, a forward-mode one (jvp), one under torch.func (grad, vjp, jacrev ...)
    and a batch of output gradients at once. torch.func.vmap runs one sample after the other.

    Sources: talking heads arXiv:2003.02436, DCMHA arXiv:2405.08553, differential attention arXiv:2410.05258.
    """
    for name, value in arguments.items():
        if name not in _NAMES:
            raise TypeError(f"composed_attention: unknown argument {name!r}{nearest(name, _NAMES)}")
        arguments[name] = _checked(name, value)
    for name, value in (("q", q), ("k", k), ("v", v)):
        check_tensor("composed_attention", name, value)
    out, lse = torch.ops.motet.composed_attention(q, k, v, **arguments)
    return (out, lse) if return_lse else out


def _signature():
    """What help() shows: the operator's schema."""
    kinds = inspect.Parameter
    shown = []
    for argument in _ARGUMENTS:
        kind = kinds.KEYWORD_ONLY if argument.kwarg_only else kinds.POSITIONAL_OR_KEYWORD
        default = argument.default_value if argument.kwarg_only else kinds.empty
        shown.append(kinds(argument.name, kind, default=default))
    shown.append(kinds("return_lse", kinds.KEYWORD_ONLY, default=False))
    return inspect.Signature(shown)


composed_attention.__signature__ = _signature()
