"""Attention operators in eager PyTorch: the rivals of `motet bench attention`. Protocol: README.md."""

import sys

from rival import serve

REQUIRED = ("rival", "batch", "length", "heads", "head_dim", "threads", "backward", "seed")
DEFAULTS = {"dtype": "float32", "chunk": 128, "rank": 2, "retain_heap": False}


def causal_softmax(torch, logits, first_query):
    queries, keys = logits.shape[-2:]
    hidden = torch.ones(queries, keys, dtype=torch.bool).triu(first_query + 1)
    return logits.masked_fill(hidden, float("-inf")).softmax(-1)


def compose(x, query, key):
    """One head mix of DCMHA on x [B,H,T,S]: identity, gates and low rank of both sides.

    Products and sums over heads: with 8 heads the fastest of three eager forms (einsum for each rank as the authors,
    one einsum over ranks, this), so that nothing is won against a slow rival.
    """
    def over_keys(part):  # [B,T,H] -> [B,H,T,1]
        return part.transpose(1, 2)[:, :, :, None]

    def over_queries(part):  # [B,S,H] -> [B,H,1,S]
        return part.transpose(1, 2)[:, :, None, :]

    out = x * (1 + over_keys(query[2]) + over_queries(key[2]))
    for (down, up, _), spread in ((query, over_keys), (key, over_queries)):
        for r in range(down.shape[2]):
            out = out + (x * spread(down[:, :, r])).sum(1, keepdim=True) * spread(up[:, :, r])
    return out


def authors_compose(torch, x, query, key):
    """The same mix as the released code writes it: one einsum down and one up for each rank, then the gates."""
    out = x
    for (down, up, _), low, high in ((query, "btn", "btm"), (key, "bsn", "bsm")):
        for r in range(down.shape[2]):
            hidden = torch.einsum(f"bnts,{low}->bts", x, down[:, :, r])
            out = out + torch.einsum(f"bts,{high}->bmts", hidden, up[:, :, r])
    out = out + torch.einsum("bnts,btn->bnts", x, query[2])
    return out + torch.einsum("bnts,bsn->bnts", x, key[2])


def sdpa(torch, request, leaf):
    q, k, v = (leaf(request["heads"], request["head_dim"]) for _ in range(3))
    return lambda: torch.nn.functional.scaled_dot_product_attention(
        *(t.transpose(1, 2) for t in (q, k, v)), is_causal=True).transpose(1, 2)


def eager_mha(torch, request, leaf):
    q, k, v = (leaf(request["heads"], request["head_dim"]) for _ in range(3))

    def forward():
        qt, kt, vt = (t.transpose(1, 2) for t in (q, k, v))
        weights = causal_softmax(torch, qt @ kt.transpose(-1, -2) * request["head_dim"] ** -0.5, 0)
        return (weights @ vt).transpose(1, 2)

    return forward


def eager_talking_heads(torch, request, leaf):
    heads, width = request["heads"], request["head_dim"]
    q, k, v = (leaf(heads, width) for _ in range(3))
    before, after = (leaf.matrix(heads, heads) for _ in range(2))

    def forward():
        qt, kt, vt = (t.transpose(1, 2) for t in (q, k, v))
        logits = torch.einsum("bnts,nm->bmts", qt @ kt.transpose(-1, -2) * width**-0.5, before)
        weights = torch.einsum("bnts,nm->bmts", causal_softmax(torch, logits, 0), after)
        return (weights @ vt).transpose(1, 2)

    return forward


