"""The Python package from the source tree (its library: build/libmotet_ops.so), and installed by pip (slow)."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig

import pytest
from conftest import FEW_WINDOWS, ROOT, environment, run

sys.path.insert(0, str(ROOT / "python"))
import torch  # noqa: E402
from torch.func import functional_call  # noqa: E402

import golden_layers  # noqa: E402
import motet  # noqa: E402
from motet import options  # noqa: E402

# One of each module and version, with what makes it exercise its code.
CASES = {
    "softmax": (motet.SoftmaxAttention, dict(num_kv_heads=2, qk_norm=True)),
    "dcmha": (motet.DCMHA, dict(groups=2, rank=1, static=True, window=2)),
    "differential v1": (motet.DifferentialAttention, dict(version=1, num_kv_heads=2, layer=3)),
    "differential v2": (motet.DifferentialAttention, dict(version=2, num_kv_heads=2)),
    "differential composed": (motet.DifferentialAttention, dict(compose=True)),
    "differential across": (motet.DifferentialAttention, dict(version=2, pairs="across", lambda_form="raw")),
    "coca": (motet.CocaAttention, dict(form="exact")),
    "talking heads": (motet.TalkingHeadsAttention, dict(softmax_heads=3, value_heads=2, dynamic="both")),
    "key size": (motet.KeySizeAttention, dict(key_dim=6, position_bias="relative")),
}
cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def make(case, hidden_size=16, dtype=torch.float64, seed=1):
    """A module whose parameters are all random, none small."""
    cls, given = case
    module = cls(hidden_size, dtype=dtype, **given)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.4)
    return module


def tokens(batch=2, length=6, width=16, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, length, width, generator=generator, dtype=torch.float64).to(dtype)


def trained(module, x):
    """Output, and gradients of a sum of it by x and every parameter."""
    x = x.detach().clone().requires_grad_()
    module.zero_grad()
    out = module(x)
    (out.float() * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
    return [out.detach(), x.grad, *(parameter.grad.clone() for parameter in module.parameters())]


# ---- the same as the C++ engine


def test_the_option_tables_are_those_of_the_engine():
    text = run("train", "--options").stdout
    sections = {}
    for line in text.splitlines():
        name = re.fullmatch(r'# of mechanism = "(\w+)"|(\[.*\])', line)
        if name:
            lines = sections.setdefault(name[1] or name[2], [])
        elif sections and line and not line.startswith("mechanism = "):
            lines.append(line.removeprefix("# "))
    assert [option.line() for option in options.MODEL] == sections["[model]"]
    assert [option.line() for option in options.COMMON] == sections["[model.attention]"]
    for mechanism, table in options.MECHANISMS.items():
        assert [option.line() for option in table] == sections.get(mechanism, []), mechanism
    assert {name for name in sections if not name.startswith("[")} <= set(options.MECHANISMS)


GOLDEN = [path for path in sorted((ROOT / "tests/golden/op").glob("*.safetensors")) if golden_layers.is_layer(path)]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_recorded_layer_of_the_original_code_is_reproduced(path):
    layer = golden_layers.GoldenLayer(path)
    x = layer.x.clone().requires_grad_()
    out = layer.run(x)
    (out * layer.cotangent).sum().backward()
    for have, want in ((out, layer.want), (x.grad, layer.x_gradient)):
        assert (have - want).abs().max() <= 1e-10 * want.abs().max()


class Model(torch.nn.Module):
    """A model folder of the engine in PyTorch: LLaMA's layer around our modules."""

    def __init__(self, config):
        super().__init__()
        width, inner = config["hidden_size"], config["intermediate_size"]
        norm = dict(eps=config["rms_norm_eps"])
        self.model = torch.nn.Module()
        self.model.embed_tokens = torch.nn.Embedding(config["vocab_size"], width)
        self.model.layers = torch.nn.ModuleList()
        for number in range(config["num_hidden_layers"]):
            layer = torch.nn.Module()
            layer.self_attn = motet.attention_layer(config, number)
            layer.input_layernorm = torch.nn.RMSNorm(width, **norm)
            layer.post_attention_layernorm = torch.nn.RMSNorm(width, **norm)
            layer.mlp = torch.nn.Module()
            layer.mlp.gate_proj = torch.nn.Linear(width, inner, bias=False)
            layer.mlp.up_proj = torch.nn.Linear(width, inner, bias=False)
            layer.mlp.down_proj = torch.nn.Linear(inner, width, bias=False)
            self.model.layers.append(layer)
        self.model.norm = torch.nn.RMSNorm(width, **norm)
        self.lm_head = torch.nn.Linear(width, config["vocab_size"], bias=False)

    def forward(self, ids):
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = x + layer.self_attn(layer.input_layernorm(x))
            y, mlp = layer.post_attention_layernorm(x), layer.mlp
            x = x + mlp.down_proj(torch.nn.functional.silu(mlp.gate_proj(y)) * mlp.up_proj(y))
        return self.lm_head(self.model.norm(x))


