"""The torch operators from Python, out of build/libmotet_ops.so alone, on the CPU and on a GPU. The oracle is written here, in plain
loops."""
import itertools
import math
import os
import pathlib
import sys

import numpy as np
import pytest

import torch  # noqa: E402
from torch.autograd import gradcheck  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

torch.ops.load_library(pathlib.Path(__file__).resolve().parent.parent / "build" / "libmotet_ops.so")
MOTET = torch.ops.motet
attend = MOTET.composed_attention

# Parts of a head mix: B batch, T queries, S keys, R rank, N heads in, M heads out. Gates and the identity need N = M.
PARTS = {
    "weight": "NM",
    "query_down": "BTRN", "query_up": "BTRM", "query_gate": "BTM", "query_full": "BTNM",
    "key_down": "BSRN", "key_up": "BSRM", "key_gate": "BSM", "key_full": "BSNM",
}
SQUARE = ["identity", *PARTS]
RECTANGULAR = [name for name in PARTS if "gate" not in name]
DCMHA = ["identity", "query_down", "query_up", "query_gate", "key_down", "key_up", "key_gate"]
LETTERS = dict(B=2, T=5, S=7, D=3, E=4, R=2, Hs=4, Ha=4, Ho=4, Gk=2, Gv=2)
DEVICE = "cpu"  # where the tensors of this file's tests lie
on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.fixture(autouse=True, params=["cpu", pytest.param("cuda", marks=on_a_gpu)])
def device(request, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "DEVICE", request.param)


@pytest.fixture(autouse=True)
def a_fault_is_its_own_tests():
    """After one a process can do nothing more on the GPU: under pytest -n the next tests get a new one."""
    yield
    if not torch.cuda.is_initialized():
        return
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        if "PYTEST_XDIST_WORKER" not in os.environ:
            raise
        os._exit(1)


def there(given):
    """The same arguments, whose tensors lie where the tests want them."""
    return {name: value.to(DEVICE) if torch.is_tensor(value) else value for name, value in given.items()}


def random(generator, shape, dtype=torch.float64):
    return torch.randn(shape, generator=generator, dtype=torch.float64).mul(0.7).to(DEVICE, dtype)


