"""Kernels and the program on a GPU; each test skips where there is none. The operator's own tests there: test_operators.py."""
import json
import re
import subprocess

import pytest
import test_operators as cpu
from conftest import ROOT, TINY, run
from test_operators import (  # noqa: F401 - a fixture
    CASES, DCMHA, MOTET, a_fault_is_its_own_tests, attend, call, cases, leaves, problem, trained, with_gradients
)

torch = cpu.torch
DEVICE = "cuda"
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

HEADS = dict(Hs=16, Ha=16, Ho=16, Gk=16, Gv=16, D=64, E=64, T=80, S=80)
MANY = {**HEADS, "Hs": 32, "Ha": 32, "Ho": 32, "Gk": 32, "Gv": 32}
LARGE = {
    "dcmha": dict(pre=DCMHA, post=DCMHA, causal=True, sizes=HEADS),
    "queries alone": dict(pre=DCMHA[:4], post=DCMHA[:4], causal=True, window=37, sizes=HEADS),
    "talking heads": dict(pre=["weight"], post=["weight"], causal=True, sizes=HEADS),
    "pairs": dict(lam="BTH", causal=True, sizes={**HEADS, "Ho": 8, "Gv": 8, "E": 128}),
    "shared heads": dict(causal=True, sizes={**HEADS, "Gk": 4, "Gv": 4}),
    "between products": dict(pre=DCMHA, post=DCMHA, causal=True, sizes={**MANY, "D": 128, "E": 128, "T": 300, "S": 300}),
    "between products, a window": dict(pre=["weight"], causal=True, window=40, sizes={**MANY, "Gk": 8, "Gv": 4, "T": 300, "S": 310}),
    "32 heads": dict(pre=DCMHA, causal=True, sizes=MANY),
}
large = pytest.mark.parametrize("case", LARGE.values(), ids=LARGE.keys())


def sized(case, dtype=torch.float64):
    """A large problem whose mixes leave numbers at their size."""
    given = problem(dtype=dtype, **case)
    return {name: t / 4 if name.startswith(("pre_", "post_")) and torch.is_tensor(t) else t for name, t in given.items()}


def moved(given, dtype=None):
    """On the GPU; floating-point tensors in another dtype."""
    return {
        name: t.to(DEVICE, dtype if dtype and t.is_floating_point() else None) if torch.is_tensor(t) else t
        for name, t in given.items()
    }


def distance(have, want):
    have, want = have.double().cpu(), want.double().cpu()
    return ((have - want).norm() / want.norm().clamp_min(1e-30)).item()


def everything(given):
    """The output, and the gradient of each input."""
    given = with_gradients(given)
    out = call(given)[0]
    cotangent = torch.linspace(-1, 1, out.numel()).view_as(out)  # float16 does not count that far
    out.backward(cotangent.to(out))
    return [out.detach(), *(t.grad for t in leaves(given).values())]


@cases
def test_float64_agrees_with_the_cpu(case):
    given = problem(**case)
    for have, want in zip(everything(moved(given)), everything(given), strict=True):
        torch.testing.assert_close(have.cpu(), want, rtol=1e-10, atol=1e-12)


@cases
def test_float32_is_near_float64(case):
    given = problem(**case)
    for have, want in zip(everything(moved(given, torch.float32)), everything(given), strict=True):
        assert distance(have, want) < 3e-6


@large
@pytest.mark.parametrize("dtype, limit", [(torch.float32, 3e-6), (torch.bfloat16, 5e-3), (torch.float16, 3e-3)], ids=str)
def test_large_problems_are_near_float64(case, dtype, limit):
    given = moved(sized(case, dtype))
    names = ["out", *leaves(given)]
    want = everything({name: t.double() if torch.is_tensor(t) else t for name, t in given.items()})
    for name, have, reference in zip(names, everything({**given, "kernel_name": "cuda"}), want, strict=True):
        assert distance(have, reference) < limit, name


FLASH = {
    "shared heads": LARGE["shared heads"],
    "differential v1": LARGE["pairs"],
    "differential v2": dict(lam="BTH", sizes={**HEADS, "Ho": 8, "Gk": 4, "Gv": 2}),
    "key size": dict(causal=True, sizes={**HEADS, "D": 128, "E": 40}),
}


@pytest.mark.parametrize("case", FLASH.values(), ids=FLASH.keys())
def test_plain_heads_and_pairs_are_pytorchs_flash_kernel(case):
    given = moved(sized(case, torch.bfloat16))
    want = everything({name: t.double() if torch.is_tensor(t) else t for name, t in given.items()})
    named = everything({**given, "kernel_name": "flash"})
    for name, have, reference in zip(["out", *leaves(given)], named, want, strict=True):
        assert distance(have, reference) < 1e-2, name
    assert torch.equal(named[0], everything(given)[0])