FOLDERS = [
    ("softmax", ["num_kv_heads=2", "rope_fraction=0.5", "bias=true"]),
    ("softmax", ["num_heads=6", "head_dim=4", "position_bias=alibi"]),
    ("softmax", ["causal=false", "position_bias=relative"]),
    ("softmax", ["output_gate=true"]),
    ("dcmha", ["groups=2", "rank=3", "static=true", "qk_norm=true", "window=5", "window_pattern=LG"]),
    ("dcmha", ["sides=query", "where=post", "low_rank=false", "rope_pairing=interleaved"]),
    ("dcmha", ["sides=key", "where=pre", "gelu=tanh", "gates=false", "qk_norm=true", "qk_norm_eps=0.1"]),
    ("differential", ["version=v1", "num_kv_heads=2", "output_gate=true"]),
    ("differential", ["lambda_start=constant", "lambda_init=0.3", "head_norm=plain", "head_norm_eps=0.01"]),
    ("differential", ["version=v2", "num_kv_heads=2", "rope_scaling=ntk", "rope_factor=2"]),
    ("coca", ["form=exact", "rope_scaling=linear", "rope_factor=2"]),
    ("coca", ["form=strict", "rope_scaling=dynamic", "rope_factor=2", "rope_trained_length=8"]),
    ("talking_heads", ["score_heads=2", "softmax_heads=6", "value_heads=3", "dynamic=both"]),
    ("talking_heads", ["mixes=pre", "dynamic=key", "residual=true", "qk_scale=none", "key_dim=8"]),
    ("talking_heads", ["static=false", "dynamic=query", "dynamic_weights=key"]),
    ("talking_heads", ["softmax_heads=3", "position_bias=alibi"]),
    ("talking_heads", ["collinear=exact"]),
    ("talking_heads", ["collinear=slack", "score_heads=2", "dynamic=both", "rope_fraction=0.5"]),
    ("talking_heads", ["collinear=strict", "mixes=post"]),
    ("key_size", ["key_dim=12", "position_bias=relative"]),
    ("softmax", ["head_norm=affine", "output_gate=true"]),
    ("softmax", ["head_norm=plain", "head_norm_eps=0.1", "num_kv_heads=2"]),
    ("differential", ["compose=true", "compose_rank=3", "num_kv_heads=2"]),
    ("differential", ["version=v2", "lambda_form=raw", "num_kv_heads=2"]),
    ("differential", ["version=v2", "lambda_form=none"]),
    ("differential", ["version=v2", "pairs=across", "num_kv_heads=2", "output_gate=true"]),
    ("dcmha", ["where=post", "window=5", "layers=last", "num_kv_heads=2", "bias=true"]),
    ("differential", ["layers=last"]),
    ("differential", ["version=v2", "position_bias=relative"]),
    ("key_size", ["value_dim=6", "rope_scaling=llama3", "rope_factor=4", "rope_trained_length=64"]),
]


def drawn(seed, at):
    """The number `at` of a stream of splitmix64."""
    z = (seed + (at + 1) * 0x9E3779B97F4A7C15) % 2**64
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> shift)) * factor % 2**64
    return z ^ (z >> 31)


