"""Collinear constrained attention."""
import torch

from motet.mechanism import Mechanism


class Collinear:
    """The feature maps of queries and keys by which their angle under rotary embedding starts at 0; `form` as in
    CocaAttention."""

    def __init__(self, module, form):
        o, self.form = module.options, form
        if module.key_dim % 2:
            module.refuse("head_dim", module.key_dim, "an even width: the halves of a head are tied")
        if o["rope_pairing"] != "half":
            module.refuse("rope_pairing", repr(o["rope_pairing"]), "'half': dimension j is tied to j + width/2")
        if form != "slack" and o["rope_fraction"] < 1:
            module.refuse("rope_fraction", o["rope_fraction"], f"1: the {form} form needs a whole rotated head")

    def key(self, k, rotary, positions, length):
        first, second = k.chunk(2, -1)
        h = torch.relu((first + second) * 0.5)
        tied = torch.cat((h, torch.zeros_like(h) if self.form == "exact" else h), -1)
        return rotary(tied, positions, length)

    def query(self, q, rotary, positions, length):
        first, second = q.chunk(2, -1)
        if self.form == "exact":
            norm = first * first + second * second
            return rotary(torch.cat((norm, torch.zeros_like(norm)), -1), positions, length)
        if self.form == "strict":
            mean = (first + second) * 0.5
            q = torch.cat((mean, mean), -1)
        return q * rotary(q, positions, length)


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
        self.collinear = Collinear(self, self.options["form"])

    def placed_keys(self, k, positions, length):
        return self.collinear.key(k, self.rotary, positions, length)

    def placed_queries(self, q, positions, length):
        return self.collinear.query(q, self.rotary, positions, length)
