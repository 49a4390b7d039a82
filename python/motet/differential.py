"""Differential attention, V1 and V2."""
import math

import torch
from torch import nn

from motet import layers
from motet.dcmha import Composer
from motet.mechanism import Mechanism


class DifferentialAttention(Mechanism):
    """The difference of two softmax maps. num_heads counts the heads H of the plain Transformer in both versions; the
    versions may be written 1 and 2.

        v1  out_i = norm((A_2i - lambda A_2i+1) V_i) (1 - lambda_init)      H/2 pairs, V of double width
            lambda = exp(lambda_q1.lambda_k1) - exp(lambda_q2.lambda_k2) + lambda_init
        v2  out_i = (A_2i - sigmoid(x . w_i) A_2i+1) V                      2H score heads over the stored heads

    compose=True (v1): heads are composed before the subtraction by low-rank maps from queries and keys, as in DCMHA
    without gates, and by a static map compose_static [H,H/2] beside it. lambda_form (v2): "raw" is x . w_i, "none" is 1;
    pairs="across" (v2): out_i = A_i V_g - lambda A_i+H V_g', whose stored heads g and g' differ.

    head_norm="plain" is the form of DiffLlama, whose heads lie in another order: its folders need that order undone.
    Source: Ye et al., ICLR 2025, arXiv:2410.05258; the authors' V2 note of 2026.
    """

    mechanism = "differential"

    def sizes(self):
        super().sizes()
        heads, kv = self.options["num_heads"], self.num_kv_heads()
        self.second = self.options["version"] == "v2"
        if self.second:
            self.query_heads = self.softmax_heads = 2 * heads
            if self.options["pairs"] == "across" and kv % 2:
                self.refuse("num_kv_heads", kv, "an even number with pairs 'across'")
            return
        for name, count in (("num_heads", heads), ("num_kv_heads", kv)):
            if count % 2:
                self.refuse(name, count, "an even number: V1 pairs heads")
        self.value_heads, self.output_heads, self.value_dim = kv // 2, heads // 2, 2 * self.key_dim
        start = self.options["lambda_start"] == "constant"
        self.lambda_init = self.options["lambda_init"] if start else 0.8 - 0.6 * math.exp(-0.3 * self.layer)
        if self.options["compose"] and self.memory_size != self.hidden_size:
            self.refuse("memory_size", self.memory_size, f"{self.hidden_size}: queries and memory share one generator")

    def add_extras(self):
        self.composer = None
        if self.second:
            if self.options["lambda_form"] != "none":
                self.lambda_proj = nn.Linear(self.hidden_size, self.output_heads, bias=False, **self._factory)
            return
        for name in ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"):
            self.parameter(name, True, self.key_dim)
        self.subln = layers.head_norm(self)
        if self.options["compose"]:
            heads, rank = self.softmax_heads, self.options["compose_rank"]
            self.composer = Composer(self, heads, rank, ("post_query", "post_key"))
            self.parameter("compose_static", True, heads, self.output_heads)

    def initialize_extras(self, generator=None):
        super().initialize_extras(generator)
        if self.second:
            return
        for vector in (self.lambda_q1, self.lambda_k1, self.lambda_q2, self.lambda_k2):
            vector.normal_(0, self.options["lambda_std"], generator=generator)
        if self.composer:
            self.composer.initialize(self, generator)
            self.compose_static.normal_(0, 0.1 / math.sqrt(self.softmax_heads), generator=generator)

    def lambda_(self):
        """V1's lambda, a number in at least float32."""

        def exponent(q, k):
            wide = layers.wide_dtype(q)
            return (q.to(wide) * k.to(wide)).sum().exp()

        return exponent(self.lambda_q1, self.lambda_k1) - exponent(self.lambda_q2, self.lambda_k2) + self.lambda_init

    def keys(self, memory, positions=None, length=None):
        return {**super().keys(memory, positions, length), **self._composed(memory, "key")}

    def queries(self, x, positions=None, length=None):
        made = super().queries(x, positions, length)
        if self.options["pairs"] == "within" and not self.composer:
            made["pair_lambda"] = self._lambda_of(x)
        return {**made, **self._composed(x, "query")}

    def _lambda_of(self, x):
        """V1, and V2 without lambda: a number; V2: [B,T,Ho]."""
        if not self.second:
            return self.lambda_()
        if self.options["lambda_form"] == "none":
            return torch.ones((), dtype=x.dtype, device=x.device)
        raw = self.lambda_proj(x)
        return raw if self.options["lambda_form"] == "raw" else torch.sigmoid(raw)

    def _subtraction(self):
        """[H,H/2]: 1 and -lambda for each pair."""
        factor = self.lambda_()
        pair = torch.stack((torch.ones_like(factor), -factor)).unsqueeze(1)
        return torch.kron(torch.eye(self.output_heads, dtype=pair.dtype, device=pair.device), pair)

    def _composed(self, x, side):
        """The low-rank maps of one side: rows up, of 2h heads, become those of h differences."""
        if not self.composer:
            return {}
        made, name, factor = self.composer.parts(self, x, side), f"post_{side}_up", self.lambda_()
        up = made[name].to(factor.dtype)
        return {**made, name: (up[..., 0::2] - factor * up[..., 1::2]).to(made[name].dtype)}

    def attention(self, positions, key_positions):
        made = super().attention(positions, key_positions)
        if not self.second:  # heads 2i and 2i+1 read different stored keys
            repeat = self.output_heads // self.value_heads
            made["key_of"] = [2 * (i // repeat) + b for i in range(self.output_heads) for b in (0, 1)]
        if self.composer:
            made["post_weight"] = self._subtraction() + self.compose_static
        return made

    def finish(self, out, x=None):
        across = self.options["pairs"] == "across"
        self._check_out(out, (1 + across) * self.output_heads)
        if across:
            self._check_states("x", x, self.hidden_size)
            first, second = out.chunk(2, 2)
            factor = self._lambda_of(x)
            out = first - (factor.unsqueeze(-1) if factor.dim() else factor) * second
        if not self.second and self.subln is not None:
            out = self.subln(out) * (1 - self.lambda_init)
        return super().finish(out, x)