def hidden(rows):
    """Rows of bytes as `motet eval masked` shows them (motet/data/masking.h), and where they are hidden."""
    shown, where = rows.clone(), torch.zeros_like(rows, dtype=torch.bool)
    text = drawn(0x73636F72 - 0x9E3779B97F4A7C15, 0)
    for row in range(rows.shape[0]):
        key = drawn(text, row)
        for at in range(rows.shape[1]):
            draw = drawn(key, at)
            if draw >> 32 >= int(0.15 * 2**32):
                continue
            where[row, at] = True
            if draw % 2**32 < int(0.8 * 2**32):
                shown[row, at] = 256  # the mask, beyond the bytes
            elif draw % 2**32 < int(0.9 * 2**32):
                shown[row, at] = drawn(key, 2**32 + at) * 256 >> 64
    return shown, where


@pytest.mark.parametrize("mechanism, given", FOLDERS)
def test_a_model_folder_gives_the_engines_loss(mechanism, given, tmp_path):
    sizes = "--hidden-size 16 --num-layers 2 --num-heads 4 --ctx-size 160 --batch-size 2 --steps 1 -t 1"
    sections = {"causal=false": "model"}
    sets = [word for option in given for word in ("--set", f"{sections.get(option, 'model.attention')}.{option}")]
    masked = "causal=false" in given
    sets += ["--set", "train.objective=masked"] if masked else []
    kind = ["--mechanism", mechanism, "--tokenizer", "bytes"]
    done = run("train", *sizes.split(), *FEW_WINDOWS, *kind, *sets, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "run" / "checkpoints").iterdir()
    weights, _ = golden_layers.read_safetensors(folder / "model.safetensors")
    model = Model(json.loads((folder / "config.json").read_text()))
    # Fresh maps are near the identity: larger ones show an error of theirs in the loss.
    generator = torch.Generator().manual_seed(1)
    weights = {name: torch.randn(t.shape, generator=generator) * 0.5 for name, t in weights.items()}
    model.load_state_dict(weights)  # strict: every name and shape is the engine's
    golden_layers.write_safetensors(folder / "model.safetensors", weights)
    text = (ROOT / "LICENSE").read_bytes()[500 : 500 + 321]
    (tmp_path / "text.txt").write_bytes(text[:320] if masked else text)  # a hidden token needs none behind it
    scored = run("eval", *(["masked"] if masked else []), "-m", folder, tmp_path / "text.txt", "--json", "-t", "1")
    assert scored.returncode == 0, scored.stderr
    ids = torch.tensor(list(text))
    shown, targets = ids[:320].view(2, 160), ids[1:]
    if masked:
        shown, where = hidden(shown)
        targets = torch.where(where, ids[:320].view(2, 160), -100).flatten()
    loss = torch.nn.functional.cross_entropy(model(shown).flatten(0, 1), targets).item()
    assert loss == pytest.approx(json.loads(scored.stdout)[0]["nats_per_token"], rel=1e-6)


# ---- PyTorch


def test_the_wrapper_is_the_operator():
    q, k, v = (tokens(seed=seed).unflatten(-1, (4, 4)) for seed in range(3))
    want = torch.ops.motet.composed_attention(q, k, v, causal=True, pre_weight=torch.eye(4, dtype=q.dtype))
    have = motet.composed_attention(q, k, v, causal=True, pre_weight=torch.eye(4, dtype=q.dtype), return_lse=True)
    assert all(torch.equal(a, b) for a, b in zip(have, want, strict=True))
    torch.testing.assert_close(motet.composed_attention(q, k, v, causal=True), want[0])


@cases
def test_opcheck_of_the_arguments_of_a_module(case):
    module, x = make(case), tokens()
    given = {**module.queries(x), **module.keys(x), **module.attention(torch.arange(6), torch.arange(6))}
    given = {name: t.detach().requires_grad_() if torch.is_tensor(t) else t for name, t in given.items()}
    arguments = tuple(given.pop(name) for name in "qkv")
    torch.library.opcheck(torch.ops.motet.composed_attention, arguments, given)


