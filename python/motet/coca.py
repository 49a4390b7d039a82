"""Collinear constrained attention."""
import torch

from motet.mechanism import Mechanism


class CocaAttention(Mechanism):
    """Collinear constrained attention: the key is built so that its angle to the query under rotary embedding starts
    at 0.

    With h = relu(mean of both halves of T = x W_T) and the halves (x, y) of q, ordinary attention over
        exact   q' = rope([x^2 + y^2 ; 0]),  k' = rope([h ; 0])       the paper's score, shift-invariant
        slack   q' = q * rope(q),            k' = rope([h ; h])       the released code; positions must start at 0
        strict  as slack, q tied to the mean of its halves

    `t_proj` takes the place of k_proj. Source: Zhu et al., ACL 2024, arXiv:2309.08646.
    """

    mechanism = "coca"
    key_name = "t_proj"

    def sizes(self):
        super().sizes()
        o = self.options
        if self.key_dim % 2:
            self.refuse("head_dim", self.key_dim, "an even width: the halves of a head are tied")
        if o["rope_pairing"] != "half":
            self.refuse("rope_pairing", repr(o["rope_pairing"]), "'half': dimension j is tied to j + width/2")
        if o["form"] != "slack" and o["rope_fraction"] < 1:
            self.refuse("rope_fraction", o["rope_fraction"], f"1: the {o['form']} form needs a whole rotated head")

    def keys(self, memory, positions=None, length=None):
        positions, length = self._placed("memory", memory, positions, length)
        first, second = self.key_heads_of(memory).chunk(2, -1)
        h = torch.relu((first + second) * 0.5)
        tied = torch.cat((h, torch.zeros_like(h) if self.options["form"] == "exact" else h), -1)
        return {"k": self.rotary(tied, positions, length), "v": self.value_heads_of(memory)}

    def queries(self, x, positions=None, length=None):
        positions, length = self._placed("x", x, positions, length)
        q = self.query_heads_of(x)
        first, second = q.chunk(2, -1)
        if self.options["form"] == "exact":
            norm = first * first + second * second
            return {"q": self.rotary(torch.cat((norm, torch.zeros_like(norm)), -1), positions, length)}
        if self.options["form"] == "strict":
            mean = (first + second) * 0.5
            q = torch.cat((mean, mean), -1)
        return {"q": q * self.rotary(q, positions, length)}
