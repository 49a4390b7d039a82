"""What nearly all mechanisms share: projections, QK norm, rotary embedding, windows, position biases, cached keys."""
import inspect

import torch
from torch import nn

from motet import layers, options
from motet.composed import check_tensor, composed_attention, shown
from motet.options import resolve

_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_SEEN = ("query_start", "key_begin", "key_end", "documents", "bias")  # what a call says of visibility
_LARGEST = 2**30
_PATTERNS = {"local": "L", "LG": "LG", "LGLL": "LGLL", "LGL6": "LGLLLLLL"}

_SHARED = """
    hidden_size: width C of x and of the output.
    layer: number of the layer from 0 (window_pattern and lambda_init go by depth).
    causal: each token sees itself and those before it.
    memory_size: width M of what keys read; 0 = hidden_size.
    max_position: trained length in tokens, where rope_scaling needs one and rope_trained_length is 0.
    device, dtype: of the parameters.

    Options, named and defaulted as [model.attention] of the C++ engine:
"""
_RAISES = """
    Raises TypeError for an unknown option, ValueError naming the option, what it was and what is wanted. Parameters
    have the names and shapes of the C++ mechanism: `model.layers.N.self_attn.*` of a model folder loads with
    load_state_dict. Projections start as nn.Linear does; initialize_extras draws the rest from the distributions of
    the C++ engine (other random numbers).
"""


def windows_of(options, layer):
    """Keys that a query of layer number `layer` sees, 0 = all: in a whole pass, and behind keys that are cached. The
    released form is one wider in a whole pass alone."""
    window, pattern = options["window"], _PATTERNS[options["window_pattern"]]
    if window == 0 or pattern[layer % len(pattern)] == "G":
        return 0, 0
    return window + (options["window_mask"] == "released"), window


