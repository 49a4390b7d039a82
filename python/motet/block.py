"""The engine's models around the mechanisms, in plain PyTorch: norms, feed-forward, embedding, a layer, a masked head.

Each takes a `config`: the config.json of a model folder as a dictionary, or an object with those keys as attributes
(motet.huggingface.MotetConfig). Parameters have the engine's names.
"""
import torch
from torch import nn

from motet import layers
from motet.folder import attention_layer, settings_of

_ACTIVATIONS = {
    "silu": ("silu", "swish"),
    "gelu": ("gelu", "gelu_python"),
    "gelu_tanh": ("gelu_new", "gelu_fast", "gelu_pytorch_tanh"),
}
ACTIVATIONS = {theirs: ours for ours, names in _ACTIVATIONS.items() for theirs in names}  # of hidden_act
_MODULES = {"silu": nn.SiLU, "gelu": nn.GELU, "gelu_tanh": lambda: nn.GELU(approximate="tanh")}


def is_gated(c):
    """LLaMA's layer: RMS norms and a gated feed-forward."""
    return c["block"] == "sequential"


def norm(c, width):
    """The norm of a model's layers over the last axis."""
    return (layers.RMSNorm if is_gated(c) else nn.LayerNorm)(width, eps=c["rms_norm_eps"])


class FeedForward(nn.Module):
    """down(activation(gate x) * up x) without biases, or down(activation(up x)) with them."""

    def __init__(self, c):
        super().__init__()
        gated, width, inner = is_gated(c), c["hidden_size"], c["intermediate_size"]
        if gated:
            self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=not gated)
        self.down_proj = nn.Linear(inner, width, bias=not gated)
        self.activation = _MODULES[ACTIVATIONS[c["hidden_act"]]]()
        self.gated = gated

    def forward(self, x):
        if self.gated:
            return self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))
        return self.down_proj(self.activation(self.up_proj(x)))


class Block(nn.Module):
    """Layer number `layer` of a model: x [B,T,C] to [B,T,C]."""

    def __init__(self, config, layer):
        super().__init__()
        c = settings_of(config)
        self.parallel, self.post = c["block"] == "parallel", c["norm_place"] == "post"
        self.self_attn = attention_layer(c, layer)
        if not self.post:
            self.input_layernorm = norm(c, c["hidden_size"])
        self.post_attention_layernorm = norm(c, c["hidden_size"])
        if self.post:
            self.post_feedforward_layernorm = norm(c, c["hidden_size"])
        self.mlp = FeedForward(c)

    def forward(self, x, positions=None, *, past=None, return_keys=False, **seen):
        """As the forward of a mechanism in self-attention: with return_keys=True also the keys, `past` before them."""
        attended = self.self_attn(
            x if self.post else self.input_layernorm(x), positions, past=past, return_keys=return_keys, **seen
        )
        if not return_keys:
            return self._after(x, attended)
        attended, keys = attended
        return self._after(x, attended), keys

    def _after(self, x, attended):
        if self.parallel:
            return x + attended + self.mlp(self.post_attention_layernorm(x))
        h = x + attended
        if self.post:
            middle = self.post_attention_layernorm(h)
            return self.post_feedforward_layernorm(middle + self.mlp(middle))
        return h + self.mlp(self.post_attention_layernorm(h))


class Embedding:
    """What the first layer reads. Its parameters belong to the module `trunk`, under the engine's names, and each call is
    given that module, or a replica of it."""

    def __init__(self, trunk, config):
        c = settings_of(config)
        width, inner = c["hidden_size"], c["embedding_size"] or c["hidden_size"]
        self.first, self.context = c["first_position"], c["max_position_embeddings"]
        trunk.embed_tokens = nn.Embedding(c["vocab_size"], inner)
        self.learned = c["positions"] == "learned"
        if self.learned:
            trunk.embed_positions = nn.Embedding(self.first + self.context, inner)
        self.types = c["token_types"]
        if self.types:
            trunk.embed_types = nn.Embedding(self.types, inner)
        self.normed = c["embedding_norm"]
        if self.normed:
            trunk.embed_norm = norm(c, inner)
        self.projected = bool(c["embedding_size"])
        if self.projected:
            trunk.embed_projection = nn.Linear(inner, width, bias=self.normed)

    def __call__(self, trunk, x, positions, types=None):
        """x [B,T,E]: rows of embed_tokens; positions [T] or [B,T]; types [B,T], by default all 0. Gives [B,T,C]."""
        if types is not None and not self.types:
            raise ValueError("Embedding: token types were given, want none: the model has no table of them")
        if self.types:
            x = x + trunk.embed_types(torch.zeros_like(positions) if types is None else types)
        if self.learned:
            x = x + trunk.embed_positions(positions + self.first)
        if self.normed:
            x = trunk.embed_norm(x)
        return trunk.embed_projection(x) if self.projected else x


class MaskedHead(nn.Module):
    """BERT's head of hidden tokens around an output matrix [V,E]: norm(activation(dense x)) before it, `bias` [V] behind."""

    def __init__(self, config):
        super().__init__()
        c = settings_of(config)
        width = c["embedding_size"] or c["hidden_size"]
        self.dense = nn.Linear(c["hidden_size"], width)
        self.activation = _MODULES[ACTIVATIONS[c["hidden_act"]]]()
        self.norm = norm(c, width)
        self.register_parameter("bias", nn.Parameter(self.dense.weight.new_zeros(c["vocab_size"])))

    def forward(self, x, output):
        """[...,V] of x [...,C]; output: the function of the matrix."""
        return output(self.norm(self.activation(self.dense(x)))) + self.bias
