"""Talking-heads attention."""
import math

import torch

from motet.coca import Collinear
from motet.mechanism import Mechanism


_PLACES = {"logits": "pre", "weights": "post"}


class TalkingHeadsAttention(Mechanism):
    """Linear maps over heads before and after the softmax, static and dynamic, with three independent head counts.

        J[k] = q_k . k_k / sqrt(d_k)                          h_k score heads
        L[a] = sum_k J[k] (P_l[k,a] + XL[t,k,a] + ML[s,k,a])  h softmax heads
        U[j] = sum_a W[a] (P_w[a,j] + XW[t,a,j] + MW[s,a,j])  h_v value heads,  W = softmax(L)

    P_l, P_w are `logits_mix` [h_k,h] and `weights_mix` [h,h_v] (first index: input head; a Linear over heads stores the
    transpose); XL, ML, XW, MW come from the hidden state by `query_logits_mix`, `key_logits_mix` [C,h_k,h],
    `query_weights_mix`, `key_weights_mix` [C,h,h_v]. Any subset of the six terms is a model; a mix without terms passes
    its input on and needs equal counts. With `collinear` queries and keys are those of CocaAttention in that form, and
    `t_proj` takes the place of k_proj. Source: Shazeer et al., arXiv:2003.02436.
    """

    mechanism = "talking_heads"

    def sizes(self):
        o = self.options
        if o["num_kv_heads"] not in (0, o["num_heads"]):
            self.refuse("num_kv_heads", o["num_kv_heads"], "0; stored heads are score_heads and value_heads")
        heads = o["num_heads"]
        score, soft, value = (o[name] or heads for name in ("score_heads", "softmax_heads", "value_heads"))
        self.query_heads = self.key_heads = score
        self.softmax_heads = soft
        self.value_heads = self.output_heads = value
        self.key_dim = o["key_dim"] or self.head_dim()
        self.value_dim = o["value_dim"] or self.head_dim()
        self.collinear = None
        if o["collinear"] != "none":
            self.collinear, self.key_name = Collinear(self, o["collinear"]), "t_proj"
        self.terms = {place: self._terms(place) for place in _PLACES}
        if not self.terms["logits"] and score != soft:
            self.refuse("softmax_heads", soft, f"score_heads {score} when the logits are not mixed")
        if not self.terms["weights"] and soft != value:
            self.refuse("value_heads", value, f"softmax_heads {soft} when the weights are not mixed")
        if o["residual"] and score != soft:
            self.refuse("residual", True, f"False: score_heads {score} and softmax_heads {soft} differ")

    def add_extras(self):
        shapes = {
            "logits": (self.query_heads, self.softmax_heads),
            "weights": (self.softmax_heads, self.output_heads),
        }
        for place, shape in shapes.items():
            self.parameter(f"{place}_mix", "static" in self.terms[place], *shape)
        for place, shape in shapes.items():
            for side, width in (("query", self.hidden_size), ("key", self.memory_size)):
                self.parameter(f"{side}_{place}_mix", side in self.terms[place], width, *shape)

    def initialize_extras(self, generator=None):
        super().initialize_extras(generator)
        for mix in (self.logits_mix, self.weights_mix):
            if mix is None:
                continue
            if self.options["start"] == "identity" and mix.shape[0] == mix.shape[1]:
                mix.copy_(torch.eye(mix.shape[0], dtype=mix.dtype, device=mix.device))
            else:
                mix.normal_(0, 1 / math.sqrt(mix.shape[0]), generator=generator)
        for map in (self.query_logits_mix, self.key_logits_mix, self.query_weights_mix, self.key_weights_mix):
            if map is not None:
                deviation = self.options["dynamic_std"] / math.sqrt(map.shape[0] * map.shape[1])
                map.normal_(0, deviation, generator=generator)

    def keys(self, memory, positions=None, length=None):
        return {**super().keys(memory, positions, length), **self._full(memory, "key")}

    def queries(self, x, positions=None, length=None):
        return {**super().queries(x, positions, length), **self._full(x, "query")}

    def placed_keys(self, k, positions, length):
        if not self.collinear:
            return super().placed_keys(k, positions, length)
        return self.collinear.key(k, self.rotary, positions, length)

    def placed_queries(self, q, positions, length):
        if not self.collinear:
            return super().placed_queries(q, positions, length)
        return self.collinear.query(q, self.rotary, positions, length)

    def attention(self, positions, key_positions):
        made = super().attention(positions, key_positions)
        made["pre_identity"] = self.options["residual"]
        if self.logits_mix is not None:
            made["pre_weight"] = self.logits_mix
        if self.weights_mix is not None:
            made["post_weight"] = self.weights_mix
        if self.options["qk_scale"] == "none":
            made["scale"] = 1.0
        return made

    def _terms(self, place):
        """What is learned of a mix: a set of static, query, key. None: it passes its input on."""
        o, option = self.options, f"dynamic_{place}"
        sides = o["dynamic"] if o[option] == "same" else o[option]
        if o["mixes"] not in ("both", _PLACES[place]):
            if o[option] not in ("same", "none"):
                self.refuse(option, repr(o[option]), f"'none' while mixes is {o['mixes']!r}")
            return set()
        chosen = {"none": set(), "both": {"query", "key"}}.get(sides, {sides})
        return chosen | {"static"} if o["static"] else chosen

    def _full(self, x, side):
        made = {}
        for name, place in _PLACES.items():
            map = getattr(self, f"{side}_{name}_mix")
            if map is not None:
                made[f"{place}_{side}_full"] = torch.matmul(x, map.flatten(1)).unflatten(-1, tuple(map.shape[1:]))
        return made