@cases
def test_gradcheck_of_a_module(case):
    module = make(case, hidden_size=8)
    names, values = zip(*module.named_parameters())

    def function(x, *parameters):
        return functional_call(module, dict(zip(names, parameters)), (x,))

    inputs = [tokens(1, 3, 8).requires_grad_(), *(value.detach().clone().requires_grad_() for value in values)]
    assert torch.autograd.gradcheck(function, inputs, atol=1e-7, rtol=1e-6)


@cases
def test_a_compiled_module_equals_the_eager_one(case):
    torch._dynamo.reset()
    module, x = make(case), tokens()
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    for have, want in zip(trained(compiled, x), trained(module, x), strict=True):
        torch.testing.assert_close(have, want, rtol=1e-12, atol=1e-12)


@pytest.mark.skipif(not (pathlib.Path(sysconfig.get_paths()["include"]) / "Python.h").exists(), reason="Inductor compiles against Python's headers")
@pytest.mark.parametrize("dynamic", [False, True])
def test_the_default_compiler_takes_a_module(dynamic):
    """Inductor has rules of its own for operators that it does not know."""
    torch._dynamo.reset()
    module, x = make(CASES["differential v1"]).float(), tokens().float()
    compiled = torch.compile(module, fullgraph=True, dynamic=dynamic)
    for have, want in zip(trained(compiled, x), trained(module, x), strict=True):
        torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-4)


def test_one_compilation_serves_other_lengths():
    torch._dynamo.reset()
    module = make(CASES["differential v1"])
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True, dynamic=True)
    for batch, length in ((6, 5), (7, 9)):  # Dynamo takes sizes that are equal at first for one size for ever
        x = tokens(batch, length)
        with torch._dynamo.config.patch(error_on_recompile=length == 9):
            for have, want in zip(trained(compiled, x), trained(module, x), strict=True):
                torch.testing.assert_close(have, want, rtol=1e-12, atol=1e-12)


@cases
def test_a_module_lives_on_its_device(case):
    cls, given = case
    module = cls(16, device="meta", **given)
    out, keys = module(torch.empty(2, 6, 16, device="meta"), return_keys=True)
    assert {t.device.type for t in (out, *keys.values(), *module.parameters())} == {"meta"}