def problem(*, pre=(), post=(), lam=None, bias=None, dtype=torch.float64, seed=0, sizes=None, **more):
    """Arguments of composed_attention; `pre` and `post` name parts, `lam` and `bias` give shapes in letters."""
    n = {**LETTERS, **(sizes or {})}
    generator = torch.Generator().manual_seed(seed)
    made = {
        "q": random(generator, (n["B"], n["T"], n["Hs"], n["D"]), dtype),
        "k": random(generator, (n["B"], n["S"], n["Gk"], n["D"]), dtype),
        "v": random(generator, (n["B"], n["S"], n["Gv"], n["E"]), dtype),
    }
    for place, names, heads in (("pre", pre, ("Hs", "Ha")), ("post", post, ("Ha", "Ho"))):
        own = {**n, "N": n[heads[0]], "M": n[heads[1]]}
        for name in names:
            if name == "identity":
                made[f"{place}_identity"] = True
            else:
                made[f"{place}_{name}"] = random(generator, [own[letter] for letter in PARTS[name]], dtype)
    if lam is not None:
        made["pair_lambda"] = random(generator, [n[letter] if letter != "H" else n["Ha"] // 2 for letter in lam], dtype)
    if bias is not None:
        made["bias"] = random(generator, [1 if c == "1" else n["Ha"] if c == "H" else n[c] for c in bias], dtype)
    return there({**made, **more})


def call(given, operator=attend):
    given = dict(given)
    return operator(given.pop("q"), given.pop("k"), given.pop("v"), **given)


def leaves(given):
    return {name: t for name, t in given.items() if torch.is_tensor(t) and t.is_floating_point()}


def with_gradients(given):
    return {name: t.detach().clone().requires_grad_() if name in leaves(given) else t for name, t in given.items()}


def tables(n=LETTERS, dtype=torch.int64):
    return {
        "query_start": torch.tensor([2, 0], dtype=dtype),
        "key_begin": torch.tensor([0, 1], dtype=dtype),
        "key_end": torch.tensor([n["S"], n["S"] - 2], dtype=dtype),
        "documents": torch.tensor([[0] * 3 + [1] * (n["S"] - 3), [0] * 2 + [5] * (n["S"] - 2)], dtype=dtype),
    }


# One of each kind of call: what opcheck, torch.compile and the oracle run through.
CASES = {
    "plain": dict(causal=True),
    "plain, equal widths": dict(causal=True, sizes=dict(T=6, S=6, Gk=4, Gv=4, D=4, E=4)),
    "dcmha": dict(pre=DCMHA, post=DCMHA, causal=True),
    "every part": dict(pre=SQUARE, post=SQUARE),
    "rectangular": dict(pre=RECTANGULAR, post=RECTANGULAR, causal=True, sizes=dict(Ha=3, Ho=2)),
    "differential v1": dict(lam="", sizes=dict(Gk=4, Gv=2), key_of=[0, 1, 2, 3], causal=True),
    "grouped pairs": dict(lam="H", sizes=dict(Gk=2, Gv=1), key_of=[0, 1, 0, 1], causal=True),
    "differential v2": dict(lam="BTH", sizes=dict(Gk=2, Gv=2), scale=0.3, precision="highest"),
    "bias": dict(pre=["weight"], post=["weight"], bias="1HTS"),
    "bias of sequences": dict(bias="B1TS", causal=True),
    "window": dict(pre=DCMHA, post=DCMHA, causal=True, window=2),
    "tables": dict(pre=DCMHA, post=["identity", "query_gate", "key_gate"], causal=True, **tables()),
    "lengths": dict(post=["weight", "key_full"], key_begin=tables()["key_begin"], key_end=tables()["key_end"]),
    "documents": dict(documents=tables()["documents"], causal=True, window=3),
    "more queries than keys": dict(pre=DCMHA, causal=True, sizes=dict(T=7, S=4)),
    "heads named": dict(pre=["weight"], key_of=[1, 0, 1, 1], value_of=[0, 0, 1, 0]),
}
cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())

# ---- the oracle: the definition of motet/attention/attention.h, one place after the other


def mixed(x, place, at, given):
    """The head mix `place` of the vector x over heads, at (b, t, s)."""
    b, t, s = at
    part = {name: given.get(f"{place}_{name}") for name in PARTS}
    if not given.get(f"{place}_identity") and all(value is None for value in part.values()):
        return x
    terms = [x] if given.get(f"{place}_identity") else []
    if part["weight"] is not None:
        terms.append([sum(x[n] * w for n, w in enumerate(column)) for column in part["weight"].T])
    for side, row in (("query", t), ("key", s)):
        if part[f"{side}_down"] is not None:
            for down, up in zip(part[f"{side}_down"][b, row], part[f"{side}_up"][b, row]):
                low = sum(x[n] * weight for n, weight in enumerate(down))
                terms.append([low * weight for weight in up])
        if part[f"{side}_gate"] is not None:
            terms.append([x[m] * weight for m, weight in enumerate(part[f"{side}_gate"][b, row])])
        if part[f"{side}_full"] is not None:
            terms.append([sum(x[n] * w for n, w in enumerate(column)) for column in part[f"{side}_full"][b, row].T])
    return [sum(values) for values in zip(*terms)]


def sees(b, t, s, given, queries, keys):
    position = t + (given["query_start"][b] if "query_start" in given else keys - queries)
    if "key_begin" in given and s < given["key_begin"][b] or "key_end" in given and s >= given["key_end"][b]:
        return False
    if given.get("causal") and s > position:
        return False
    if given.get("window") and position - s >= given["window"]:
        return False
    if "documents" in given:
        return 0 <= position < keys and given["documents"][b, s] == given["documents"][b, position]
    return True


def oracle(given):
    """(out, lse) in float64."""
    given = {name: value.double().cpu().numpy() if torch.is_tensor(value) else value for name, value in given.items()}
    given = {name: value.astype(int) if name in tables() else value for name, value in given.items()}
    q, k, v = given["q"], given["k"], given["v"]
    (batch, queries, heads, width), keys = q.shape, k.shape[1]
    key_of = given.get("key_of") or [h * k.shape[2] // heads for h in range(heads)]
    scale = given.get("scale", 1 / math.sqrt(width))
    outs, lses = [], []
    for b, t in itertools.product(range(batch), range(queries)):
        seen = [s for s in range(keys) if sees(b, t, s, given, queries, keys)]
        logits = []
        for s in seen:
            scores = [scale * sum(q[b, t, h, d] * k[b, s, key_of[h], d] for d in range(width)) for h in range(heads)]
            logits.append(mixed(scores, "pre", (b, t, s), given))
            if "bias" in given:
                bias = np.broadcast_to(given["bias"], (batch, len(logits[-1]), queries, keys))
                logits[-1] = [x + bias[b, a, t, s] for a, x in enumerate(logits[-1])]
        sums = [sum(math.exp(row[a]) for row in logits) for a in range(len(logits[0]))] if seen else []
        out = None
        for s, row in zip(seen, logits):
            weights = [math.exp(x) / total for x, total in zip(row, sums)]
            if "pair_lambda" in given:
                pairs = len(weights) // 2
                lam = np.broadcast_to(given["pair_lambda"], (batch, queries, pairs))[b, t]
                weights = [weights[2 * i] - lam[i] * weights[2 * i + 1] for i in range(pairs)]
            else:
                weights = mixed(weights, "post", (b, t, s), given)
            value_of = given.get("value_of") or [o * v.shape[2] // len(weights) for o in range(len(weights))]
            term = np.array([weight * v[b, s, value_of[o]] for o, weight in enumerate(weights)])
            out = term if out is None else out + term
        outs.append(out)
        lses.append([math.log(total) for total in sums] or None)
    shape = next((o for o in outs if o is not None)).shape
    softmax_heads = next(len(row) for row in lses if row)
    out = np.stack([np.zeros(shape) if o is None else o for o in outs]).reshape(batch, queries, *shape)
    lse = np.array([row or [-math.inf] * softmax_heads for row in lses]).reshape(batch, queries, -1).transpose(0, 2, 1)
    return torch.from_numpy(out), torch.from_numpy(lse)


# Float32: sums of some ten products of numbers near 1.
@cases
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-13), (torch.float32, 3e-6)], ids=["double", "float"])
def test_the_operator_equals_plain_loops(case, dtype, tolerance):
    given = problem(dtype=dtype, **case)
    out, lse = call(given)
    want_out, want_lse = oracle(given)
    assert out.dtype == dtype and out.shape == want_out.shape
    out, lse = out.double().cpu(), lse.double().cpu()
    torch.testing.assert_close(out, want_out, rtol=tolerance, atol=tolerance * want_out.abs().max().item())
    torch.testing.assert_close(lse, want_lse, rtol=tolerance, atol=10 * tolerance)