@large
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_keys_outside_their_lengths_never_leak(case, dtype):
    lengths = dict(key_begin=torch.tensor([0, 13]), key_end=torch.tensor([case["sizes"]["S"], 61]))
    given = {**moved({**sized(case, dtype), **lengths}), "kernel_name": "cuda"}
    want = everything(given)
    for name in [name for name in leaves(given) if name in ("k", "v") or "_key_" in name]:
        given[name][1, :13] = given[name][1, 61:] = float("nan")
    for name, have, reference in zip(["out", *leaves(given)], everything(given), want, strict=True):
        assert distance(have, reference) < (3e-6 if dtype == torch.float32 else 5e-3), name


@large
def test_the_bits_of_our_kernels_are_the_same_every_time(case):
    long = {"T": 600, "S": 600 + case["sizes"]["S"] - case["sizes"]["T"]}
    given = {**moved(sized({**case, "sizes": {**case["sizes"], **long}}, torch.bfloat16)), "kernel_name": "cuda"}
    first = everything(given)
    for _ in range(3):
        assert all(torch.equal(a, b) for a, b in zip(first, everything(given), strict=True))


def test_flash_reads_views_that_lie_at_any_number():
    given = moved(sized(dict(causal=True, sizes=HEADS), torch.bfloat16))
    want = everything({**given, "kernel_name": "flash"})
    wide = {name: torch.cat([t[..., :1], t], -1).requires_grad_() for name, t in leaves(given).items()}
    views = {name: t[..., 1:] for name, t in wide.items()}
    out = call({**given, **views, "kernel_name": "flash"})[0]
    out.backward(torch.linspace(-1, 1, out.numel()).view_as(out).to(out))
    for have, reference in zip([out, *(t.grad[..., 1:] for t in wide.values())], want, strict=True):
        assert distance(have, reference) < 1e-2


def test_flash_tells_what_is_not_a_number():
    given = moved(sized(dict(causal=True, sizes=HEADS), torch.bfloat16))
    given["q"][0, 5, 1, 2] = float("nan")
    out, lse = call({**given, "kernel_name": "flash"})
    spoilt = torch.zeros_like(lse, dtype=torch.bool)
    spoilt[0, 1, 5] = True
    assert torch.equal(lse.isnan(), spoilt) and torch.equal(out.isnan().any(-1).transpose(1, 2), spoilt)


@pytest.mark.parametrize("lengths", [(1, 300), (16, 2000)])
def test_a_cache_is_read_in_parts(lengths):
    queries, keys = lengths
    given = sized(dict(pre=DCMHA, post=DCMHA, causal=True, sizes={**HEADS, "T": queries, "S": keys}))
    assert distance(call(moved(given, torch.bfloat16))[0], call(given)[0]) < 2e-2
    assert distance(call(moved(given, torch.float32))[0], call(given)[0]) < 3e-6


def test_two_parts_of_the_keys_add_up():
    given = moved(sized(dict(pre=DCMHA, post=DCMHA, sizes=HEADS), torch.float32))
    whole, lse = call(given)
    of_keys = [name for name in given if name in ("k", "v") or "_key_" in name]
    halves = [{**given, **{name: given[name][:, part] for name in of_keys}} for part in (slice(0, 30), slice(30, None))]
    lse_of_all = torch.stack([call(half, MOTET.attention_lse) for half in halves]).logsumexp(0)
    torch.testing.assert_close(lse_of_all, lse)
    parts = [call(half, lambda *a, **n: MOTET.attention_given_lse(lse_of_all, *a, **n)) for half in halves]
    torch.testing.assert_close(sum(parts), whole)


@pytest.mark.parametrize("size", [60.0, 3e5])
def test_numbers_that_float16_cannot_hold_are_not_lost(size):
    given = moved(sized(LARGE["dcmha"], torch.bfloat16))
    given["q"][1] *= size
    want = call({name: t.float() if torch.is_tensor(t) else t for name, t in given.items()})[0]
    assert distance(call(given)[0], want) < 1e-2


@large
def test_a_cuda_graph_holds_forward_and_backward(case):
    given = with_gradients(moved(sized(case, torch.bfloat16)))
    inputs = list(leaves(given).values())

    def step():
        out = call(given)[0]
        return [out.detach(), *torch.autograd.grad(out.float().square().sum(), inputs)]  # no graph outlives a step

    want = [t.clone() for t in step()]
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        have = step()
    for t in have:
        t.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(have, want, strict=True))


@cases
def test_opcheck(case):
    given = with_gradients(moved(problem(dtype=torch.float32, **case)))
    torch.library.opcheck(attend, (given.pop("q"), given.pop("k"), given.pop("v")), given)


