"""Published checkpoints: what motet loads and saves is what Hugging Face transformers computes, also for a real model."""
import json
import random
import shutil
import subprocess
import sys
import time

import numpy
import pytest
from conftest import MOTET, ROOT, environment, last_checkpoint, refused, run, slow

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
safetensors_torch = pytest.importorskip("safetensors.torch", reason="safetensors is not installed: pip install safetensors")
DATA = ROOT.parent / "shared" / "data"
needs_data = pytest.mark.skipif(not (DATA / "model").is_dir(), reason="no model of llama2.c here")

SIZES = dict(
    vocab_size=97,
    hidden_size=48,
    intermediate_size=80,
    num_hidden_layers=2,
    num_attention_heads=6,
    max_position_embeddings=64,
    attn_implementation="eager",
)
MODELS = {
    "llama": lambda: transformers.LlamaConfig(**SIZES, num_key_value_heads=2, attention_bias=True, rms_norm_eps=1e-5),
    "llama, tied, llama3 scaling": lambda: transformers.LlamaConfig(
        **SIZES,
        head_dim=16,
        tie_word_embeddings=True,
        rope_parameters=dict(
            rope_type="llama3",
            rope_theta=5e5,
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=16,
        ),
    ),
    "llama, linear scaling": lambda: transformers.LlamaConfig(
        **SIZES, rope_parameters=dict(rope_type="linear", rope_theta=1e4, factor=2.0)
    ),
    "gpt_neox": lambda: transformers.GPTNeoXConfig(**SIZES),
    "gpt_neox, sequential, tanh, half of the head": lambda: transformers.GPTNeoXConfig(
        **SIZES,
        use_parallel_residual=False,
        hidden_act="gelu_pytorch_tanh",
        rope_parameters=dict(rope_type="default", rope_theta=5e3, partial_rotary_factor=0.5),
    ),
    "diffllama": lambda: transformers.DiffLlamaConfig(**SIZES, num_key_value_heads=2),
    "diffllama, tied": lambda: transformers.DiffLlamaConfig(**SIZES, tie_word_embeddings=True, hidden_act="gelu"),
}


def record(folder, ids, logits):
    """expected.safetensors of a model folder: what `motet verify` compares."""
    spec = {
        "program": "model",
        "window_mask": {"logits": "exact", "loss": "exact", "grad_norm": "exact"},
        "logits_from_position": 0,
    }
    metadata = {"spec": json.dumps(spec), "roles": json.dumps({"input_ids": "input", "logits": "output"})}
    safetensors_torch.save_file({"input_ids": ids, "logits": logits}, folder / "expected.safetensors", metadata)


