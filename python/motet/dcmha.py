"""Dynamically composable multi-head attention."""
import math

import torch

from motet import layers
from motet.mechanism import Mechanism

_BRANCHES = ("pre_query", "pre_key", "post_query", "post_key")  # of the generator, in the order of the stored axis
_DOWN_NORM_EPS = 1e-6  # part of the function: the norms start near it


class Composer:
    """DCMHA's generator of low-rank maps over heads, and of gates. Its parameters belong to the module that is given to
    each call, a replica of the first one or not: compose_hidden [C,G,P,K], compose_up [G,P,K,2R,N/G] and compose_gate
    [C,P,N] for the P `branches`, K = 2 R N/G."""

    def __init__(self, module, heads, rank, branches, *, groups=1, low_rank=True, gates=False, gelu="erf"):
        self.rank, self.groups, self.branches = rank, groups, branches
        self.approximate = "tanh" if gelu == "tanh" else "none"
        self.own = heads // groups
        hidden, width, count = 2 * rank * self.own, module.hidden_size, len(branches)
        module.parameter("compose_hidden", low_rank, width, groups, count, hidden)
        module.parameter("compose_up", low_rank, groups, count, hidden, 2 * rank, self.own)
        module.parameter("compose_gate", gates, width, count, heads)

    def initialize(self, module, generator=None):
        rank, own, width = self.rank, self.own, module.hidden_size
        hidden = 2 * rank * own
        deviations = {
            "compose_hidden": math.sqrt(2 / (width + hidden)),
            "compose_up": math.sqrt(1 / hidden) * 2 / (own + rank) * 0.01,
            "compose_gate": math.sqrt(2 / (width + own)) * 0.005,
        }
        for name, deviation in deviations.items():
            if getattr(module, name) is not None:
                getattr(module, name).normal_(0, deviation, generator=generator)

    def parts(self, module, x, side):
        """Arguments of composed_attention: what the branches of one side make of x [B,T,C]."""
        made = {}
        for name in self.branches:
            if name.endswith(side):
                made.update(self._branch(module, x, name))
        return made

    def _branch(self, module, x, name):
        branch, rank, made = self.branches.index(name), self.rank, {}
        if module.compose_hidden is not None:
            hidden = torch.matmul(x, module.compose_hidden.select(2, branch).flatten(1))
            hidden = torch.nn.functional.gelu(hidden, approximate=self.approximate)
            hidden = hidden.unflatten(-1, (self.groups, -1))
            rows = torch.einsum("btgk,gkrn->btgrn", hidden, module.compose_up.select(1, branch))
            made[f"{name}_down"] = self._spread(layers.rms_norm(rows[:, :, :, :rank], _DOWN_NORM_EPS))
            made[f"{name}_up"] = self._spread(rows[:, :, :, rank:])
        if module.compose_gate is not None:
            made[f"{name}_gate"] = torch.tanh(torch.matmul(x, module.compose_gate.select(1, branch)))
        return made

    def _spread(self, rows):
        """Groups become blocks of rank: row (g, r) is zero outside the heads of group g."""
        groups = self.groups
        if groups == 1:
            return rows.squeeze(2)
        own_group = torch.eye(groups, dtype=rows.dtype, device=rows.device).view(1, 1, groups, 1, groups, 1)
        return (rows.unsqueeze(4) * own_group).flatten(4).flatten(2, 3)


class DCMHA(Mechanism):
    """Dynamically composable multi-head attention (DCFormer): heads are recombined per query and key, before and
    after the softmax, by low-rank maps and gates made from the layer's normed input.

        out[m] = A[m] (1 + qgate[t,m] + kgate[s,m]) + sum_n A[n] static[n,m]
               + sum_r (sum_n A[n] qdown[t,r,n]) qup[t,r,m] + sum_r (sum_n A[n] kdown[s,r,n]) kup[s,r,m]
        rows = gelu(x . compose_hidden) . compose_up;  down: RMS norm over heads of the first R rows, up: the last R
        gate = tanh(x . compose_gate)

    With G groups of N/G heads, K = 2 R N/G and those P branches of pre query, pre key, post query and post key that
    `sides` and `where` leave on: compose_hidden [C,G,P,K], compose_up [G,P,K,2R,N/G], compose_gate [C,P,N],
    compose_static_pre and compose_static_post [G,N/G,N/G].
    Queries and memory share one generator, so memory has width hidden_size.
    Source: Xiao et al., ICML 2024, arXiv:2405.08553.
    """

    mechanism = "dcmha"

    def sizes(self):
        super().sizes()
        heads, groups = self.options["num_heads"], self.options["groups"]
        if heads % groups:
            self.refuse("groups", groups, f"a divisor of num_heads {heads}")
        if self.memory_size != self.hidden_size:
            self.refuse("memory_size", self.memory_size, f"{self.hidden_size}: queries and memory share one generator")
        self.own = heads // groups
        self.branches = [name for name in _BRANCHES if self._is_on(*name.split("_"))]

    def add_extras(self):
        o = self.options
        given = {name: o[name] for name in ("groups", "low_rank", "gates", "gelu")}
        self.composer = Composer(self, o["num_heads"], o["rank"], self.branches, **given)
        groups, own = o["groups"], self.own
        self.parameter("compose_static_pre", o["static"] and o["where"] != "post", groups, own, own)
        self.parameter("compose_static_post", o["static"] and o["where"] != "pre", groups, own, own)

    def initialize_extras(self, generator=None):
        super().initialize_extras(generator)
        self.composer.initialize(self, generator)
        for static in (self.compose_static_pre, self.compose_static_post):
            if static is not None:
                static.normal_(0, 0.1 / math.sqrt(self.own), generator=generator)

    def keys(self, memory, positions=None, length=None):
        return {**super().keys(memory, positions, length), **self.composer.parts(self, memory, "key")}

    def queries(self, x, positions=None, length=None):
        return {**super().queries(x, positions, length), **self.composer.parts(self, x, "query")}

    def attention(self, positions, key_positions):
        made = super().attention(positions, key_positions)
        made["pre_identity"] = made["post_identity"] = True
        for place in ("pre", "post"):
            static = getattr(self, f"compose_static_{place}")
            if static is not None:
                made[f"{place}_weight"] = torch.block_diag(*static.unbind(0))
        return made

    def _is_on(self, place, side):
        return self.options["sides"] in ("both", side) and self.options["where"] in ("both", place)
