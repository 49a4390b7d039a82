"""examples/context_parallel.py: keys in 2 and 4 processes, forward and backward as one process computes them."""
import sys

import pytest
from conftest import ROOT

sys.path[:0] = [str(ROOT / "python"), str(ROOT / "examples")]
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as multiprocessing  # noqa: E402

import context_parallel  # noqa: E402
import motet  # noqa: E402

B, T, H, D, E, R = 2, 24, 4, 6, 5, 2
SHAPES = {
    "q": (B, T, H, D),
    "k": (B, T, H, D),
    "v": (B, T, H, E),
    **{f"{side}_{by}_{way}": (B, T, R, H) for side in ("pre", "post") for by in ("query", "key") for way in ("down", "up")},
    "pre_weight": (H, H),
    "post_weight": (H, H),
}
CASES = {
    "plain": ("q", "k", "v"),
    "talking heads": ("q", "k", "v", "pre_weight", "post_weight"),
    "dcmha": tuple(SHAPES),
}


def tensors(names):
    torch.manual_seed(3)
    made = {name: torch.randn(shape, dtype=torch.float64) * 0.5 for name, shape in SHAPES.items()}
    return {name: made[name].requires_grad_() for name in names}, torch.randn(B, T, H, E, dtype=torch.float64)


def work(rank, size, names, file, results):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=size)
    whole, dout = tensors(names)
    own = slice(T * rank // size, T * (rank + 1) // size)
    given = {name: x[:, own] if name in ("k", "v") or "key" in name else x for name, x in whole.items()}
    mix = {name: x for name, x in given.items() if len(name) > 1}
    out = context_parallel.attention_over_stretches(given["q"], given["k"], given["v"], own.start, mix)
    forward = context_parallel.Exchange.bytes
    (out * dout).sum().backward()
    grads = {name: x.grad for name, x in whole.items()}
    torch.save((out.detach(), grads, forward, context_parallel.Exchange.bytes - forward), f"{results}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("case", CASES)
def test_keys_in_several_processes(case, size, tmp_path):
    names = CASES[case]
    whole, dout = tensors(names)
    mix = {name: x for name, x in whole.items() if len(name) > 1}
    flags = {"pre_identity": True, "post_identity": True} if mix else {}
    want = motet.composed_attention(whole["q"], whole["k"], whole["v"], causal=True, **mix, **flags)
    (want * dout).sum().backward()
    multiprocessing.spawn(work, (size, names, tmp_path / "store", tmp_path), nprocs=size)
    parts = [torch.load(tmp_path / f"{rank}.pt") for rank in range(size)]
    for name, x in whole.items():
        by_key = name in ("k", "v") or "key" in name
        got = sum(part[1][name] for part in parts) if by_key else parts[0][1][name]  # zeros outside a stretch
        assert torch.allclose(got, x.grad, rtol=0, atol=1e-10), name
        if not by_key:
            assert all(torch.equal(part[1][name], got) for part in parts), name
    for out, _, forward, backward in parts:
        assert torch.allclose(out, want, rtol=0, atol=1e-10)
        rows, queries = B * H * T, [x.numel() for name, x in whole.items() if name == "q" or name in mix and "key" not in name]
        assert forward == 8 * (2 * rows + want.numel())
        assert backward == 8 * (rows + sum(queries))