def logits_of(folder, ids, dtype):
    """What transformers computes from a folder."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()
    for module in model.modules():  # frequencies were made in float32 and kept
        if dtype is torch.float64 and hasattr(module, "inv_freq"):
            module.inv_freq = type(module)(model.config).inv_freq.double()
    with torch.no_grad():
        return model(ids).logits.contiguous()


def verified(folder, dtype="float64", tolerance=1e-9):
    done = run("verify", folder, "--dtype", dtype, "--tolerance", tolerance, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def converted(source, layout, out, *more):
    done = run("convert", source, "--to", layout, "--out", out, *more)
    assert done.returncode == 0, done.stderr
    return out


# torch.compile looks up the functions of torch once in a process: before the fixture below puts others in their place.
torch._dynamo.trace_rules.get_torch_obj_rule_map()


@pytest.fixture(autouse=True)
def double_rotary_tables(monkeypatch):
    """transformers casts rotary frequencies and norms to float32 inside a float64 model; here they stay exact."""
    monkeypatch.setattr(torch.Tensor, "float", lambda self: self.double())
    original = torch.Tensor.to

    def to(self, *arguments, **named):
        if arguments and arguments[0] is torch.float32:
            arguments = (torch.float64, *arguments[1:])
        if named.get("dtype") is torch.float32:
            named["dtype"] = torch.float64
        return original(self, *arguments, **named)

    monkeypatch.setattr(torch.Tensor, "to", to)
    for name in ("arange", "sum"):
        made = getattr(torch, name)
        wide = lambda *arguments, made=made, dtype=None, **more: made(  # noqa: E731
            *arguments, dtype=torch.float64 if dtype is torch.float32 else dtype, **more
        )
        monkeypatch.setattr(torch, name, wide)
    softmax = torch.nn.functional.softmax
    monkeypatch.setattr(
        torch.nn.functional, "softmax", lambda x, dim=None, dtype=None, **more: softmax(x, dim=dim, dtype=x.dtype)
    )


@pytest.mark.parametrize("name", MODELS)
def test_transformers_loads_what_we_save_and_agrees(name, tmp_path):
    torch.manual_seed(1)
    theirs = transformers.AutoModelForCausalLM.from_config(MODELS[name]())
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    theirs.save_pretrained(tmp_path / "theirs")
    ids = torch.randint(0, 97, (2, 40))
    expected = logits_of(tmp_path / "theirs", ids, torch.float64)
    record(tmp_path / "theirs", ids, expected)
    verified(tmp_path / "theirs")

    ours = converted(tmp_path / "theirs", "motet", tmp_path / "ours")
    (ours / "published_config.json").unlink()  # so that config.json is written from what we understood
    back = converted(ours, name.split(",")[0], tmp_path / "back")
    again = logits_of(back, ids, torch.float64)
    assert (again - expected).abs().max() <= 1e-9 * expected.abs().max()


def test_stock_keys_of_other_versions_are_understood(tmp_path):
    """The spelling of transformers 4 (rope_theta, rope_scaling) and of 5 (rope_parameters) mean the same."""
    source = ROOT / "tests" / "golden" / "model" / "llama_mha"
    shutil.copytree(source, tmp_path / "m")
    config = json.loads((source / "config.json").read_text())
    config["rope_parameters"] = {"rope_theta": config.pop("rope_theta"), "rope_type": "default"}
    config["unheard_of"] = 3
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    done = verified(tmp_path / "m", tolerance=1e-10)
    assert "the key 'unheard_of' is not known and has no effect here" in done.stderr


# ---- convert on the command line


def test_convert_refuses_in_one_line(tmp_path):
    source = ROOT / "tests" / "golden" / "model" / "llama_mha"
    assert "--out is missing" in refused(2, "convert", source)
    assert "PATH is missing" in refused(2, "convert", "--out", tmp_path / "x")
    assert "exists, want a new folder" in refused(2, "convert", source, "--out", tmp_path)
    assert "--to: unknown layout 'dcforme': nearest is 'dcformer'" in refused(2, "convert", source, "--to", "dcforme", "--out", tmp_path / "x")
    assert "holds the mechanism coca" in refused(1, "convert", source, "--to", "coca_llama", "--out", tmp_path / "x")
    assert "no such model folder" in refused(1, "convert", tmp_path / "none", "--out", tmp_path / "x")
    assert "--seed: has no meaning for a conversion without --retrofit" in refused(2, "convert", source, "--out", tmp_path / "x", "--seed", "5")
    line = refused(2, "inspect", source / "model.safetensors", "--mechanism", "dcmha")
    assert line == "motet: --mechanism: has no meaning for tensors without a model"
    assert list(tmp_path.iterdir()) == []


@needs_data
def test_a_model_of_llama2c_keeps_the_tokenizer_beside_it(tmp_path):
    for name, file in (("model.bin", "stories260K.bin"), ("tokenizer.bin", "tok512.bin")):
        shutil.copy(DATA / "model" / file, tmp_path / name)
    done = run("convert", tmp_path / "model.bin", "--out", tmp_path / "x")
    assert (done.returncode, done.stderr) == (0, "") and "from tokenizer.bin" in done.stdout
    texts = [run("generate", "-m", tmp_path / name, "-p", "Once", "-n", "20", "--temp", "0").stdout for name in ("model.bin", "x")]
    assert texts[0] == texts[1] and texts[0].startswith("Once")
    (tmp_path / "tokenizer.bin").unlink()
    done = run("convert", tmp_path / "model.bin", "--out", tmp_path / "y")
    assert done.returncode == 0 and "warning: convert: no tokenizer.json: " in done.stderr and not (tmp_path / "y" / "tokenizer.json").exists()


def test_a_pickle_gets_three_lines_of_python(tmp_path):
    torch.save({"a": torch.zeros(2)}, tmp_path / "pytorch_model.bin")
    done = run("convert", tmp_path / "pytorch_model.bin", "--out", tmp_path / "x")
    assert done.returncode == 1 and done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 4 and "a pickle" in lines[0]
    code = "\n".join(line.strip() for line in lines[1:])
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert torch.equal(safetensors_torch.load_file(tmp_path / "pytorch_model.safetensors")["a"], torch.zeros(2))


def test_inspect_shows_published_folders_and_bare_tensors(tmp_path):
    folder = ROOT / "tests" / "golden" / "model" / "dcpythia"
    shown = {row["what"]: row["value"] for row in json.loads(run("inspect", folder, "--json").stdout)}
    assert shown["layout"] == "dcpythia" and shown["mechanism"] == "dcmha" and shown["attention.rope_fraction"] == 0.25
    done = run("inspect", folder / "model.safetensors")
    assert done.returncode == 0 and "stored.F32" in done.stdout


# ---- a full disk, a kill


WAYS = [[], ["--retrofit", "dcmha"], ["--to", "llama", "--dtype", "bfloat16"]]


@pytest.mark.parametrize("more", WAYS, ids=str)
def test_a_full_disk_is_one_line_and_leaves_nothing(more, model, tmp_path):
    for largest in (0, 200, 4096):
        line = refused(1, "convert", model, "--out", tmp_path / "out", *more, largest_file=largest)
        assert "cannot write" in line and "File too large" in line
        assert list(tmp_path.iterdir()) == []
    converted(model, "motet", tmp_path / "out")
    before = {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}
    assert "exists, want a new folder" in refused(2, "convert", model, "--out", tmp_path / "out", *more)
    assert before == {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}


@pytest.mark.parametrize("more", WAYS[:2], ids=str)
def test_a_kill_leaves_a_whole_folder_or_none(more, tmp_path):
    sizes = SIZES | dict(vocab_size=20000, hidden_size=240, attn_implementation="eager")  # 40 MB take a while to write
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)).save_pretrained(tmp_path / "source")
    whole = converted(tmp_path / "source", "motet", tmp_path / "whole", *more)
    wanted = {file.name: file.read_bytes() for file in whole.iterdir()}
    chance, hit = random.Random(1), 0
    for trial in range(4):
        out = tmp_path / f"trial{trial}" / "out"
        command = [MOTET, "convert", tmp_path / "source", "--out", out, *more]
        with subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL) as process:
            while process.poll() is None and not any(out.parent.glob(".out.tmp-*")):
                time.sleep(0.001)
            time.sleep(chance.uniform(0, 0.05))
            hit += process.poll() is None
            process.kill()
        if out.exists():
            assert {file.name: file.read_bytes() for file in out.iterdir()} == wanted
            shutil.rmtree(out)
        converted(tmp_path / "source", "motet", out, *more)  # what was left is not in the way
        assert {file.name: file.read_bytes() for file in out.iterdir()} == wanted
    assert hit > 0


# ---- a real model


@pytest.mark.slow
def test_smollm_converts_and_agrees_with_transformers(smollm, tmp_path):
    folder = converted(smollm, "llama", tmp_path / "smollm2")
    torch.manual_seed(0)
    ids = torch.randint(0, 49152, (1, 512))
    expected = logits_of(folder, ids, torch.float64)
    record(folder, ids, expected)
    verified(folder)
    verified(folder, "float32", 1e-5)
    assert (folder / "chat_template.jinja").read_text().startswith("{%")
    shown = run("inspect", smollm).stdout
    assert "gguf.tokenizer.ggml.tokens" in shown and "stored.Q4_1" in shown


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["dcmha", "talking_heads", "differential_v2", "key_size"])
def test_smollm_starts_equal_with_another_mechanism(mechanism, smollm, tmp_path):
    torch.manual_seed(0)
    folder = converted(smollm, "llama", tmp_path / "smollm2")
    ids = torch.randint(0, 49152, (1, 64))
    record(folder, ids, logits_of(folder, ids, torch.float64))
    out = converted(folder, "motet", tmp_path / mechanism, "--retrofit", mechanism)
    shutil.copy(folder / "expected.safetensors", out)
    verified(out, "float32", 3e-5)  # float32 through 30 layers: 0.9e-5 to 1.1e-5 was seen, which of them the processor decides


@pytest.mark.slow
def test_quantised_numbers_are_those_of_the_gguf_package(smollm, tmp_path):
    gguf = pytest.importorskip("gguf", reason="gguf is not installed: pip install gguf")
    folder = converted(smollm, "llama", tmp_path / "smollm2")
    ours = safetensors_torch.load_file(folder / "model.safetensors")
    names = {"token_embd.weight": "model.embed_tokens.weight", "blk.3.ffn_down.weight": "model.layers.3.mlp.down_proj.weight"}
    for tensor in gguf.GGUFReader(str(smollm)).tensors:
        if tensor.name in names:
            theirs = torch.from_numpy(gguf.quants.dequantize(tensor.data, tensor.tensor_type).copy())
            assert torch.equal(theirs, ours[names.pop(tensor.name)])
    assert not names


def quantised(gguf, rows, columns, kind, random):
    """Bytes of a type with scales that are small numbers, and the numbers that the gguf package sees in them."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    raw = random.integers(0, 256, (rows, columns // block * size), dtype=numpy.uint8)
    blocks = raw.reshape(rows, -1, size)
    scales = {"Q6_K": [208], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q4_1": [0, 2], "Q5_1": [0, 2]}.get(kind.name, [0])
    for at in scales:
        blocks[:, :, at : at + 2] = random.uniform(-0.1, 0.1, blocks.shape[:2]).astype(numpy.float16)[..., None].view(numpy.uint8)
    if block == 1:  # plain numbers
        numbers = random.standard_normal((rows, columns)).astype(numpy.float32)
        raw = gguf.quants.quantize(numbers, kind)
    return raw, gguf.quants.dequantize(raw, kind)


KINDS = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]


