"""The rivals of bench/ as their protocol runs them: what they compute, and what they refuse."""
import importlib
import json
import pathlib
import subprocess
import sys
import time

import pytest
from conftest import ROOT, environment, run

sys.path.insert(0, str(ROOT / "bench"))
torch = pytest.importorskip("torch")
rival, attention, llama = (importlib.import_module(name) for name in ("rival", "rival_attention", "rival_llama"))

SIZES = {"batch": 2, "length": 48, "heads": 4, "head_dim": 16, "threads": 1, "seed": 1}
MODEL = {"hidden_size": 32, "num_layers": 1, "num_heads": 2, "num_kv_heads": 2, "intermediate_size": 64, "vocab_size": 97, "context": 16,
         "batch_size": 2, "threads": 1, "learning_rate": 1e-3, "weight_decay": 0.1, "seed": 1}  # fmt: skip


def ask(program, request, *lines):
    """The answers of a rival process."""
    given = "\n".join([json.dumps(request), *lines])
    done = subprocess.run([sys.executable, ROOT / "bench" / program], input=given, env=environment(), capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's end")
def test_a_rival_ends_with_the_program_that_started_it():
    program = "import subprocess, sys, time; print(subprocess.Popen(sys.argv[1:]).pid, flush=True); time.sleep(600)"
    command = [sys.executable, "-c", program, sys.executable, ROOT / "bench/rival_attention.py"]
    # Its input stays open here, so that it learns of the end by the system alone.
    parent = subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process = int(parent.stdout.readline())
    try:
        parent.stdin.write(json.dumps({**SIZES, "rival": "sdpa", "backward": False}) + "\n")
        parent.stdin.flush()
        assert "torch" in json.loads(parent.stdout.readline())
    finally:
        parent.kill()
        parent.wait()
    stat = pathlib.Path(f"/proc/{process}/stat")
    for _ in range(100):
        if not stat.exists() or " Z " in stat.read_text():
            return
        time.sleep(0.1)
    pytest.fail("it still runs")


def computed(name, **more):
    """The output and the gradients of what it draws, all rivals alike for one seed."""
    request = {**attention.DEFAULTS, **SIZES, "rival": name, "backward": True, "chunk": 20, "dtype": "float64", **more}
    torch.manual_seed(1)
    leaves = attention.Leaves(torch, request)
    with rival.only(torch, request["backend"]):
        out = attention.RIVALS[name](torch, request, leaves)()
    if not request["backward"]:
        return [out]
    out.backward(torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out))
    return [out.detach(), *(t.grad for t in leaves.made)]


@pytest.mark.parametrize(
    "one, other, more",
    [
        ("eager_mha", "sdpa", {}),
        ("sdpa", "sdpa", {"backend": "flash"}),
        ("eager_dcmha", "authors_dcmha", {}),
        ("eager_differential", "differential_2_calls", {}),
        ("eager_differential", "differential_2_calls", {"backend": "flash"}),
        ("eager_differential", "differential_4_calls", {"backend": "flash"}),
        ("eager_differential", "flex_differential", {"backward": False}),
    ],
)
def test_rivals_of_one_operator_compute_the_same(one, other, more):
    for want, have in zip(computed(one, **{**more, "backend": ""}), computed(other, **more), strict=True):
        torch.testing.assert_close(have, want, rtol=1e-9, atol=1e-10)


def test_diffllama_is_differential_attention_with_a_head_norm(monkeypatch):
    module = pytest.importorskip("transformers.models.diffllama.modeling_diffllama")
    torch.manual_seed(1)
    request = {**attention.DEFAULTS, **SIZES, "backward": False, "dtype": "float64"}
    leaves = attention.Leaves(torch, request)
    monkeypatch.setattr(torch, "normal", lambda mean, std, size: torch.zeros(size))  # lambda is its first value
    out = attention.diffllama(torch, request, leaves)()
    q, k, v = leaves.made
    first, eps = module.lambda_init_fn(0), module.DiffLlamaConfig().rms_norm_eps
    weights = attention.causal_softmax(torch, torch.einsum("bthd,bshd->bhts", q, k) / 4, 0)
    values = torch.cat([v[:, :, :2], v[:, :, 2:]], -1)  # a pair's: the first half of the heads, then the second
    maps = [torch.einsum("bhts,bshe->bthe", part, values) for part in weights.chunk(2, 1)]
    want = torch.nn.functional.rms_norm(maps[0] - first * maps[1], (32,), eps=eps) * (1 - first)
    torch.testing.assert_close(out, want, rtol=1e-6, atol=1e-7)


def built(**more):
    """The step of a rival in this process."""
    return attention.build({**attention.DEFAULTS, **SIZES, "backward": True, **more})[1]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["sdpa", "eager_talking_heads", "authors_dcmha", "differential_2_calls", "diffllama"])
def test_each_steps_in_16_bits(name, dtype):
    if name == "diffllama":
        pytest.importorskip("transformers")
    built(rival=name, dtype=dtype)()


def test_a_process_answers_its_steps():
    facts, step = ask("rival_attention.py", {**SIZES, "rival": "sdpa", "backward": True, "dtype": "bfloat16", "calls": 2}, "step")
    assert facts["output"] == [2, 48, 4, 16] and step["seconds"] > 0 and step["cpu_seconds"] > 0


def test_a_time_is_that_of_one_call():
    calls = []
    fields = rival.timed(torch, {"calls": 3}, lambda: calls.append(rival.time.sleep(0.05)) or {"loss": 1})
    assert len(calls) == 3 and 0.05 <= fields["seconds"] < 0.12 and fields["loss"] == 1


