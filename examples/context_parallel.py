"""Exact attention of composed heads over keys that lie in several processes, forward and backward.

    torchrun --nproc-per-node 4 examples/context_parallel.py

Every process has all queries and its stretch of the keys and values. Mixing over heads needs one key at a time, so scores
and both mixes stay local; what the processes exchange is, of each query and softmax head, the logarithm of the softmax's sum
and, on the way back, the row sum of weights and their gradients, beside the sums of outputs and of the queries' gradients.
docs/scale.md says when it pays.
"""
import torch
import torch.distributed as dist

HIDDEN = -1e30  # of a key that a query may not see: finite, so that a stretch without a visible key passes zeros


class Exchange:
    """Sums over processes that know their gradients; `bytes` counts what each call hands over."""

    bytes = 0

    @classmethod
    def reduce(cls, x, op=dist.ReduceOp.SUM):
        x = x.contiguous().clone()
        cls.bytes += x.numel() * x.element_size()
        dist.all_reduce(x, op)
        return x


class Shared(torch.autograd.Function):
    """What all processes have: each gives a part of its gradient."""

    forward = staticmethod(lambda context, x: x.view_as(x))
    backward = staticmethod(lambda context, dx: Exchange.reduce(dx))


class Summed(torch.autograd.Function):
    forward = staticmethod(lambda context, x: Exchange.reduce(x))
    backward = staticmethod(lambda context, dx: dx)


class LogSumExp(torch.autograd.Function):
    """Of all keys from those of each process. Its gradient is the row sum of weights and their gradients over all keys."""

    @staticmethod
    def forward(context, own):
        largest = Exchange.reduce(own, dist.ReduceOp.MAX)
        whole = largest + Exchange.reduce((own - largest).exp()).log()
        context.save_for_backward((own - whole).exp())
        return whole

    @staticmethod
    def backward(context, dwhole):
        return Exchange.reduce(dwhole) * context.saved_tensors[0]


def mixed(x, side, mix):
    """x [B,H,T,S] mixed over heads: itself, a static map, low rank by query and by key (names of composed_attention)."""
    out = x
    if f"{side}_weight" in mix:
        out = out + torch.einsum("bnts,nm->bmts", x, mix[f"{side}_weight"])
    if f"{side}_query_down" in mix:
        out = out + torch.einsum("bnts,btrn,btrm->bmts", x, mix[f"{side}_query_down"], mix[f"{side}_query_up"])
    if f"{side}_key_down" in mix:
        out = out + torch.einsum("bnts,bsrn,bsrm->bmts", x, mix[f"{side}_key_down"], mix[f"{side}_key_up"])
    return out


def attention_over_stretches(q, k, v, first, mix):
    """q [B,T,H,D] and what `mix` has by query, whole; k [B,s,H,D], v [B,s,H,E] and what it has by key, of positions `first`
    on. The last query is at the last position of all. -> out [B,T,H,E], the same everywhere."""
    q, mix = Shared.apply(q), {name: x if "key" in name else Shared.apply(x) for name, x in mix.items()}
    scores = torch.einsum("bthd,bshd->bhts", q, k) / q.shape[-1] ** 0.5
    keys = first + torch.arange(k.shape[1])
    logits = mixed(scores, "pre", mix).masked_fill(keys > torch.arange(q.shape[1])[:, None], HIDDEN)
    weights = (logits - LogSumExp.apply(logits.logsumexp(-1))[..., None]).exp()
    return Summed.apply(torch.einsum("bhts,bshe->bthe", mixed(weights, "post", mix), v))


def main():
    dist.init_process_group("gloo")
    rank, size, (batch, tokens, heads, width) = dist.get_rank(), dist.get_world_size(), (1, 512, 8, 16)
    torch.manual_seed(0)
    q, k, v = torch.randn(3, batch, tokens, heads, width, dtype=torch.float64).requires_grad_()
    own = slice(rank * tokens // size, (rank + 1) * tokens // size)
    attention_over_stretches(q, k[:, own], v[:, own], own.start, {"pre_weight": torch.eye(heads).double()}).square().sum().backward()
    if rank == 0:
        print(f"{size} processes, {tokens} tokens, {heads} heads of {width}: {Exchange.bytes / 1e6:.2f} MB each way")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