def eager_differential(torch, request, leaf):
    """V1: `heads` score heads, half as many outputs of twice the width, one lambda; the head norm is not part of it."""
    heads, width = request["heads"], request["head_dim"]
    if heads % 2:
        raise ValueError(f"eager_differential: heads is {heads}, want an even number")
    q, k, v = leaf(heads, width), leaf(heads, width), leaf(heads // 2, 2 * width)
    scale = leaf.number(0.5)

    def forward():
        qt, kt, vt = (t.transpose(1, 2) for t in (q, k, v))
        weights = causal_softmax(torch, qt @ kt.transpose(-1, -2) * width**-0.5, 0).unflatten(1, (heads // 2, 2))
        return ((weights[:, :, 0] - scale * weights[:, :, 1]) @ vt).transpose(1, 2)

    return forward


def differential_calls(torch, request, leaf, calls):
    """V1 as the authors run it over plain attention kernels: two maps subtracted after the values.

    2 calls give SDPA values of twice the keys' width (its math path); 4 calls halve the values first (its flash path).
    """
    heads, width = request["heads"], request["head_dim"]
    q, k, v = leaf(heads, width), leaf(heads, width), leaf(heads // 2, 2 * width)
    scale = leaf.number(0.5)
    attend = torch.nn.functional.scaled_dot_product_attention

    def forward():
        maps = [(q[:, :, i::2].transpose(1, 2), k[:, :, i::2].transpose(1, 2)) for i in range(2)]
        values = v.transpose(1, 2)
        pieces = [values] if calls == 2 else values.chunk(2, -1)
        first, second = (torch.cat([attend(qt, kt, piece, is_causal=True) for piece in pieces], -1) for qt, kt in maps)
        return (first - scale * second).transpose(1, 2)

    return forward


def differential_2_calls(torch, request, leaf):
    return differential_calls(torch, request, leaf, 2)


def differential_4_calls(torch, request, leaf):
    return differential_calls(torch, request, leaf, 4)


def dcmha_in_chunks(torch, request, leaf, compose_with, compiled=False):
    """Query chunks, each composed before and after the softmax over the keys it may see, as the authors' code."""
    heads, width, rank, length = request["heads"], request["head_dim"], request["rank"], request["length"]
    q, k, v = (leaf(heads, width) for _ in range(3))
    mixes = [[(leaf(rank, heads), leaf(rank, heads, scale=0.1), leaf(heads, scale=0.1)) for _side in range(2)]
             for _place in range(2)]

    def attend(qt, kt, vt, pre, post, start):
        logits = compose_with(qt @ kt.transpose(-1, -2) * width**-0.5, *pre)
        return compose_with(causal_softmax(torch, logits, start), *post) @ vt

    chunk_function = torch.compile(attend, dynamic=False) if compiled else attend

    def forward():
        qt, kt, vt = (t.transpose(1, 2) for t in (q, k, v))
        outputs = []
        for start in range(0, length, request["chunk"]):
            stop = min(length, start + request["chunk"])
            pre, post = (([part[:, start:stop] for part in query], [part[:, :stop] for part in key])
                         for query, key in mixes)
            outputs.append(chunk_function(qt[:, :, start:stop], kt[:, :, :stop], vt[:, :, :stop], pre, post, start))
        return torch.cat(outputs, 2).transpose(1, 2)

    return forward


def eager_dcmha(torch, request, leaf):
    return dcmha_in_chunks(torch, request, leaf, compose)


def authors_dcmha(torch, request, leaf):
    return dcmha_in_chunks(torch, request, leaf, lambda x, query, key: authors_compose(torch, x, query, key))


def compiled_dcmha(torch, request, leaf):
    """The chunk function through torch.compile, one graph for each chunk."""
    torch._dynamo.config.cache_size_limit = max(64, request["length"] // request["chunk"] + 1)
    return dcmha_in_chunks(torch, request, leaf, compose, compiled=True)


RIVALS = {"sdpa": sdpa, "eager_mha": eager_mha, "eager_talking_heads": eager_talking_heads,
          "eager_differential": eager_differential, "eager_dcmha": eager_dcmha, "authors_dcmha": authors_dcmha,
          "compiled_dcmha": compiled_dcmha, "differential_2_calls": differential_2_calls,
          "differential_4_calls": differential_4_calls}


class Leaves:
    """Makes the operator's inputs, as projections would: [batch, length, ...], contiguous."""

    def __init__(self, torch, request):
        self.torch, self.request, self.made = torch, request, []

    def keep(self, tensor):
        self.made.append(tensor.to(getattr(self.torch, self.request["dtype"])).requires_grad_(self.request["backward"]))
        return self.made[-1]

    def __call__(self, *shape, scale=1.0):
        return self.keep(self.torch.randn(self.request["batch"], self.request["length"], *shape) * scale)

    def matrix(self, rows, columns):
        return self.keep(self.torch.eye(rows, columns) + 0.1 * self.torch.randn(rows, columns))

    def number(self, value):
        return self.keep(self.torch.tensor(value))


def build(request):
    import torch

    if request["rival"] not in RIVALS:
        raise ValueError(f"rival is {request['rival']!r}, want one of {', '.join(RIVALS)}")
    if request["dtype"] not in ("float32", "float64", "bfloat16"):
        raise ValueError(f"dtype is {request['dtype']!r}, want float32, float64 or bfloat16")
    leaves = Leaves(torch, request)
    forward = RIVALS[request["rival"]](torch, request, leaves)
    with torch.no_grad():
        gradient = torch.randn_like(forward())

    def step():
        if not request["backward"]:
            with torch.no_grad():
                forward()
            return {}
        for tensor in leaves.made:
            tensor.grad = None
        forward().backward(gradient)
        return {}

    return {"output": list(gradient.shape)}, step


if __name__ == "__main__":
    sys.exit(serve(REQUIRED, DEFAULTS, build))
