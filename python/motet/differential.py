"""Differential attention, V1 and V2."""
import math

import torch
from torch import nn

from motet import layers
from motet.mechanism import Mechanism


class DifferentialAttention(Mechanism):
    """The difference of two softmax maps. num_heads counts the heads H of the plain Transformer in both versions; the
    versions may be written 1 and 2.

        v1  out_i = norm((A_2i - lambda A_2i+1) V_i) (1 - lambda_init)      H/2 pairs, V of double width
            lambda = exp(lambda_q1.lambda_k1) - exp(lambda_q2.lambda_k2) + lambda_init
        v2  out_i = (A_2i - sigmoid(x . w_i) A_2i+1) V                      2H score heads over the stored heads

    head_norm="plain" is the form of DiffLlama, whose heads lie in another order: its folders need that order undone.
    Source: Ye et al., ICLR 2025, arXiv:2410.05258; the authors' V2 note of 2026.
    """

    mechanism = "differential"

    def resolved(self, given):
        version = given.get("version")
        if version in (1, 2) and not isinstance(version, bool):
            given = {**given, "version": f"v{version}"}
        return super().resolved(given)

    def sizes(self):
        super().sizes()
        heads, kv = self.options["num_heads"], self.num_kv_heads()
        self.second = self.options["version"] == "v2"
        if self.second:
            self.query_heads = self.softmax_heads = 2 * heads
            return
        for name, count in (("num_heads", heads), ("num_kv_heads", kv)):
            if count % 2:
                self.refuse(name, count, "an even number: V1 pairs heads")
        self.value_heads, self.output_heads, self.value_dim = kv // 2, heads // 2, 2 * self.key_dim
        start = self.options["lambda_start"] == "constant"
        self.lambda_init = self.options["lambda_init"] if start else 0.8 - 0.6 * math.exp(-0.3 * self.layer)

    def add_extras(self):
        if self.second:
            self.lambda_proj = nn.Linear(self.hidden_size, self.output_heads, bias=False, **self._factory)
            return
        for name in ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"):
            self.parameter(name, True, self.key_dim)
        norm = self.options["head_norm"]
        self.subln = None
        if norm != "none":
            affine = norm == "affine"
            self.subln = layers.RMSNorm(self.value_dim, self.options["head_norm_eps"], affine, **self._factory)

    def initialize_extras(self, generator=None):
        super().initialize_extras(generator)
        if self.second:
            return
        for vector in (self.lambda_q1, self.lambda_k1, self.lambda_q2, self.lambda_k2):
            vector.normal_(0, self.options["lambda_std"], generator=generator)

    def lambda_(self):
        """V1's lambda, a number in at least float32."""

        def exponent(q, k):
            wide = layers.wide_dtype(q)
            return (q.to(wide) * k.to(wide)).sum().exp()

        return exponent(self.lambda_q1, self.lambda_k1) - exponent(self.lambda_q2, self.lambda_k2) + self.lambda_init

    def queries(self, x, positions=None, length=None):
        made = super().queries(x, positions, length)
        return {**made, "pair_lambda": torch.sigmoid(self.lambda_proj(x)) if self.second else self.lambda_()}

    def attention(self, positions, key_positions):
        made = super().attention(positions, key_positions)
        if not self.second:  # heads 2i and 2i+1 read different stored keys
            repeat = self.output_heads // self.value_heads
            made["key_of"] = [2 * (i // repeat) + b for i in range(self.output_heads) for b in (0, 1)]
        return made

    def finish(self, out, x=None):
        self._check_out(out)
        if not self.second and self.subln is not None:
            out = self.subln(out) * (1 - self.lambda_init)
        return super().finish(out, x)
