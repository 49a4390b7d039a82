"""--device: where a command computes, refused in one line where there is no such place."""
import pytest
from conftest import ROOT, TINY, refused, run

GOLDEN = ROOT / "tests/golden/op/coca_exact.safetensors"

COMMANDS = {
    "train": [*TINY, "--out"],
    "compare": [*TINY, "--mechanisms", "mha", "--seeds", "1", "--out"],
    "eval": ["-m"],
    "generate": ["-p", "a", "-n", "1", "-m"],
    "verify": [GOLDEN],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_gpu_that_is_not_there_is_refused_before_anything_is_made(name, model, tmp_path):
    arguments = COMMANDS[name] + {"train": [tmp_path / "run"], "compare": [tmp_path / "run"], "verify": []}.get(name, [model])
    if "CUDA" in run("doctor").stdout:
        pytest.skip("there is a GPU")
    line = refused(2, name, *arguments, "--device", "cuda")
    assert line == "motet: device: 'cuda': this PyTorch has no CUDA or this machine no GPU, want cpu or auto"
    assert "unknown device 'gpu'" in refused(2, name, *arguments, "--device", "gpu")
    assert not (tmp_path / "run").exists()


def test_the_cpu_may_be_named(model):
    lines = ["generate", "-m", model, "-p", "the ", "-n", "5", "--temp", "0"]
    assert run(*lines, "--device", "cpu").stdout == run(*lines).stdout != ""
    assert run("verify", GOLDEN, "--device", "cpu").returncode == 0