def test_int32_tables_equal_int64_tables():
    long, short = (problem(pre=DCMHA, causal=True, **tables(dtype=dtype)) for dtype in (torch.int64, torch.int32))
    assert torch.equal(call(long)[0], call(short)[0])


def test_keys_outside_their_lengths_never_leak():
    given = problem(pre=DCMHA, post=DCMHA, **{name: tables()[name] for name in ("key_begin", "key_end")})
    want = call(given)[0]
    for b, (begin, end) in enumerate(zip(given["key_begin"], given["key_end"])):
        for name in [name for name in given if name in ("k", "v") or "_key_" in name]:
            given[name][b, :begin] = given[name][b, end:] = math.nan
    assert torch.equal(call(given)[0], want)


def test_a_query_that_sees_nothing_gives_zero_and_no_gradient():
    given = with_gradients(problem(post=["weight"], causal=True, query_start=torch.tensor([-2, 0])))
    out, lse = call(given)
    out.sum().backward()
    assert not out[0, :2].any() and out[0, 2:].all() and lse[0, :, :2].eq(-math.inf).all()
    assert not given["q"].grad[0, :2].any() and given["q"].grad.isfinite().all()


@pytest.mark.parametrize("post", [[], DCMHA], ids=["none", "dcmha"])
def test_outputs_of_two_parts_of_the_keys_add_up(post):
    given = problem(pre=DCMHA, post=post)
    whole, lse = call(given)
    of_keys = [name for name in given if name in ("k", "v") or "_key_" in name]
    halves = [{**given, **{name: given[name][:, part] for name in of_keys}} for part in (slice(0, 3), slice(3, None))]
    lse_of_all = torch.stack([call(half, MOTET.attention_lse) for half in halves]).logsumexp(0)
    torch.testing.assert_close(lse_of_all, lse)
    parts = [call(half, lambda *a, **n: MOTET.attention_given_lse(lse_of_all, *a, **n)) for half in halves]
    torch.testing.assert_close(sum(parts), whole)


