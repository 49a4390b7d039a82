"""--device: where a command computes, refused in one line where there is no such place."""
import json
import re

import pytest
from conftest import ROOT, TINY, refused, run

GOLDEN = ROOT / "tests/golden/op/coca_exact.safetensors"

COMMANDS = {
    "train": [*TINY, "--out"],
    "compare": [*TINY, "--mechanisms", "mha", "--seeds", "1", "--out"],
    "eval": ["-m"],
    "generate": ["-p", "a", "-n", "1", "-m"],
    "verify": [GOLDEN],
    "bench attention": [],
    "bench memory": [],
    "bench train": [],
    "bench checkpoint": [],
    "bench infer": [],
    "bench attention --goals": [],
    "bench train --goals": [],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_gpu_that_is_not_there_is_refused_before_anything_is_made(name, model, tmp_path):
    last = {"train": [tmp_path / "run"], "compare": [tmp_path / "run"], "eval": [model], "generate": [model]}
    arguments = [*name.split(), *COMMANDS[name], *last.get(name, [])]
    if not re.search(r"^GPU +none$", run("doctor").stdout, re.M):
        pytest.skip("there is a GPU")
    line = refused(2, *arguments, "--device", "cuda")
    assert line == "motet: device: 'cuda': this PyTorch has no CUDA or this machine no GPU, want cpu or auto"
    assert "unknown device 'gpu'" in refused(2, *arguments, "--device", "gpu")
    assert not (tmp_path / "run").exists()


def test_the_cpu_may_be_named(model):
    lines = ["generate", "-m", model, "-p", "the ", "-n", "5", "--temp", "0"]
    assert run(*lines, "--device", "cpu").stdout == run(*lines).stdout != ""
    assert run("verify", GOLDEN, "--device", "cpu").returncode == 0


BENCHES = {
    "attention": ["T=16,H=2,D=8,mechanism=mha", "--repeats", "5"],
    "memory": ["T=16,H=2,D=8,mechanism=mha"],
    "infer": ["hidden=16,layers=1,heads=2,kv_heads=2,vocab=1100,prompt=16,generate=4,depth=0", "--repeats", "2", "--rivals", "none"],
}


@pytest.mark.parametrize("what", BENCHES)
def test_a_benchmark_names_the_device_that_it_measured(what):
    rows = json.loads(run("bench", what, "--device", "cpu", "-o", "json", "--shape", *BENCHES[what]).stdout)
    assert {row["device"] for row in rows} == {"cpu"}


def test_a_benchmark_of_decoding_compares_keys_in_fewer_bits_with_those_as_computed():
    shape, *more = BENCHES["infer"]
    rows = json.loads(run("bench", "infer", "-o", "json", "--shape", shape.replace("depth=0", "depth=16"), *more, "--mechanisms", "mha,dcmha",
                          "--weights", "float32", "--cache-types", "int8,model,float16").stdout)  # fmt: skip
    kept = {row["program"]: row for row in rows}
    assert list(kept) == [f"motet {name} float32{kind}" for name in ("mha", "dcmha") for kind in ("", ", int8 cache", ", float16 cache")]
    for name in "mha", "dcmha":
        whole, byte, half = (kept[f"motet {name} float32{kind}"] for kind in ("", ", int8 cache", ", float16 cache"))
        assert half["cache_bytes"] * 2 == whole["cache_bytes"] > byte["cache_bytes"]
        assert whole["logits_error"] == 0 < half["logits_error"] < byte["logits_error"] < 0.05, "it reads what is kept"
        assert byte["compared_with"] == half["compared_with"] == "motet mha float32"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["infer", "--weights", "int4"], "unknown weight type 'int4'"),
        (["infer", "--rivals", "vllm"], "unknown rival 'vllm'"),
        (["infer", "--cache-types", "model,int4"], "unknown --cache-types 'int4'"),
        (["infer", "--cache-types", "int8"], "--cache-types: int8 beside rivals, which are compared with keys kept as computed"),
        (["train", "--cache-types", "int8"], "--cache-types is given for train, want it for infer"),
        (["infer", "--repeats", "1"], "--repeats: 1 is below 2"),
        (["attention", "--dtype", "int8"], "unknown --dtype 'int8'"),
        (["train", "--dtype", "float16"], "unknown --dtype 'float16'"),
        (["memory", "--dtype", "bfloat16"], "--dtype is given for memory"),
        (["attention", "--goals", "--dtype", "bfloat16"], "--dtype is given with --goals"),
        (["train", "--goals", "--repeats", "6"], "--repeats: 6 is below 7"),
        (["train", "--repeats", "6"], "--repeats: 6 is below 7"),
        (["attention", "--repeats", "4"], "--repeats: 4 is below 5"),
        (["attention", "--repeats", "0"], "--repeats: '0' is below 1"),
        (["train", "--mechanisms", "dcmah"], "'dcmah'"),
        (["train", "--rivals", "torch,vllm"], "unknown rival 'vllm'"),
        (["train", "--rivals", "llama_cpp"], "unknown rival 'llama_cpp'"),
        (["train", "--goals", "--recompute"], "--recompute is given with --goals, which have their own"),
        (["infer", "--recompute"], "--recompute is given for infer, want it for train"),
        (["checkpoint", "--rivals", "torch"], "--rivals is given for checkpoint, want it for train, infer or serve"),
        (["checkpoint", "--mechanisms", "mha"], "--mechanisms is given for checkpoint, want it for memory, train or infer"),
        (["memory", "--mechanisms", "dcmha"], "--mechanisms: an operator's memory is measured, want mechanism=NAME in --shape"),
        (["checkpoints"], "unknown benchmark 'checkpoints': nearest is 'checkpoint'"),
    ],
)
def test_what_a_benchmark_does_not_take_is_refused_by_its_flag(arguments, message):
    assert message in refused(2, "bench", *arguments)
