"""Wrong input to the Python package: a ValueError in one line that names the argument, whatever is wrong with it."""
import math
import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "python"))
import numpy as np  # noqa: E402
import torch  # noqa: E402

import motet  # noqa: E402

OPS = torch.ops.motet
Q, K, V = (torch.randn(2, 5, 4, 8) for _ in range(3))
integers = torch.tensor


def attend(**given):
    return motet.composed_attention(**{"q": Q, "k": K, "v": V, **given})


ATTENTION = {
    "q is None, want a tensor": dict(q=None),
    r"k is \[1, 2\], want a tensor": dict(k=[1, 2]),
    "q has dtype Int, want float32": dict(q=Q.int()),
    "q has dtype ComplexFloat, want": dict(q=Q.to(torch.complex64)),
    "k has dtype Double, want q's dtype Float, bfloat16": dict(k=K.double()),
    "v has dtype Long, want q's dtype": dict(v=V.long()),
    "q is of layout torch.sparse_coo, want a dense tensor": dict(q=Q.to_sparse()),
    "pre_weight is of layout torch.sparse_coo, want a dense": dict(pre_weight=torch.eye(4).to_sparse()),
    "k is quantized, want a dense tensor": dict(k=torch.quantize_per_tensor(K, 0.1, 0, torch.qint8)),
    "q is nested, want a dense tensor": dict(q=torch.nested.nested_tensor([Q[0], Q[1]])),
    r"q has shape \[5, 4, 8\], want \[B,T,H,D\]": dict(q=Q[0]),
    "k is on meta, want q's device cpu": dict(k=K.to("meta")),
    "key_end is on meta, want q's device cpu": dict(key_end=torch.zeros(2, dtype=torch.long, device="meta")),
    "pre_weight has dtype Int, want q's dtype Float or float32": dict(pre_weight=torch.eye(4).int()),
    r"pre_weight has shape \[4\], want \[N=4,M\]": dict(pre_weight=torch.zeros(4)),
    r"pre_weight is \[\[1\]\], want a tensor": dict(pre_weight=[[1]]),
    "the pre mix leaves 0 heads, want at least 1": dict(pre_weight=torch.zeros(4, 0)),
    "the post mix leaves 0 heads, want at least 1": dict(post_weight=torch.zeros(4, 0)),
    "pair_lambda is 0.5, want a tensor": dict(pair_lambda=0.5),
    "bias has dtype Bool, want q's dtype": dict(bias=torch.zeros(1, 1, 5, 5, dtype=torch.bool)),
    r"bias has shape \[5, 5\], want \[1 or 2,1 or 4,5,5\]": dict(bias=torch.zeros(5, 5)),
    "key_of is a tensor of shape .4., want a list of integers": dict(key_of=integers([0, 1, 2, 3])),
    "key_of holds 0.0, want integers": dict(key_of=[0.0, 1, 2, 3]),
    "key_of holds 1180591620717411303424, want integers": dict(key_of=[0, 1, 2, 2**70]),
    "key_of holds True, want integers": dict(key_of=[0, True, 2, 3]),
    "key_of names head -1, want 0 to 3": dict(key_of=[0, 1, 2, -1]),
    "key_of has 2 entries, want one for each of the 4": dict(key_of=[0, 1]),
    "value_of is 'abcd', want a list of integers": dict(value_of="abcd"),
    "scale is 'x', want a number": dict(scale="x"),
    "scale is nan, want a finite number": dict(scale=math.nan),
    "scale is a tensor": dict(scale=torch.tensor(1.0)),
    "causal is 2, want True or False": dict(causal=2),
    "precision is 2, want 'highest' or 'high'": dict(precision=2),
    "precision is medium, want highest or high": dict(precision="medium"),
    "precision is high, want highest: it is of float32 products by AMX tiles .amx_tile, amx_bf16., not Double": dict(
        q=Q.double(), k=K.double(), v=V.double(), precision="high"
    ),
    "pre_identity is None, want True or False": dict(pre_identity=None),
    "window is 1.5, want 0": dict(causal=True, window=1.5),
    "window is 1208925819614629174706176, want 0": dict(causal=True, window=2**80),
    "window is -1, want 0": dict(causal=True, window=-1),
    "window is True, want 0": dict(causal=True, window=True),
    "window is np.True_, want 0": dict(causal=True, window=np.True_),
    "window is np.float64.2.0., want 0": dict(causal=True, window=np.float64(2)),
    "window is 3 without causal": dict(window=3),
    "query_start is .0, 1., want a tensor": dict(query_start=[0, 1]),
    "query_start has dtype Float, want int32 or int64": dict(query_start=torch.zeros(2)),
    "documents has dtype Bool, want int32 or int64": dict(documents=torch.zeros(2, 5, dtype=torch.bool)),
    r"query_start has shape \[3\], want \[B=2\]": dict(query_start=integers([0, 1, 2])),
    "query_start holds 4611686018427387904, want a position within 2.60": dict(query_start=integers([0, 2**62])),
    "key_end holds 6, want 0 to the 5 keys": dict(key_end=integers([5, 6])),
    r"documents has shape \[2, 4\], want \[B=2,S=5\]": dict(documents=torch.zeros(2, 4, dtype=torch.long)),
}