def test_apply_head_mix_equals_plain_loops():
    given = problem(pre=SQUARE)
    scores = random(torch.Generator().manual_seed(1), (2, 4, 5, 7))
    parts = {name.removeprefix("pre_"): value for name, value in given.items() if name.startswith("pre_")}
    out = MOTET.apply_head_mix(scores, **parts)
    arrays = {name: value.cpu().numpy() if torch.is_tensor(value) else value for name, value in given.items()}
    for b, t, s in itertools.product(range(2), range(5), range(7)):
        want = mixed(list(scores[b, :, t, s].cpu().numpy()), "pre", (b, t, s), arrays)
        torch.testing.assert_close(out[b, :, t, s].cpu(), torch.tensor(want))


# ---- derivatives


def test_the_schema_has_the_parts_of_this_file():
    names = [argument.name for argument in attend.default._schema.arguments]
    for place in ("pre", "post"):
        parts = [name.removeprefix(f"{place}_") for name in names if name.startswith(f"{place}_")]
        assert sorted(parts) == sorted(["identity", *PARTS])


TINY = dict(B=2, T=3, S=3, D=2, E=2, R=2, Hs=2, Ha=2, Ho=2, Gk=1, Gv=1)


def check_gradients(given, operator=attend):
    """Numerical against analytical, for every floating tensor of the call."""
    names = list(leaves(given))
    inputs = [given[name].detach().clone().requires_grad_() for name in names]

    def function(*values):
        return call({**given, **dict(zip(names, values))}, operator)[0]

    assert gradcheck(function, inputs, atol=1e-7, rtol=1e-6)


def companions(part):
    """Down and up stand together."""
    return [part.replace("_up", "_down"), part.replace("_down", "_up")] if part.endswith(("_down", "_up")) else [part]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("place", ["pre", "post"])
@pytest.mark.parametrize("identity", [True, False], ids=["beside the identity", "alone"])
def test_gradients_of_a_part(part, place, identity):
    names = dict.fromkeys([*(["identity"] if identity else []), *companions(part)])
    # Alone, a part that can may change the number of heads.
    heads = {"pre": dict(Hs=3, Gk=3), "post": dict(Ho=3, Gv=3)}[place] if not identity and part in RECTANGULAR else {}
    check_gradients(problem(**{place: names}, causal=True, sizes={**TINY, **heads}))