@pytest.mark.parametrize(
    "more, message",
    [
        ({"rival": "flex_differential"}, "flex_differential: FlexAttention has no backward pass on the CPU"),
        ({"rival": "sdpa", "backend": "fast"}, "backend is 'fast', want one of flash, cudnn"),
        ({"rival": "sdpa", "backend": "cudnn"}, "No viable backend"),
        ({"rival": "sdpa", "dtype": "int8"}, "dtype is 'int8', want one of float32"),
        ({"rival": "none"}, "rival is 'none', want one of sdpa"),
    ],
)
def test_what_cannot_run_is_refused_in_one_line(more, message):
    with pytest.raises((ValueError, RuntimeError), match=message) as refused:
        built(**more)
    assert "\n" not in rival.one_line(refused.value)


def test_a_refusal_is_the_answer_of_the_process():
    given = {**SIZES, "rival": "sdpa", "backward": True, "device": "cpu" if torch.cuda.is_available() else "cuda", "dtype": "int8"}
    (answer,) = ask("rival_attention.py", given)
    assert answer["error"] == "dtype is 'int8', want one of float32, float64, bfloat16, float16"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="has no cuda, want one with CUDA or --device cpu"):
        built(rival="sdpa", device="cuda")


def model(**more):
    return llama.build({**llama.DEFAULTS, **MODEL, **more})


def test_a_model_of_another_attention_or_dtype_is_refused():
    with pytest.raises(ValueError, match="attention is 'flex', want one of sdpa"):
        model(attention="flex")
    with pytest.raises(ValueError, match="dtype is 'int8'"):
        model(dtype="int8")


@pytest.mark.parametrize("more", [{}, {"backend": "flash", "dtype": "bfloat16"}, {"attention": "authors_dcmha", "dtype": "bfloat16"}])
def test_a_model_learns_its_batch(more):
    facts, step = model(learning_rate=0.01, **more)
    losses = [step()["loss"] for _ in range(8)]
    assert facts["parameters"] > 0 and losses[-1] < 0.8 * losses[0]


def test_an_error_in_a_step_is_answered():
    facts, failed, _ = ask("rival_llama.py", {**MODEL, "backend": "cudnn"}, "step", "quit", "step") + [None]
    assert facts["parameters"] > 0 and "No viable backend" in failed["error"]


GOALS = "hidden=32,layers=1,heads=2,vocab=97,T=16,B=2"


def rates(*more):
    done = run("bench", "train", "--shape", GOALS, "--repeats", "7", "-t", "1", "-o", "json", *more, timeout=900)
    assert done.returncode == 0, done.stderr
    return {row["program"]: row for row in json.loads(done.stdout)}


def test_a_training_step_is_measured_with_and_without_recompute():
    rows = rates("--recompute", "--mechanisms", "mha,dcmha")
    assert list(rows) == ["motet mha", "motet mha, recompute", "motet dcmha", "motet dcmha, recompute", "eager PyTorch"]
    rate = {name: row["tokens_per_second"] for name, row in rows.items()}
    for name, row in rows.items():
        assert rate[name] == pytest.approx(32 / row["wall_ms"] * 1e3)
        assert row["ratio"] == pytest.approx(rate[name] / rate["eager PyTorch"])
        assert row["ratio_to_mha"] == pytest.approx(rate[name] / rate["motet mha"])


@pytest.mark.nightly
def test_a_training_step_is_measured_beside_a_compiled_one():
    rows = rates("--rivals", "torch,compile")
    assert list(rows) == ["motet mha", "eager PyTorch", "compiled PyTorch"]
    ours = rows["motet mha"]
    assert ours["ratio_to_compiled_pytorch"] == pytest.approx(ours["tokens_per_second"] / rows["compiled PyTorch"]["tokens_per_second"])


def test_a_checkpoint_is_measured_by_its_bytes(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = run("bench", "checkpoint", "--shape", GOALS, "--repeats", "5", "-t", "1", "-o", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    over = {row["bytes"] - 12 * row["parameters"] for row in rows}  # weights and both of AdamW's moments; of each tensor its steps
    assert len(rows) == 4 and len(over) == 1 and 0 < over.pop() < 100
    assert all(row["ratio"] == pytest.approx(row["wall_ms"] / rows[0]["wall_ms"]) for row in rows)
    assert not list(tmp_path.iterdir())


def test_the_training_goals_of_a_cpu_are_measured():
    done = run("bench", "train", "--goals", "--device", "cpu", "--shape", GOALS, "--repeats", "7", "-t", "2", "-o", "json", timeout=900)
    assert done.returncode in (0, 1), done.stderr
    rows = json.loads(done.stdout)
    assert [row["not_measured"] for row in rows] == [None] * 3
    assert all(row["ratio"] > 0 and row["at_least"] for row in rows)


@pytest.mark.nightly
def test_a_compiled_chunk_computes_the_same():
    want = computed("eager_dcmha", dtype="float32", chunk=24)
    for have, expected in zip(computed("compiled_dcmha", dtype="float32", chunk=24), want, strict=True):
        torch.testing.assert_close(have, expected, rtol=1e-4, atol=1e-4)


def test_rivals_of_decoding_are_measured_beside_the_one_model_that_they_load():
    pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
    shape = "hidden=64,layers=1,heads=4,kv_heads=4,vocab=1100,prompt=4,generate=2"
    done = run("bench", "infer", "--mechanisms", "mha,mha:num_kv_heads=1", "--rivals", "transformers", "--weights", "float32",
               "--shape", shape, "--repeats", "2", "-t", 1, "-o", "json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    rivals = [row for row in json.loads(done.stdout) if row["program"].startswith("transformers")]
    assert rivals and {row["compared_with"] for row in rivals} == {"motet mha float32"}