def said(words, call, kind=ValueError):
    with pytest.raises(kind, match=words) as caught:
        call()
    assert type(caught.value) is kind and "\n" not in str(caught.value), caught.value


@pytest.mark.parametrize("words, given", ATTENTION.items(), ids=range(len(ATTENTION)))
def test_a_wrong_argument_of_the_operator_is_named(words, given):
    said("^composed_attention: " + words, lambda: attend(**given))


def test_a_window_beyond_every_text_is_none():
    for mix in ({}, {"pre_weight": torch.eye(4) * 2}):  # with a mix its buffers go by the window
        assert torch.equal(attend(causal=True, window=2**63 - 1, **mix), attend(causal=True, **mix))


def test_an_integer_is_what_python_takes_as_an_index():
    want = attend(causal=True, window=2, key_of=[1, 0, 3, 2])
    for kind in (np.int64, np.uint8, np.array):
        assert torch.equal(attend(causal=True, window=kind(2), key_of=[kind(head) for head in (1, 0, 3, 2)]), want)


def test_help_says_what_pair_lambda_takes():
    assert "pair_lambda, a tensor [], [Ho] or [B,T,Ho]" in motet.composed_attention.__doc__
    for shape in ([], [2], [2, 5, 2]):
        have = attend(v=V[:, :, :2], pair_lambda=torch.full(shape, 0.5))
        torch.testing.assert_close(have, attend(v=V[:, :, :2], pair_lambda=torch.tensor(0.5)))


OUT, LSE = OPS.composed_attention(Q, K, V)
WANTED = [True] * 3 + [False] * 20
RAW = {
    "wanted has 1 entries, want one for each of the 23 inputs": lambda: backward(wanted=[True]),
    "wanted has 43 entries": lambda: backward(wanted=WANTED + [False] * 20),
    "the gradient of bias is wanted, which is not given": lambda: backward(wanted=[True] * 23),
    r"dout has shape \[2, 2, 4, 8\], want \[2, 5, 4, 8\]": lambda: backward(dout=OUT[:, :2]),
    r"out has shape \[2, 5, 4, 3\], want": lambda: backward(out=OUT[..., :3]),
    "dout has dtype Double, want Float": lambda: backward(dout=OUT.double()),
    r"lse has shape \[1, 4, 5\], want \[2, 4, 5\]": lambda: backward(lse=LSE[:1]),
    "lse has dtype Int, want Float": lambda: backward(lse=LSE.int()),
    r"attention_given_lse: lse has shape \[1, 4, 5\]": lambda: OPS.attention_given_lse(LSE[:1], Q, K, V),
    "attention_given_lse: lse has dtype Int": lambda: OPS.attention_given_lse(LSE.int(), Q, K, V),
    r"apply_head_mix: scores has shape \[5\]": lambda: OPS.apply_head_mix(torch.zeros(5), weight=torch.eye(5)),
    "apply_head_mix: scores has dtype Int": lambda: OPS.apply_head_mix(LSE[None].int(), weight=torch.eye(2)),
    "apply_head_mix: weight is Int on cpu, want": lambda: OPS.apply_head_mix(LSE[None], weight=torch.eye(2).int()),
    "apply_head_mix: weight is Float on meta": lambda: OPS.apply_head_mix(LSE[None], weight=torch.eye(2, device="meta")),
    r"apply_head_mix: mix_weight has shape \[5, 5\]": lambda: OPS.apply_head_mix(LSE[None], weight=torch.eye(5)),
}


def backward(dout=OUT, out=OUT, lse=LSE, wanted=WANTED):
    return OPS.composed_attention_backward(dout, out, lse, Q, K, V, wanted=wanted)


@pytest.mark.parametrize("words, call", RAW.items(), ids=range(len(RAW)))
def test_wrong_input_to_the_torch_operators_is_named(words, call):
    said(words, call)


# ---- modules