@pytest.mark.parametrize("lam", ["", "H", "BTH"], ids=["number", "heads", "tokens"])
def test_gradients_of_lambda(lam):
    check_gradients(problem(lam=lam, causal=True, sizes={**TINY, "Hs": 4, "Ha": 4, "Gv": 2}))


@pytest.mark.parametrize("bias", ["11TS", "1HTS", "B1TS", "BHTS"])
def test_gradients_of_bias(bias):
    check_gradients(problem(pre=["weight"], post=["weight"], bias=bias, causal=True, sizes=TINY))


VISIBLE = {
    "causal": {},
    "window": dict(window=2),
    "lengths": dict(key_end=torch.tensor([2, 3])),
    "heads named": dict(key_of=[1, 0], value_of=[0, 1], sizes={**TINY, "Gk": 2, "Gv": 2}),
}


@pytest.mark.parametrize("mix", [[], DCMHA], ids=["plain", "dcmha"])
@pytest.mark.parametrize("more", VISIBLE.values(), ids=VISIBLE.keys())
def test_gradients_under_visibility_and_head_tables(more, mix):
    check_gradients(problem(pre=mix, post=mix, causal=True, **{"sizes": TINY, **more}))


def test_gradients_of_apply_head_mix():
    given = problem(pre=SQUARE, sizes=TINY)
    parts = {name.removeprefix("pre_"): value for name, value in given.items() if name.startswith("pre_")}
    names = [name for name in parts if name != "identity"]
    scores = random(torch.Generator().manual_seed(1), (2, 2, 3, 3)).requires_grad_()

    def function(x, *values):
        return MOTET.apply_head_mix(x, identity=True, **dict(zip(names, values)))

    assert gradcheck(function, [scores, *(parts[name].requires_grad_() for name in names)])


def test_only_the_gradients_asked_for_are_made():
    given = problem(pre=DCMHA, causal=True)
    given["pre_key_up"].requires_grad_()
    call(given)[0].sum().backward()
    assert [name for name, t in leaves(given).items() if t.grad is not None] == ["pre_key_up"]