class Mechanism(nn.Module):
    """A module that turns hidden states into the arguments of composed_attention.

    `keys`, `queries`, `attention` and `finish` are the parts of `forward`, for caches and models of one's own. The
    first three return dictionaries of arguments of composed_attention.
    """

    mechanism = ""  # its name in the C++ engine
    key_name = "k_proj"

    def __init_subclass__(cls, **more):
        """Signature and docstring list the options of the table."""
        super().__init_subclass__(**more)
        kinds = inspect.Parameter
        table = options.table(cls.mechanism)
        own = [kind for kind in inspect.signature(Mechanism.__init__).parameters.values() if kind.name != "options"]
        listed = [kinds(option.name, kinds.KEYWORD_ONLY, default=option.default) for option in table]
        cls.__signature__ = inspect.Signature([*own[1:], *listed])
        lines = "".join(f"        {option.line()}\n" for option in table)
        cls.__doc__ = (cls.__doc__ or "") + _SHARED + lines + _RAISES

    def __init__(
        self, hidden_size, *, layer=0, causal=True, memory_size=0, max_position=0, device=None, dtype=None, **options
    ):
        super().__init__()
        self._check_settings(hidden_size, layer, causal, memory_size, max_position, device, dtype)
        self.hidden_size, self.layer, self.causal = hidden_size, layer, causal
        self.memory_size = memory_size or hidden_size
        self.options = resolve(type(self).__name__, self.mechanism, options)
        self._factory = dict(device=device, dtype=dtype)
        self.sizes()
        self.window, self.cached_window = windows_of(self.options, layer)
        if self.window and not causal:
            self.refuse("window", self.options["window"], "0 without causal attention")
        self.rotary = layers.Rotary(type(self).__name__, self.options, self.key_dim, max_position)
        self._add_projections()
        self.add_extras()
        with torch.no_grad():
            self.initialize_extras()

    # ---- what a mechanism says

    def sizes(self):
        """Sets the numbers of heads, by stage, and their widths: plain attention."""
        self.query_heads = self.softmax_heads = self.output_heads = self.options["num_heads"]
        self.key_heads = self.value_heads = self.num_kv_heads()
        self.key_dim = self.value_dim = self.head_dim()

    def add_extras(self):
        """Adds the parameters that are not projections."""

    def initialize_extras(self, generator=None):
        """Draws what is neither a projection nor a norm; call it under no_grad, after the projections were drawn."""
        if self.relative_bias is not None:
            self.relative_bias.zero_()

    def _check_settings(self, hidden_size, layer, causal, memory_size, max_position, device, dtype):
        sizes = {"hidden_size": (hidden_size, 1), "layer": (layer, 0), "memory_size": (memory_size, 0)}
        sizes["max_position"] = (max_position, 0)
        for name, (size, lowest) in sizes.items():
            if not isinstance(size, int) or isinstance(size, bool) or not lowest <= size <= _LARGEST:
                self.refuse(name, repr(size), f"integer, {lowest} to {_LARGEST}")
        if not isinstance(causal, bool):
            self.refuse("causal", repr(causal), "True or False")
        if dtype is not None and dtype not in _DTYPES:
            self.refuse("dtype", repr(dtype), "torch.float32, bfloat16, float16 or float64")
        try:
            device is None or torch.device(device)
        except (RuntimeError, TypeError):
            self.refuse("device", repr(device), "a device of torch")

    def keys(self, memory, positions=None, length=None):
        """What a cache holds of memory [B,S,M]: `k` [B,S,Gk,D], `v` [B,S,Gv,E] and parts of the mixes, all with the key
        as dimension 1. positions [S] or [B,S] integers, default 0..S-1; length: see forward, default S."""
        positions, length = self._placed("memory", memory, positions, length)
        return {"k": self.placed_keys(self.key_heads_of(memory), positions, length), "v": self.value_heads_of(memory)}

    def queries(self, x, positions=None, length=None):
        """The query side of x [B,T,C]: `q` [B,T,Hs,D] and parts of the mixes."""
        positions, length = self._placed("x", x, positions, length)
        return {"q": self.placed_queries(self.query_heads_of(x), positions, length)}

    def attention(self, positions, key_positions):
        """What belongs to neither side: visibility, static mixes, head tables, position bias."""
        made = {"causal": self.causal, "window": self.window}
        if self.options["position_bias"] != "none":
            made["bias"] = self._position_bias(positions, key_positions)
        return made

    def finish(self, out, x=None):
        """[B,T,C] of the operator's out [B,T,Ho,E]; an output gate is made from x [B,T,C], which may be left out where
        there is none."""
        self._check_out(out)
        if self.options["output_gate"]:
            self._check_states("x", x, self.hidden_size)
            if x.shape[:2] != out.shape[:2]:
                self.refuse("x", f"of shape {list(x.shape)}", f"{list(out.shape[:2])} tokens, as out has")
            out = out * torch.sigmoid(self.gate_proj(x)).unsqueeze(-1)
        return self.o_proj(out.flatten(2))

    # ---- all of it

    def forward(
        self,
        x,
        positions=None,
        *,
        memory=None,
        memory_positions=None,
        past=None,
        length=None,
        return_keys=False,
        **seen,
    ):
        """Attention of x [B,T,C] to itself, or to memory [B,S,M]: [B,T,C], or (that, keys) with return_keys=True.

        memory: of a layer with causal=False; a causal one wants query_start beside it, the place among the keys of
            each sequence's first query.
        positions: [T] or [B,T] integers, where the tokens stand in their own sequence; default 0..T-1, or after `past`.
        memory_positions: [S] or [B,S], likewise of memory; with `past` and a position bias those of all keys.
        past: keys of earlier tokens, as return_keys gave them; those of x are appended.
        length: tokens that dynamic rotary scaling is based on, the planned length of a request; default all keys.
        seen: query_start, key_begin, key_end, documents, bias of composed_attention.

        Raises ValueError naming the argument for a type, dtype, shape or device that does not fit, TypeError for an
        unknown argument.
        """
        self._check_states("x", x, self.hidden_size)
        for name in seen:
            if name not in _SEEN:
                raise TypeError(f"{type(self).__name__}: unknown argument {name!r}, want one of {', '.join(_SEEN)}")
        if memory is not None and past is not None:
            self.refuse("past", "given beside memory", "one of both")
        if memory is None and past is None and memory_positions is not None:
            self.refuse("memory_positions", "given without memory or past", "one of them beside it")
        before = 0 if past is None else self._length_of(past)
        if memory is not None:
            self._check_states("memory", memory, self.memory_size)
            if memory.shape[0] != x.shape[0]:
                self.refuse("memory", f"a batch of {memory.shape[0]}", f"x's batch {x.shape[0]}")
        source = x if memory is None else memory
        total = before + source.shape[1]
        length = total if length is None else length
        if positions is None:
            positions = torch.arange(before, before + x.shape[1], device=x.device)
        self._check_positions("positions", positions, x, x.shape[1])
        if memory_positions is not None:
            self._check_positions("memory_positions", memory_positions, x, total)
        if memory is not None and self.causal and seen.get("query_start") is None:
            self.refuse("memory", "given to a causal layer", "causal=False, or query_start")
        source_positions = positions if memory is None else memory_positions
        keys = self.keys(source, source_positions, length)
        if past is not None:
            keys = {name: torch.cat((past[name], part), 1) for name, part in self._fitting(past, keys)}
            seen["window"] = self.cached_window
        key_positions = memory_positions if memory is not None or past is not None else positions
        out = self.finish(self.attend(self.queries(x, positions, length), keys, positions, key_positions, **seen), x)
        return (out, keys) if return_keys else out

    def attend(self, queries, keys, positions=None, key_positions=None, **seen):
        """out [B,T,Ho,E] of what `queries` and `keys` gave; positions only matter to a position bias."""
        for name, given, needed in (("queries", queries, "q"), ("keys", keys, "kv")):
            if not isinstance(given, dict) or not set(needed) <= set(given):
                self.refuse(name, shown(given), f"what {name}() gave")
        total = keys["k"].shape[1]
        if key_positions is None:
            key_positions = torch.arange(total, device=keys["k"].device)
        if positions is None:
            positions = key_positions[..., total - queries["q"].shape[1] :]
        own = self.attention(positions, key_positions)
        seen = {name: given for name, given in seen.items() if given is not None}
        if "bias" in seen and "bias" in own:
            own["bias"] = own["bias"] + self._checked_bias(seen.pop("bias"), queries["q"], total)
        return composed_attention(**queries, **keys, **{**own, **seen})

    # ---- checks

    def _checked_bias(self, bias, q, total):
        """A bias that adds to the position bias: the shapes that composed_attention takes."""
        check_tensor(type(self).__name__, "bias", bias)
        batch, heads = (1, q.shape[0]), (1, self.softmax_heads)
        fits = bias.dim() == 4 and bias.shape[0] in batch and bias.shape[1] in heads
        if not fits or bias.shape[2:] != (q.shape[1], total):
            want = f"[1 or {q.shape[0]}, 1 or {self.softmax_heads}, {q.shape[1]}, {total}]"
            self.refuse("bias", f"of shape {list(bias.shape)}", want)
        return bias

    def _check_states(self, name, x, width):
        """Hidden states [B,T,width] that the projections take: their dtype, or any under autocast and where they are
        quantized, on their device."""
        check_tensor(type(self).__name__, name, x)
        if x.dim() != 3 or x.shape[-1] != width:
            self.refuse(name, f"of shape {list(x.shape)}", f"[B, T, {width}]")
        own, autocast = self._dtype(), x.device.type in ("cpu", "cuda") and torch.is_autocast_enabled(x.device.type)
        if x.dtype not in (_DTYPES if autocast or own is None else (own,)):
            self.refuse(name, f"of dtype {x.dtype}", "a floating dtype" if own is None else f"the parameters' {own}")
        device = x.device if own is None else self.q_proj.weight.device
        if x.device != device and device.type != "meta":  # accelerate fetches what is on a disk when the projection runs
            self.refuse(name, f"on {x.device}", f"the parameters' device {device}")

    def _check_positions(self, name, positions, x, count):
        check_tensor(type(self).__name__, name, positions)
        if positions.dtype not in (torch.int64, torch.int32):
            self.refuse(name, f"of dtype {positions.dtype}", "int64 or int32")
        shape = positions.shape
        if len(shape) not in (1, 2) or shape[-1] != count or (len(shape) == 2 and shape[0] not in (1, x.shape[0])):
            self.refuse(name, f"of shape {list(shape)}", f"[{count}] or [{x.shape[0]}, {count}]")
        if positions.device != x.device:
            self.refuse(name, f"on {positions.device}", f"{x.device}")

    def _check_out(self, out, heads=None):
        """What `attend` gave, of output_heads unless others are told."""
        heads = heads or self.output_heads
        check_tensor(type(self).__name__, "out", out)
        if out.dim() != 4 or out.shape[2:] != (heads, self.value_dim):
            self.refuse("out", f"of shape {list(out.shape)}", f"[B, T, {heads}, {self.value_dim}]")

    def _length_of(self, past):
        """The number of keys that `past` holds."""
        if not isinstance(past, dict) or not isinstance(past.get("k"), torch.Tensor) or past["k"].dim() != 4:
            self.refuse("past", shown(past), "the keys that return_keys gave")
        return past["k"].shape[1]

    def _fitting(self, past, keys):
        """The items of keys, when past has the same tensors with other numbers of keys."""
        if set(past) != set(keys):
            self.refuse("past", f"of {', '.join(sorted(map(str, past)))}", ", ".join(sorted(keys)))
        before = past["k"].shape[1]
        for name, part in keys.items():
            check_tensor(type(self).__name__, f"past[{name!r}]", past[name])
            shape = [part.shape[0], before, *part.shape[2:]]
            if list(past[name].shape) != shape:
                self.refuse(f"past[{name!r}]", f"of shape {list(past[name].shape)}", shape)
            if past[name].dtype != part.dtype or past[name].device != part.device:
                here = f"{past[name].dtype} on {past[name].device}"
                self.refuse(f"past[{name!r}]", here, f"{part.dtype} on {part.device}")
        return keys.items()

    # ---- parts

    def placed_keys(self, k, positions, length):
        """Keys [B,S,Gk,D] with what their positions make of them."""
        return self.rotary(k, positions, length)

    def placed_queries(self, q, positions, length):
        """Queries [B,T,Hs,D], likewise."""
        return self.rotary(q, positions, length)

    def extra_repr(self):
        """What print() shows beside the projections: the sizes, and options that are not at their defaults."""
        said = {"hidden_size": self.hidden_size, "layer": self.layer, "causal": self.causal}
        if self.memory_size != self.hidden_size:
            said["memory_size"] = self.memory_size
        for option in options.table(self.mechanism):
            if self.options[option.name] != option.default:
                said[option.name] = self.options[option.name]
        return ", ".join(f"{name}={value!r}" for name, value in said.items())

    def refuse(self, name, value, want):
        raise ValueError(f"{type(self).__name__}: {name} is {value}, want {want}")

    def _dtype(self):
        """That of the projections, or None where they are quantized."""
        weight = self.q_proj.weight  # a method in torch's own quantized layers
        return weight.dtype if isinstance(weight, torch.Tensor) and weight.is_floating_point() else None

    def head_dim(self):
        heads, given = self.options["num_heads"], self.options["head_dim"]
        if not given and self.hidden_size % heads:
            self.refuse("num_heads", heads, f"a divisor of hidden_size {self.hidden_size}, or an explicit head_dim")
        return given or self.hidden_size // heads

    def num_kv_heads(self):
        heads, given = self.options["num_heads"], self.options["num_kv_heads"]
        if given and heads % given:
            self.refuse("num_kv_heads", given, f"a divisor of num_heads {heads}")
        return given or heads

    def parameter(self, name, wanted, *shape):
        """Registers a parameter of zeros, or None."""
        self.register_parameter(name, nn.Parameter(torch.zeros(shape, **self._factory)) if wanted else None)

    def query_heads_of(self, x):
        q = self.q_proj(x).unflatten(-1, (self.query_heads, self.key_dim))
        return self.q_norm(q) if self.options["qk_norm"] else q

    def key_heads_of(self, memory):
        k = getattr(self, self.key_name)(memory).unflatten(-1, (self.key_heads, self.key_dim))
        return self.k_norm(k) if self.options["qk_norm"] else k

    def value_heads_of(self, memory):
        return self.v_proj(memory).unflatten(-1, (self.value_heads, self.value_dim))

    def _add_projections(self):
        bias, o = self.options["bias"], self.options

        def linear(width, out):
            return nn.Linear(width, out, bias=bias, **self._factory)

        self.q_proj = linear(self.hidden_size, self.query_heads * self.key_dim)
        setattr(self, self.key_name, linear(self.memory_size, self.key_heads * self.key_dim))
        self.v_proj = linear(self.memory_size, self.value_heads * self.value_dim)
        self.o_proj = linear(self.output_heads * self.value_dim, self.hidden_size)
        if o["qk_norm"]:
            self.q_norm = layers.RMSNorm(self.key_dim, o["qk_norm_eps"], **self._factory)
            self.k_norm = layers.RMSNorm(self.key_dim, o["qk_norm_eps"], **self._factory)
        if o["output_gate"]:
            self.gate_proj = nn.Linear(self.hidden_size, self.output_heads, bias=False, **self._factory)
        self.parameter("relative_bias", o["position_bias"] == "relative", layers.BUCKETS, self.softmax_heads)

    def _placed(self, name, x, positions, length):
        """Positions and length of checked hidden states `x`, the argument `name`."""
        self._check_states(name, x, self.hidden_size if name == "x" else self.memory_size)
        count = x.shape[1]
        if positions is None:
            positions = torch.arange(count, device=x.device)
        self._check_positions("positions", positions, x, count)
        length = count if length is None else length
        if torch.jit.is_tracing():  # in which the sizes of tensors are tensors
            length = int(length)
        if not isinstance(length, (int, torch.SymInt)) or isinstance(length, bool) or length < 0:
            self.refuse("length", repr(length), "a number of tokens")
        return positions, length

    def _position_bias(self, positions, key_positions):
        def row(at):
            return at.unsqueeze(0) if at.dim() == 1 else at

        distance = row(positions).unsqueeze(2) - row(key_positions).unsqueeze(1)
        if self.options["position_bias"] == "relative":
            return self.relative_bias[layers.bucket(distance, self.causal)].permute(0, 3, 1, 2)
        slopes = layers.alibi_slopes(self.softmax_heads)
        slopes = torch.tensor(slopes, dtype=torch.float64, device=distance.device).view(1, -1, 1, 1)
        return (slopes * -distance.abs().unsqueeze(1).double()).to(self._dtype() or torch.float32)