MODULES = {
    "softmax": motet.SoftmaxAttention(16),
    "dcmha": motet.DCMHA(16),
    "differential v1": motet.DifferentialAttention(16),
    "differential v2": motet.DifferentialAttention(16, version=2),
    "coca": motet.CocaAttention(16),
    "talking heads": motet.TalkingHeadsAttention(16, dynamic="both"),
    "key size": motet.KeySizeAttention(16),
}
X = torch.randn(2, 5, 16)
P = torch.arange(5)
CALLS = {  # what is wrong -> a call of module m, whose own keys of X are `past`
    "x is .1., want a tensor": lambda m, past: m([1]),
    r"x is of shape \[5, 16\], want \[B, T, 16\]": lambda m, past: m(X[0]),
    r"x is of shape \[2, 5, 8\]": lambda m, past: m(X[..., :8]),
    "x is of dtype torch.float64, want the parameters' torch.float32": lambda m, past: m(X.double()),
    "x is of dtype torch.int32": lambda m, past: m(X.int()),
    "x is on meta, want the parameters' device cpu": lambda m, past: m(X.to("meta")),
    "positions is of dtype torch.float32, want int64 or int32": lambda m, past: m(X, P.float()),
    "positions is of dtype torch.bool": lambda m, past: m(X, P.bool()),
    r"positions is of shape \[4\], want \[5\] or \[2, 5\]": lambda m, past: m(X, P[:4]),
    r"positions is of shape \[1\], want": lambda m, past: m(X, P[:1]),
    r"positions is of shape \[3, 5\], want": lambda m, past: m(X, P.expand(3, 5)),
    r"positions is of shape \[\], want": lambda m, past: m(X, torch.tensor(3)),
    "positions is .0, 1., want a tensor": lambda m, past: m(X, [0, 1]),
    "positions is on meta": lambda m, past: m(X, P.to("meta")),
    "past is a tensor of shape .2, 5, 16., want the keys that": lambda m, past: m(X, past=X),
    "past is a dictionary of nothing, want the keys": lambda m, past: m(X, past={}),
    "past is of k, want": lambda m, past: m(X, past={"k": past["k"]}),
    r"past\['v'\] is None, want a tensor": lambda m, past: m(X, past={**past, "v": None}),
    r"past\['v'\] is of shape .*want \[2, 5,": lambda m, past: m(X, past={**past, "v": past["v"][:, :2]}),
    r"past\['k'\] is of shape \[1,": lambda m, past: m(X, past={name: t[:1] for name, t in past.items()}),
    r"past\['k'\] is torch.float64 on cpu, want": lambda m, past: m(X, past={n: t.double() for n, t in past.items()}),
    r"past\['k'\] is torch.float32 on meta": lambda m, past: m(X, past={n: t.to("meta") for n, t in past.items()}),
    "past is given beside memory": lambda m, past: m(X, past=past, memory=X),
    r"memory is of shape \[2, 5, 8\], want \[B, T, 16\]": lambda m, past: m(X, memory=X[..., :8]),
    "memory is 'a', want a tensor": lambda m, past: m(X, memory="a"),
    "memory is a batch of 1, want x's batch 2": lambda m, past: m(X, memory=X[:1]),
    "memory is of dtype torch.float64": lambda m, past: m(X, memory=X.double()),
    "memory is given to a causal layer, want causal=False, or query_start": lambda m, past: m(X, memory=X),
    "memory is given to a causal layer": lambda m, past: m(X, memory=X, bias=torch.zeros(1, 1, 5, 5)),
    "memory_positions is given without memory or past": lambda m, past: m(X, memory_positions=P),
    r"memory_positions is of shape \[3\]": lambda m, past: m(X, memory=X, memory_positions=P[:3]),
    r"memory_positions is of shape \[5\], want \[10\]": lambda m, past: m(X, past=past, memory_positions=P),
    "memory_positions is of dtype torch.float32": lambda m, past: m(X, memory=X, memory_positions=P.float()),
    "length is 'a', want a number of tokens": lambda m, past: m(X, length="a"),
    "length is -1, want": lambda m, past: m(X, length=-1),
    "length is 2.5, want": lambda m, past: m(X, length=2.5),
    r"bias has shape \[3\]": lambda m, past: m(X, bias=torch.zeros(3)),
    r"key_end has shape \[3\]": lambda m, past: m(X, key_end=P[:3]),
    r"x is of shape \[5, 16\]": lambda m, past: m.queries(X[0]),
    r"memory is of shape \[2, 5, 3\]": lambda m, past: m.keys(X[..., :3]),
    r"positions is of shape \[3\]": lambda m, past: m.keys(X, P[:3]),
    r"out is of shape \[2, 5, 16\], want \[B, T,": lambda m, past: m.finish(X),
    "x is None, want": lambda m, past: motet.SoftmaxAttention(16, output_gate=True).finish(torch.zeros(2, 5, 4, 4)),
    r"x is of shape \[2, 5, 16\], want \[2, 4\] tokens": lambda m, past: motet.SoftmaxAttention(
        16, output_gate=True
    ).finish(torch.zeros(2, 4, 4, 4), X),
    "queries is a dictionary of nothing, want what queries": lambda m, past: m.attend({}, past),
    "keys is a dictionary of k, want what keys": lambda m, past: m.attend(m.queries(X), {"k": past["k"]}),
}


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("words, call", CALLS.items(), ids=range(len(CALLS)))
def test_wrong_input_to_a_module_is_named(words, call, name):
    module = MODULES[name]
    past = {part: t.detach() for part, t in module(X, return_keys=True)[1].items()}
    said(words, lambda: call(module, past))