class Asked(TorchDispatchMode):
    """Remembers of each call of the operator, below autograd, whether an input asks for a gradient: kernels are chosen so."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        named = named or {}
        if function is attend.default:
            given = (*arguments, *named.values())
            self.calls.append(any(torch.is_tensor(value) and value.requires_grad for value in given))
        return function(*arguments, **named)


def test_a_parameter_asks_for_no_gradient_where_there_is_none():
    given = problem(pre=["weight"], causal=True)
    given["pre_weight"].requires_grad_()
    with Asked() as asked:
        call(given)
        with torch.no_grad():
            call(given)
    assert asked.calls == [True, False]


def test_lse_is_not_differentiable():
    out, lse = call(with_gradients(problem(pre=DCMHA)))
    assert out.requires_grad and not lse.requires_grad


def test_a_second_derivative_is_refused():
    given = with_gradients(problem(pre=DCMHA, causal=True))
    (first,) = torch.autograd.grad(call(given)[0].square().sum(), given["q"], create_graph=True)
    with pytest.raises(NotImplementedError, match="composed_attention: second derivatives are not implemented"):
        first.sum().backward()


# ---- torch's own checks


@cases
def test_opcheck_of_composed_attention(case):
    given = with_gradients(problem(**case))
    torch.library.opcheck(attend, (given.pop("q"), given.pop("k"), given.pop("v")), given)


@pytest.mark.parametrize("name", ["dcmha", "differential v2", "bias", "tables", "plain, equal widths"])
def test_opcheck_of_the_other_operators(name):
    given = problem(**CASES[name])
    out, lse = call(given)
    inputs = (given.pop("q"), given.pop("k"), given.pop("v"))
    order = [argument.name for argument in attend.default._schema.arguments]
    wanted = [argument in ("q", "k", "v") or argument in given for argument in order[:order.index("query_start")]]
    backward = (torch.ones_like(out), out, lse, *inputs)
    torch.library.opcheck(MOTET.composed_attention_backward, backward, {**given, "wanted": wanted})
    torch.library.opcheck(MOTET.attention_lse, inputs, given)
    torch.library.opcheck(MOTET.attention_given_lse, (lse, *inputs), given)


def test_opcheck_of_apply_head_mix():
    given = with_gradients(problem(pre=SQUARE))
    parts = {name.removeprefix("pre_"): value for name, value in given.items() if name.startswith("pre_")}
    scores = random(torch.Generator().manual_seed(1), (2, 4, 5, 7)).requires_grad_()
    torch.library.opcheck(MOTET.apply_head_mix, (scores,), parts)


def trained(function, given):
    """The output, and the gradient of each input."""
    given = with_gradients(given)
    out = function(given)
    (out * torch.linspace(-1, 1, out.numel(), dtype=out.dtype, device=out.device).view_as(out)).sum().backward()
    return [out.detach(), *(t.grad for t in leaves(given).values())]


def layer(given):
    """The operator between others, as in a model."""
    return call({**given, "q": given["q"] * 2})[0].relu()


@cases
def test_compiled_equals_eager(case):
    torch._dynamo.reset()
    given = problem(**case)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    for have, want in zip(trained(compiled, given), trained(layer, given), strict=True):
        torch.testing.assert_close(have, want, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["dcmha", "differential v2", "bias"])
def test_one_compilation_serves_other_lengths(name):
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True, dynamic=True)
    # Dynamo takes sizes that are equal at first for one size for ever: these differ from each other and from the heads.
    lengths = [dict(B=6, T=5, S=7), dict(B=8, T=9, S=11), dict(B=5, T=6, S=12)]
    for index, sizes in enumerate(lengths):
        given = problem(**{**CASES[name], "sizes": {**CASES[name].get("sizes", {}), **sizes}})
        with torch._dynamo.config.patch(error_on_recompile=index > 0):
            for have, want in zip(trained(compiled, given), trained(layer, given), strict=True):
                torch.testing.assert_close(have, want, rtol=0, atol=0)


def test_autocast_takes_the_inputs_to_bfloat16_and_leaves_the_mixes():
    given = problem(pre=DCMHA, post=DCMHA, causal=True, dtype=torch.float32)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        have = trained(lambda g: call(g)[0], given)
    rounded = {name: t.bfloat16() if name in ("q", "k", "v") else t for name, t in given.items()}
    want = trained(lambda g: call(g)[0], rounded)
    assert have[0].dtype == torch.bfloat16
    for name, a, b in zip(["out", *leaves(given)], have, want, strict=True):
        assert name == "out" or a.dtype == torch.float32, name
        torch.testing.assert_close(a.to(b.dtype), b, rtol=0, atol=0)


def test_autocast_does_not_reach_into_the_other_operators():
    given = problem(pre=DCMHA, dtype=torch.float32)
    rounded = {name: t.bfloat16() if name in ("q", "k", "v") else t for name, t in given.items()}
    scores = torch.randn(2, 4, 5, 7, device=DEVICE)
    mix = dict(weight=torch.randn(4, 4, device=DEVICE))
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        lse, of_scores = call(given, MOTET.attention_lse), MOTET.apply_head_mix(scores, **mix)
    assert torch.equal(lse, call(rounded, MOTET.attention_lse))
    assert torch.equal(of_scores, MOTET.apply_head_mix(scores, **mix))


def test_a_fused_projection_may_be_sliced():
    given = problem(pre=DCMHA, causal=True, sizes=dict(T=7, Gk=4, Gv=4, E=3))
    fused = torch.cat([given[name] for name in "qkv"], dim=2).requires_grad_()
    q, k, v = fused.split(4, dim=2)
    strided = {**given, "q": q, "k": k, "v": v.flip(1).flip(1)}
    want = trained(lambda g: call(g)[0], given)
    out = call(strided)[0]
    assert torch.equal(out, want[0])
    (out * torch.linspace(-1, 1, out.numel(), dtype=out.dtype, device=out.device).view_as(out)).sum().backward()
    torch.testing.assert_close(fused.grad, torch.cat(want[1:4], dim=2))


def test_autocast_leaves_float64_alone():
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        assert call(problem(pre=DCMHA))[0].dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_computed_in_float32(dtype):
    given = problem(pre=DCMHA, post=DCMHA, causal=True, dtype=dtype)
    if DEVICE == "cuda":
        given["kernel_name"] = "blocked"  # the others there have bounds of their own: test_cuda.py
    want, _ = oracle(given)
    out, lse = call(given)
    assert out.dtype == dtype and lse.dtype == torch.float32
    torch.testing.assert_close(out.double().cpu(), want, rtol=torch.finfo(dtype).eps, atol=1e-6)


# ---- errors: one line that names the argument, what it was and what it must be

ERRORS = [
    (dict(causal=False, window=3), "window is 3 without causal, want causal attention"),
    (dict(causal=True, window=-1), "window is -1, want 0 (none) or more"),
    (dict(scale=math.inf), "scale is inf, want a finite number"),
    (dict(k=torch.zeros(2, 7, 3, 3).double()), "k has 3 heads and q score heads 4, want a divisor"),
    (dict(k=torch.zeros(2, 7, 2, 5).double()), "k has head width 5, want q's 3"),
    (dict(v=torch.zeros(2, 6, 2, 4).double()), "v has 6 keys, want k's 7"),
    (dict(v=torch.zeros(2, 7, 2, 4)), "v has dtype Float, want q's dtype Double"),
    (dict(key_of=[0, 1]), "key_of has 2 entries, want one for each of the 4 q score heads"),
    (dict(value_of=[0, 1, 2, 0]), "value_of names head 2, want 0 to 1"),
    (dict(pre_query_gate=torch.zeros(2, 5, 3).double()), "pre_query_gate has shape [2, 5, 3], want [B=2,T=5,M=4]"),
    (dict(pre_identity=True, pre_weight=torch.zeros(4, 3).double()), "pre_weight has shape [4, 3], want [N=4,M=4]"),
    (dict(post_key_down=torch.zeros(2, 7, 2, 4).double()), "post_key_down stands without key_up, want both"),
    (
        dict(pair_lambda=torch.zeros(2).double(), post_identity=True),
        "pair_lambda stands beside another part of the post mix, want it alone",
    ),
    (dict(pair_lambda=torch.zeros(3).double()), "pair_lambda has shape [3], want [], [2] or [2,5,2]"),
    (dict(bias=torch.zeros(2, 3, 5, 7).double()), "bias has shape [2, 3, 5, 7], want [1 or 2,1 or 4,5,7]"),
    (dict(key_end=torch.tensor([7, 9])), "key_end holds 9, want 0 to the 7 keys"),
    (dict(documents=torch.zeros(2, 7)), "documents has dtype Float, want int32 or int64"),
]


@pytest.mark.parametrize("change, message", ERRORS, ids=[message.split(",")[0] for _, message in ERRORS])
def test_an_error_is_a_value_error_with_one_clear_line(change, message):
    if DEVICE == "cuda" and " holds " in message:
        pytest.skip("values of a table that lies on a GPU are not read: that would wait for it")
    with pytest.raises(ValueError) as caught:
        call(there({**problem(), **change}))
    assert str(caught.value).splitlines()[0].startswith("composed_attention: " + message)


def test_a_wrong_shape_is_found_while_tracing():
    given = there({**problem(), "v": torch.zeros(2, 6, 2, 4).double()})
    with pytest.raises(ValueError, match="v has 6 keys, want k's 7"):
        call({name: value.to("meta") for name, value in given.items()})
