"""The models of motet.huggingface on several processes, and the scripts of examples/."""
import json
import subprocess
import sys

import pytest
from conftest import FEW_WINDOWS, ROOT, environment, last_checkpoint, run

pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
import hf_models  # noqa: E402

EXAMPLES = ROOT / "examples"
SHORT = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "CUDA_VISIBLE_DEVICES": ""}


def started(*command):
    variables = environment(PYTHONPATH=str(ROOT / "python"), **SHORT)
    return subprocess.Popen(
        [sys.executable, *map(str, command)], env=variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def ended(*processes):
    """What they printed; a failure shows what they said."""
    try:
        outputs = [process.communicate(timeout=300) for process in processes]
    finally:
        for process in processes:
            process.kill()  # one that waits for another that failed
    assert all(process.returncode == 0 for process in processes), outputs
    return [output for output, _ in outputs]


def losses(text):
    return [float(line.split()[3]) for line in text.splitlines() if line.startswith("step ")]


@pytest.mark.slow
def test_two_processes_of_fsdp2_are_one_with_every_mechanism(tmp_path):
    worker = ROOT / "tests/fsdp2_worker.py"
    for output in ended(*(started(worker, rank, tmp_path) for rank in range(2))):
        found = dict(line.split("\t") for line in output.splitlines() if "\t" in line)
        assert set(found) == {*hf_models.CASES, *hf_models.ENCODERS}
        assert all(float(difference) < 1e-10 for difference in found.values()), found


@pytest.mark.slow
def test_the_lora_example_adapts_a_model_of_the_engine(tmp_path):
    pytest.importorskip("peft", reason="peft is not installed: pip install peft")
    sizes = "--hidden-size 16 --num-layers 1 --num-heads 2 --ctx-size 64 --batch-size 2 --steps 2 -t 1".split() + FEW_WINDOWS
    done = run("train", *sizes, "--mechanism", "coca", "--tokenizer", "bytes", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    folder, text = last_checkpoint(tmp_path / "run"), ROOT / "motet/data/tinyshakespeare.txt"
    (output,) = ended(started(EXAMPLES / "lora.py", folder, tmp_path / "out", text, "--steps", 30))
    assert "trainable params: 384 " in output  # of one layer 3 matrices, a pair of 16 times 4 each
    assert losses(output)[-1] < losses(output)[0] - 0.02
    (tmp_path / "text.txt").write_bytes(text.read_bytes()[:4000])
    scores = []
    for model in (folder, tmp_path / "out"):
        scored = run("eval", "-m", model, tmp_path / "text.txt", "--json", "-t", "1")
        assert scored.returncode == 0, scored.stderr
        scores.append(json.loads(scored.stdout)[0]["nats_per_token"])
    assert scores[1] < scores[0] - 0.02


def test_an_example_is_short():
    scripts = list(EXAMPLES.glob("*.py"))
    lines = {script.name: len(script.read_text().splitlines()) for script in scripts}
    assert len(scripts) == 6 and lines.pop("context_parallel.py") <= 100 and max(lines.values()) <= 60  # a prototype of ours
    rows = (EXAMPLES / "README.md").read_text()
    assert all(f"| `{script.name}` |" in rows for script in scripts)


@pytest.mark.slow
def test_the_fsdp2_example_writes_what_motet_reads(tmp_path):
    launch = ("-m", "torch.distributed.run", "--nproc-per-node")
    (two,) = ended(started(*launch, 2, EXAMPLES / "fsdp2.py", tmp_path, "--steps", 20))
    assert len(losses(two)) == 20 and losses(two)[-1] < losses(two)[0] - 1
    scored = run("eval", "-m", tmp_path / "model", ROOT / "LICENSE", "--json", "-t", "1")
    assert scored.returncode == 0 and json.loads(scored.stdout)[0]["nats_per_token"] < 4


@pytest.mark.slow
def test_the_trainer_on_two_processes_has_the_losses_of_one(tmp_path):
    pytest.importorskip("accelerate", reason="accelerate is not installed: pip install accelerate")
    script, launch = EXAMPLES / "train_with_trainer.py", ("-m", "accelerate.commands.launch", "--multi_gpu")
    rows = [
        started(script, tmp_path / "one"),
        started(*launch, "--num_processes", 2, script, tmp_path / "two", "--batch-size", 4),
    ]
    for process in rows:
        ended(process)
    logged = []
    for name in ("one", "two"):
        history = json.loads((tmp_path / name / "trainer_state.json").read_text())["log_history"]
        logged.append([row["loss"] for row in history if "loss" in row])
    assert len(logged[0]) == 20 and logged[0][-1] < logged[0][0] - 1
    assert logged[1] == pytest.approx(logged[0], abs=1e-5)
    scored = run("eval", "-m", tmp_path / "two", ROOT / "LICENSE", "--json", "-t", "1")
    assert scored.returncode == 0 and json.loads(scored.stdout)[0]["nats_per_token"] < 4


def test_the_torchtitan_slot_builds_shards_and_learns(tmp_path):
    """What TorchTitan's trainer, which wants a GPU, does with a slot: on `meta`, sharded, drawn, trained."""
    pytest.importorskip("torchtitan", reason="torchtitan is not installed: pip install torchtitan")
    script = """
import sys, types, torch
from torchtitan_model import model_registry
torch.distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
mesh = torch.distributed.init_device_mesh("cpu", (1,), mesh_dim_names=("fsdp",))
for mechanism in ("dcmha", "differential", "coca"):
    spec = model_registry(mechanism)
    training = types.SimpleNamespace(seq_len=64, mixed_precision_param="float32", mixed_precision_reduce="float32")
    spec.model.update_from_config(config=types.SimpleNamespace(training=training))
    with torch.device("meta"):
        model = spec.model.build()
    dims = types.SimpleNamespace(get_mesh=lambda names: mesh)
    model = spec.parallelize_fn(model, parallel_dims=dims, training=training)
    model.to_empty(device="cpu")
    with torch.no_grad():
        model.init_weights()
    optimizer, ids = torch.optim.AdamW(model.parameters(), lr=1e-3), torch.arange(128).view(2, 64)
    for step in range(4):
        loss = torch.nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        print("step", step, "loss", loss.item())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""
    (tmp_path / "slot.py").write_text(f"import sys; sys.path.insert(0, {str(EXAMPLES)!r})\n{script}")
    (output,) = ended(started(tmp_path / "slot.py", tmp_path / "store"))
    for first, *_, last in zip(*[iter(losses(output))] * 4, strict=True):
        assert first == pytest.approx(7.62, abs=0.3) and last < first - 0.5  # log 2048