def test_a_bias_beside_a_position_bias_is_checked():
    module = motet.SoftmaxAttention(16, position_bias="alibi")
    said(r"bias is of shape \[3\], want \[1 or 2, 1 or 4, 5, 5\]", lambda: module(X, bias=torch.zeros(3)))
    bias = torch.randn(1, 1, 5, 5)
    assert not torch.equal(module(X, bias=bias), module(X))


SETTINGS = {
    "hidden_size is 16.0, want integer": lambda cls: cls(16.0),
    "hidden_size is True, want integer": lambda cls: cls(True),
    "hidden_size is '16', want integer": lambda cls: cls("16"),
    "hidden_size is 0, want integer, 1 to": lambda cls: cls(0),
    "hidden_size is 1099511627776, want integer": lambda cls: cls(2**40),
    "layer is -1, want integer, 0 to": lambda cls: cls(16, layer=-1),
    "memory_size is None, want integer": lambda cls: cls(16, memory_size=None),
    "max_position is -5, want integer": lambda cls: cls(16, max_position=-5),
    "causal is 'no', want True or False": lambda cls: cls(16, causal="no"),
    "dtype is torch.int32, want torch.float32": lambda cls: cls(16, dtype=torch.int32),
    "dtype is 'float32', want": lambda cls: cls(16, dtype="float32"),
    "device is 'nodev', want a device": lambda cls: cls(16, device="nodev"),
    "num_heads is True, want integer": lambda cls: cls(16, num_heads=True),
    "rope_base is nan, want number": lambda cls: cls(16, rope_base=math.nan),
}


@pytest.mark.parametrize("cls", dict.fromkeys(map(type, MODULES.values())), ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("words, call", SETTINGS.items(), ids=range(len(SETTINGS)))
def test_a_wrong_setting_of_a_module_is_named(words, call, cls):
    said(f"^{cls.__name__}: {words}", lambda: call(cls))


def test_a_version_is_named_as_it_was_given():
    for version in (1.0, 2.0, "1", True, 3):
        words = f"DifferentialAttention: version is {version!r}, want one of v1, v2"
        said(words, lambda version=version: motet.DifferentialAttention(16, version=version))
    assert motet.DifferentialAttention(16, version=np.int64(2)).options["version"] == "v2"


def test_an_unknown_argument_is_a_type_error():
    for name in ("causal", "windw", "q"):
        said(f"SoftmaxAttention: unknown argument '{name}'", lambda: MODULES["softmax"](X, **{name: X}), TypeError)


def test_register_hf_wants_a_name():
    for name in (3, ""):
        said("register_hf: name is", lambda: motet.register_hf(name))


# ---- torch.func

WORDS = "composed_attention: .*not implemented, want"


@pytest.mark.parametrize("transform", ["grad", "vjp", "jacrev", "jacfwd", "hessian", "jvp", "linearize"])
def test_derivatives_under_torch_func_say_what_is_not_there(transform):
    function = lambda q: attend(q=q).sum()  # noqa: E731
    use = getattr(torch.func, transform)
    calls = {"jvp": lambda: use(function, (Q,), (Q,)), "vjp": lambda: use(function, Q), "linearize": lambda: use(function, Q)}
    said(WORDS, calls.get(transform, lambda: use(function)(Q)), NotImplementedError)
    if transform == "grad":
        said(WORDS, lambda: use(lambda x: MODULES["dcmha"](x).sum())(X), NotImplementedError)
        said(WORDS, lambda: torch.func.vmap(use(lambda q: attend(q=q[None], k=K[:1], v=V[:1]).sum()))(Q), NotImplementedError)


def test_forward_mode_and_batched_gradients_say_what_is_not_there():
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(Q, Q)
        said(WORDS, lambda: attend(q=dual), NotImplementedError)
    q = Q.clone().requires_grad_()
    out = attend(q=q)
    ones = torch.ones(3, *out.shape)
    said(WORDS, lambda: torch.autograd.grad(out, q, ones, is_grads_batched=True), NotImplementedError)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_vmap_runs_one_sample_after_the_other():
    have = torch.func.vmap(lambda q: attend(q=q, causal=True))(torch.stack((Q, 2 * Q)))
    want = torch.stack((attend(causal=True), attend(q=2 * Q, causal=True)))
    torch.testing.assert_close(have, want)