@pytest.mark.parametrize("name", KINDS)
def test_every_type_of_a_gguf_is_the_gguf_packages(name, tmp_path):
    """A model with grouped heads that the package wrote, matrices in one type: the numbers, the order of rows, the sizes."""
    gguf = pytest.importorskip("gguf", reason="gguf is not installed: pip install gguf")
    kind, random = gguf.GGMLQuantizationType[name], numpy.random.default_rng(5)
    width, heads, groups, vocabulary = 256, 4, 2, 32
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_embedding_length(width)
    writer.add_context_length(64)
    writer.add_block_count(1)
    writer.add_feed_forward_length(512)
    writer.add_head_count(heads)
    writer.add_head_count_kv(groups)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(20000.0)
    writer.add_eos_token_id(3)
    wanted = {}

    def add(theirs, ours, rows, columns):
        raw, numbers = quantised(gguf, rows, columns, kind, random)
        writer.add_tensor(f"{theirs}.weight", raw, raw_dtype=kind)
        wanted[f"{ours}.weight"] = numbers

    layer, attention = "model.layers.0.", "model.layers.0.self_attn."
    add("token_embd", "model.embed_tokens", vocabulary, width)
    add("output", "lm_head", vocabulary, width)
    add("blk.0.attn_q", attention + "q_proj", width, width)
    add("blk.0.attn_k", attention + "k_proj", width // 2, width)
    add("blk.0.attn_v", attention + "v_proj", width // 2, width)
    add("blk.0.attn_output", attention + "o_proj", width, width)
    add("blk.0.ffn_gate", layer + "mlp.gate_proj", 512, width)
    add("blk.0.ffn_up", layer + "mlp.up_proj", 512, width)
    add("blk.0.ffn_down", layer + "mlp.down_proj", width, 512)
    for theirs, ours in {"blk.0.attn_norm": "input_layernorm", "blk.0.ffn_norm": "post_attention_layernorm"}.items():
        wanted[f"{layer}{ours}.weight"] = random.standard_normal(width).astype(numpy.float32)
        writer.add_tensor(f"{theirs}.weight", wanted[f"{layer}{ours}.weight"])
    wanted["model.norm.weight"] = random.standard_normal(width).astype(numpy.float32)
    writer.add_tensor("output_norm.weight", wanted["model.norm.weight"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    for part, count in {"q_proj": heads, "k_proj": groups}.items():  # llama.cpp's pairs (2j, 2j + 1) are (j, j + D/2) here
        rows = wanted[f"{attention}{part}.weight"].reshape(count, width // heads // 2, 2, width)
        wanted[f"{attention}{part}.weight"] = rows.swapaxes(1, 2).reshape(-1, width)
    folder = converted(tmp_path / "m.gguf", "llama", tmp_path / "out")
    ours = safetensors_torch.load_file(folder / "model.safetensors")
    assert set(ours) == set(wanted)
    for tensor, numbers in wanted.items():
        assert numpy.array_equal(ours[tensor].float().numpy(), numbers), tensor
        kept = name if name in ("F16", "BF16") and numbers.ndim == 2 else "F32"
        assert ours[tensor].dtype == {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32}[kept], tensor
    config = json.loads((folder / "config.json").read_text())
    expected = dict(num_attention_heads=4, num_key_value_heads=2, head_dim=64, rms_norm_eps=1e-6, rope_theta=20000.0,
                    max_position_embeddings=64, eos_token_id=3, tie_word_embeddings=False)  # fmt: skip
    assert {key: config.get(key) for key in expected} == expected


# ---- another mechanism for a trained model


@pytest.mark.parametrize("mechanism", ["dcmha", *slow("talking_heads", "differential_v2", "key_size")])
def test_a_retrofitted_model_starts_equal_and_learns(mechanism, model, tmp_path):
    out = tmp_path / "new"
    done = run("convert", model, "--retrofit", mechanism, "--out", out)
    assert done.returncode == 0, done.stderr
    score = lambda folder: json.loads(run("eval", "-m", folder, "--json").stdout)[0]  # noqa: E731
    before, after = score(model), score(out)
    assert after["nats_per_token"] == pytest.approx(before["nats_per_token"], abs=1e-5)
    training = ["--steps", "60", "--ctx-size", "32", "--batch-size", "4", "--learning-rate", "3e-3", "-t", "1"]
    done = run("train", "--init", out, *training, "--out", tmp_path / "run", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["loss"] < before["nats_per_token"] - 0.1


def test_coca_is_said_not_to_start_equal(model, tmp_path):
    done = run("convert", model, "--retrofit", "coca", "--out", tmp_path / "new")
    assert done.returncode == 0 and "coca, not equal" in done.stdout
    assert "does not start equal, train the fresh t_proj first" in done.stderr
    stage = ["--steps", "2", "--ctx-size", "32", "--batch-size", "2", "-t", "1", "--freeze", "*", "--freeze", "!*.t_proj.*"]
    done = run("train", "--init", tmp_path / "new", *stage, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    before = safetensors_torch.load_file(tmp_path / "new" / "model.safetensors")
    after = safetensors_torch.load_file(last_checkpoint(tmp_path / "run") / "model.safetensors")
    assert [name for name in after if not torch.equal(after[name], before[name])] == [
        "model.layers.0.self_attn.t_proj.weight"
    ]


def test_train_init_takes_sizes_from_the_checkpoint_and_freezes(model, tmp_path):
    training = ["--init", model, "--steps", "2", "--ctx-size", "16", "--batch-size", "2", "-t", "1"]
    assert "comes from the checkpoint" in refused(2, "train", *training, "--num-layers", "3")
    assert "names no parameter" in refused(2, "train", *training, "--freeze", "nothing")
    done = run("train", *training, "--freeze", "*.mlp.*", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    before = safetensors_torch.load_file(last_checkpoint(model) / "model.safetensors")
    after = safetensors_torch.load_file(last_checkpoint(tmp_path / "run") / "model.safetensors")
    for name, tensor in after.items():
        assert torch.equal(tensor, before[name]) == (".mlp." in name), name
    assert " -c 16<" in (tmp_path / "run" / "report.html").read_text(), "eval of the model's own, longer context is another number"