@cases
def test_autocast_computes_in_bfloat16_and_keeps_float32_gradients(case):
    module, x = make(case, dtype=torch.float32), tokens(dtype=torch.float32)
    want = trained(module, x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        have = trained(module, x)
    assert have[0].dtype == torch.bfloat16 and all(gradient.dtype == torch.float32 for gradient in have[1:])
    for a, b in zip(have, want, strict=True):
        # Sums of products of 8 bits; the terms of the gradient of lambda cancel.
        assert (a.float() - b).norm() <= 0.1 * b.norm() + 1e-3


def all_modules():
    return torch.nn.ModuleDict({name: make(case) for name, case in CASES.items()})


class Sum(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = all_modules()

    def forward(self, x):
        return sum(part(x) for part in self.parts.values()).square().mean()


def one_process(rank, store, result):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(Sum())
    model(tokens()[rank : rank + 1]).backward()
    if rank == 0:
        torch.save({name: p.grad for name, p in model.module.named_parameters()}, result)
    with contextlib.suppress(RuntimeError):  # the other may be gone: what it had to say is said
        torch.distributed.barrier()
    os._exit(0)  # an interpreter that ends may meet gloo's threads and abort (pytorch issue 190489)


def test_two_processes_give_the_gradients_of_one(tmp_path):
    model = Sum()
    model(tokens()).backward()
    store, result = tmp_path / "store", tmp_path / "gradients"
    torch.multiprocessing.spawn(one_process, (str(store), str(result)), nprocs=2)
    have = torch.load(result, weights_only=True)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(have[name], parameter.grad, rtol=1e-10, atol=1e-12)


@cases
def test_cached_decoding_equals_the_whole_sequence(case):
    module, x = make(case), tokens(length=7)
    want = module(x)
    past, parts = None, []
    for part in x.split([4, 1, 2], 1):
        out, past = module(part, past=past, return_keys=True)
        parts.append(out)
    torch.testing.assert_close(torch.cat(parts, 1), want)


@cases
def test_left_padding_does_not_change_a_sequence(case):
    module, x = make(case), tokens(1, 5)
    padded = torch.cat((torch.full((1, 3, 16), torch.nan, dtype=x.dtype), x), 1)
    positions = torch.arange(8).unsqueeze(0) - 3
    out = module(padded, positions, key_begin=torch.tensor([3]))
    torch.testing.assert_close(out[:, 3:], module(x))


def test_a_module_attends_to_memory_of_another_width():
    module = motet.TalkingHeadsAttention(16, causal=False, memory_size=12, dynamic="both", dtype=torch.float64)
    memory = tokens(2, 9, 12)
    whole = module(tokens(), memory=memory)
    by_parts = module.finish(module.attend(module.queries(tokens()), module.keys(memory)))
    assert whole.shape == (2, 6, 16) and torch.equal(whole, by_parts)


def test_a_causal_layer_attends_to_memory_from_query_start_on():
    module, x = motet.SoftmaxAttention(16, num_heads=2, dtype=torch.float64), tokens()
    torch.testing.assert_close(module(x, memory=x, memory_positions=torch.arange(6), query_start=torch.zeros(2).long()), module(x))


def test_fresh_maps_have_the_engines_deviations():
    torch.manual_seed(0)
    dcmha = motet.DCMHA(256, num_heads=8)
    wanted = {  # K = 32, N/G = 8, R = 2
        "compose_hidden": (2 / (256 + 32)) ** 0.5,
        "compose_up": (1 / 32) ** 0.5 * 2 / (8 + 2) * 0.01,
        "compose_gate": (2 / (256 + 8)) ** 0.5 * 0.005,
    }
    for name, deviation in wanted.items():
        assert getattr(dcmha, name).std().item() == pytest.approx(deviation, rel=0.05)
    assert motet.DifferentialAttention(256, num_heads=2).lambda_q1.std().item() == pytest.approx(0.1, rel=0.3)
    assert torch.equal(motet.TalkingHeadsAttention(16).logits_mix, torch.eye(4))
    again = [torch.Generator().manual_seed(5) for _ in range(2)]
    with torch.no_grad():
        drawn = [dcmha.initialize_extras(generator) or dcmha.compose_up.clone() for generator in again]
    assert torch.equal(*drawn)


X = torch.zeros(1, 3, 16)
CONFIG = {"attention_mechanism": "coca", "attention_options": {}, "hidden_size": 16, "num_hidden_layers": 2}
REFUSED = {
    "unknown option 'rnak'; nearest is 'rank'": lambda: motet.DCMHA(16, rnak=1),
    "DCMHA: rank is 0, want integer, 1 to 64": lambda: motet.DCMHA(16, rank=0),
    "DCMHA: low_rank is 1, want true or false": lambda: motet.DCMHA(16, low_rank=1),
    "DCMHA: groups is 3, want a divisor of num_heads 4": lambda: motet.DCMHA(16, groups=3),
    "DCMHA: memory_size is 8, want 16": lambda: motet.DCMHA(16, memory_size=8),
    "version is 'v3', want one of v1, v2": lambda: motet.DifferentialAttention(16, version="v3"),
    "num_heads is 3, want an even number": lambda: motet.DifferentialAttention(18, num_heads=3),
    "num_heads is 4, want a divisor of hidden_size 18": lambda: motet.KeySizeAttention(18),
    "window is 4, want 0 without causal attention": lambda: motet.SoftmaxAttention(16, window=4, causal=False),
    "rope_fraction is 0.5, want 1": lambda: motet.CocaAttention(16, rope_fraction=0.5),
    "rope_pairing is 'interleaved', want 'half'": lambda: motet.TalkingHeadsAttention(
        16, collinear="slack", rope_pairing="interleaved"
    ),
    "compose is True and has no effect, want version = v1": lambda: motet.DifferentialAttention(16, version=2, compose=True),
    "lambda_form is 'raw' and has no effect, want version = v2": lambda: motet.DifferentialAttention(16, lambda_form="raw"),
    "compose_rank is 4 and has no effect, want compose = true": lambda: motet.DifferentialAttention(16, compose_rank=4),
    "num_kv_heads is 1, want an even number with pairs 'across'": lambda: motet.DifferentialAttention(
        16, version=2, pairs="across", num_kv_heads=1
    ),
    "layer is 2, want 0 to 1": lambda: motet.attention_layer(CONFIG, 2),
    "attention_mechanism is 'softmx', want one of coca,": lambda: motet.attention_layer(
        {**CONFIG, "attention_mechanism": "softmx"}, 0
    ),
    "README.md is no JSON object, want the config.json": lambda: motet.attention_layer(ROOT / "README.md", 0),
    "the key attention_options is missing": lambda: motet.attention_layer({"attention_mechanism": "coca"}, 0),
    "num_kv_heads is 2, want 0": lambda: motet.TalkingHeadsAttention(16, num_kv_heads=2),
    "dynamic_weights is 'key', want 'none' while mixes is 'pre'": lambda: motet.TalkingHeadsAttention(
        16, mixes="pre", dynamic_weights="key"
    ),
    "rope_trained_length is 0": lambda: motet.SoftmaxAttention(16, rope_scaling="dynamic"),
    r"x is of shape \[1, 3, 16\], want \[B, T, 8\]": lambda: motet.SoftmaxAttention(8)(X),
    "unknown argument 'cuasal'; nearest is 'causal'": lambda: motet.composed_attention(X, X, X, cuasal=True),
    "k has 3 heads and q score heads 4, want a divisor": lambda: motet.composed_attention(
        X.view(1, 3, 4, 4), torch.zeros(1, 3, 3, 4), X.view(1, 3, 4, 4)
    ),
}


def test_a_folder_stands_for_its_config(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    for place in (tmp_path, str(tmp_path / "config.json")):
        assert motet.attention_layer(place, 1).options == motet.attention_layer(CONFIG, 1).options
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    with pytest.raises(ValueError, match="is a run, want one of its checkpoints, .*/checkpoints/step_N"):
        motet.attention_layer(tmp_path / "run", 0)


@pytest.mark.parametrize("words, call", REFUSED.items(), ids=range(len(REFUSED)))
def test_an_error_is_one_line_that_says_what_is_wanted(words, call):
    with pytest.raises((TypeError, ValueError), match=words) as caught:
        call()
    assert "\n" not in str(caught.value)


# ---- the package


def test_the_examples_of_its_readme_run():
    text = (ROOT / "python" / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "python/README.md", "exec"), {})


@pytest.mark.parametrize("library, words", [(None, "is neither at"), (b"no library", "does not load into PyTorch")])
def test_a_missing_or_wrong_library_is_one_clear_error(library, words, tmp_path):
    shutil.copytree(ROOT / "python" / "motet", tmp_path / "motet")
    if library:
        (tmp_path / "motet" / "libmotet_ops.so").write_bytes(library)
    command = [sys.executable, "-c", "import motet"]
    done = subprocess.run(command, env=environment(PYTHONPATH=str(tmp_path)), capture_output=True, text=True)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: motet: ") and words in last and "--no-build-isolation" in last


def test_pip_installs_a_package_that_works(tmp_path):
    command = [sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "--no-index"]
    built_for = {name: value for name, value in os.environ.items() if name == "MOTET_CUDA_ARCHITECTURES"}  # minutes each
    variables = environment(**built_for)
    done = subprocess.run([*command, "--target", tmp_path, ROOT], env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    script = (
        "import motet, torch; x = torch.randn(1, 5, 16, requires_grad=True); motet.DCMHA(16)(x).sum().backward();"
        "import motet.huggingface; assert 'huggingface' in motet.huggingface.MotetConfig.__module__;"
        "print(motet.__file__)"
    )
    variables = environment(PYTHONPATH=str(tmp_path))
    used = subprocess.run([sys.executable, "-c", script], cwd="/", env=variables, capture_output=True, text=True)
    assert used.returncode == 0, used.stderr
    assert used.stdout.startswith(str(tmp_path))
