"""Attention operators in PyTorch: the rivals of `motet bench attention`. Protocol: README.md."""

import sys

from rival import device_of, only, serve

REQUIRED = ("rival", "batch", "length", "heads", "head_dim", "threads", "backward", "seed")
DEFAULTS = {"dtype": "float32", "chunk": 128, "rank": 2, "retain_heap": False, "device": "cpu", "calls": 1, "backend": ""}
DTYPES = ("float32", "float64", "bfloat16", "float16")


def causal_softmax(torch, logits, first_query):
    queries, keys = logits.shape[-2:]
    hidden = torch.ones(queries, keys, dtype=torch.bool, device=logits.device).triu(first_query + 1)
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

    2 calls give SDPA values of twice the keys' width, for which its flash backend wants queries and keys as wide, so
    that they are padded with zeros where that is asked for (else it takes its math path); 4 calls halve the values.
    """
    heads, width = request["heads"], request["head_dim"]
    q, k, v = leaf(heads, width), leaf(heads, width), leaf(heads // 2, 2 * width)
    scale = leaf.number(0.5)
    padded = calls == 2 and request["backend"] == "flash"
    attend = torch.nn.functional.scaled_dot_product_attention

    def forward():
        wide = [torch.nn.functional.pad(t, (0, width)) for t in (q, k)] if padded else (q, k)
        maps = [[t[:, :, i::2].transpose(1, 2) for t in wide] for i in range(2)]
        values = v.transpose(1, 2)
        pieces = [values] if calls == 2 else values.chunk(2, -1)
        first, second = (torch.cat([attend(qt, kt, piece, is_causal=True, scale=width**-0.5) for piece in pieces], -1)
                         for qt, kt in maps)
        return (first - scale * second).transpose(1, 2)

    return forward


def differential_2_calls(torch, request, leaf):
    return differential_calls(torch, request, leaf, 2)


def differential_4_calls(torch, request, leaf):
    return differential_calls(torch, request, leaf, 4)


def flex_differential(torch, request, leaf):
    """V1 as two calls of FlexAttention, which has no backward pass on the CPU."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    heads, width, length, device = (request[name] for name in ("heads", "head_dim", "length", "device"))
    on_cpu = torch.device(device).type == "cpu"
    if on_cpu and request["backward"]:
        raise ValueError("flex_differential: FlexAttention has no backward pass on the CPU")
    q, k, v = leaf(heads, width), leaf(heads, width), leaf(heads // 2, 2 * width)
    scale = leaf.number(0.5)
    attend = flex_attention if on_cpu else torch.compile(flex_attention, dynamic=False)
    mask = create_block_mask(lambda _b, _h, t, s: t >= s, None, None, length, length, device=device)

    def forward():
        first, second = (attend(*(t.transpose(1, 2) for t in (q[:, :, i::2], k[:, :, i::2], v)), block_mask=mask)
                         for i in range(2))
        return (first - scale * second).transpose(1, 2)

    return forward


def diffllama(torch, request, leaf):
    """The attention of DiffLlama in transformers on given heads, its head norm and rotation by no angle with it.

    Query heads are first halves of the pairs, then second ones; of the values the first half of each, then the second.
    """
    from transformers.models.diffllama.modeling_diffllama import DiffLlamaAttention, DiffLlamaConfig

    heads, width, length = request["heads"], request["head_dim"], request["length"]
    config = DiffLlamaConfig(hidden_size=heads * width, num_attention_heads=heads, num_key_value_heads=heads,
                             attn_implementation="sdpa")
    q, k, v = leaf(heads, width), leaf(heads, width), leaf(heads, width)
    module = DiffLlamaAttention(config, layer_idx=0).to(q.device, q.dtype)
    module.o_proj = torch.nn.Identity()
    angles = [torch.full((1, length, width), value, device=q.device, dtype=q.dtype) for value in (1.0, 0.0)]
    x = q.flatten(2)

    class Given(torch.nn.Module):
        def __init__(self, heads_of):
            super().__init__()
            self.heads_of = heads_of

        def forward(self, _):
            return self.heads_of[0].flatten(2)

    module.q_proj, module.k_proj, module.v_proj = (Given([t]) for t in (q, k, v))
    return lambda: module(x, angles)[0].unflatten(2, (heads // 2, 2 * width))


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
          "differential_4_calls": differential_4_calls, "flex_differential": flex_differential, "diffllama": diffllama}


class Leaves:
    """Makes the operator's inputs, as projections would: [batch, length, ...], contiguous, drawn on the CPU."""

    def __init__(self, torch, request):
        self.torch, self.request, self.made = torch, request, []

    def keep(self, tensor):
        made = tensor.to(self.request["device"], getattr(self.torch, self.request["dtype"]))
        self.made.append(made.requires_grad_(self.request["backward"]))
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
    if request["dtype"] not in DTYPES:
        raise ValueError(f"dtype is {request['dtype']!r}, want one of {', '.join(DTYPES)}")
    device_of(torch, request["device"])
    leaves = Leaves(torch, request)
    attend = RIVALS[request["rival"]](torch, request, leaves)

    def forward():
        with only(torch, request["backend"]), torch.set_grad_enabled(request["backward"]):
            return attend()

    gradient = torch.randn_like(forward().detach())  # what is compiled is compiled for the pass that is measured

    def step():
        for tensor in leaves.made:
            tensor.grad = None
        out = forward()
        if request["backward"]:
            out.backward(gradient)
        return {}

    return {"output": list(gradient.shape)}, step


if __name__ == "__main__":
    sys.exit(serve(REQUIRED, DEFAULTS, build))