@large
def test_compiled_equals_eager(case):
    torch._dynamo.reset()
    given = moved(sized(case, torch.bfloat16))
    compiled = torch.compile(cpu.layer, backend="aot_eager", fullgraph=True)
    for have, want in zip(trained(compiled, given), trained(cpu.layer, given), strict=True):
        torch.testing.assert_close(have, want, rtol=0, atol=0)


def test_the_default_compiler_takes_the_operator():
    torch._dynamo.reset()
    given = moved(sized(LARGE["dcmha"], torch.float32))
    compiled = torch.compile(cpu.layer, fullgraph=True)
    for have, want in zip(trained(compiled, given), trained(cpu.layer, given), strict=True):
        torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-4)


def test_autocast_takes_the_inputs_to_bfloat16():
    given = moved(sized(LARGE["dcmha"], torch.float32))
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        out = call(given)[0]
    rounded = {name: t.bfloat16() if name in ("q", "k", "v") else t for name, t in given.items()}
    assert out.dtype == torch.bfloat16 and torch.equal(out, call(rounded)[0])


def test_memory_grows_with_the_tokens_not_with_their_square():
    def peak(length):
        given = moved(sized({**LARGE["dcmha"], "sizes": {**HEADS, "B": 1, "T": length, "S": length}}, torch.bfloat16))
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        everything(given)
        return torch.cuda.max_memory_allocated() - before

    peak(512)
    assert peak(4096) < 2.5 * peak(2048)


# ---- the kernels beside attention

BESIDE = ("rms_norm", "rotate", "silu_times", "token_loss", "dcmha_maps")


def test_rows_beside_attention_are_those_of_torch():
    """Values, gradients and dtypes of every case that the emulation runs, on the GPU."""
    command = [ROOT / "build/torch_tests", "--gtest_filter=CudaRows.OnAGpuTheyAreThoseOfTorchThere"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "[       OK ]" in done.stdout, done.stdout[-2000:]


@pytest.mark.parametrize("dtype, limit", [("float32", 2e-4), ("bfloat16", 3e-2)])
def test_training_with_them_is_training_without(tmp_path, dtype, limit):
    def losses(row):
        out = tmp_path / row
        kernels = ",".join(f"{name}={row}" for name in BESIDE)
        options = ["--mechanism", "dcmha", "--dtype", dtype, "--device", "cuda", "--out", out]
        run("train", *TINY, *options, MOTET_KERNEL=kernels).check_returncode()
        records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        return [record["loss"] for record in records if "loss" in record]

    assert losses("cuda") == pytest.approx(losses("torch"), rel=limit)


# ---- the program


def test_every_recorded_vector_in_float64():
    done = run("verify", "--device", "cuda", timeout=900)
    assert done.returncode == 0, done.stdout[-2000:]


def test_a_comparison_trains_there(tmp_path):
    out = tmp_path / "run"
    run("compare", *TINY, "--mechanisms", "mha,dcmha", "--seeds", "1", "--device", "cuda", "--out", out).check_returncode()
    losses = {row["mechanism"]: row["validation_loss"] for row in json.loads((out / "table.json").read_text())}
    assert set(losses) == {"mha", "dcmha"} and all(0 < loss < 10 for loss in losses.values())


@pytest.mark.parametrize("weights", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("mechanism", ["mha", "dcmha"])
def test_a_text_is_that_of_the_cpu_and_of_steps_that_are_launched_anew(tmp_path, mechanism, weights):
    out = tmp_path / "run"
    run("train", *TINY, "--mechanism", mechanism, "--device", "cuda", "--out", out).check_returncode()
    lines = ["generate", "-m", out, "-p", "the ", "-n", "100", "--temp", "0", "--ignore-eos", "--weights", weights]
    recorded, eager = run(*lines, "--device", "cuda"), run(*lines, "--device", "cuda", "--eager")
    assert recorded.returncode == 0 and "not recorded" not in recorded.stderr, recorded.stderr
    cpu = run(*lines, "--device", "cpu")
    assert recorded.stdout[:20] == eager.stdout[:20] == cpu.stdout[:20] != ""  # near ties may part them later


def test_graphs_and_recorded_steps_on_the_gpu():
    command = [ROOT / "build/torch_tests", "--gtest_filter=Graph.*:RecordedStepsTest.*"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    both = done.stdout[-2000:] + done.stderr[-2000:]
    assert done.returncode == 0 and "[       OK ] RecordedStepsTest.AreThoseOfTheWholeText" in done.stdout, both


def test_the_doctor_names_the_kernels():
    text = run("doctor").stdout
    assert re.search(r"^GPU +(?!none)", text, re.M) and re.search(r"^CUDA kernels +.*libmotet_cuda.so$", text, re.M)
    assert (ROOT / "build/libmotet_cuda.so").exists() and CASES
