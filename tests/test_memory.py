"""The operator's memory grows with the length, not with its square; that of a training not with its data."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from conftest import MOTET, ROOT, environment, run

LIBRARY = pathlib.Path(__file__).resolve().parent.parent / "build" / "libmotet_ops.so"
HEADS, WIDTH, RANK = 8, 64, 2

# Prints by how many bytes one forward and backward pass of DCMHA, inputs included, raises the peak resident memory.
PROGRAM = """
import sys, torch
library, length, heads, width, rank = sys.argv[1], *map(int, sys.argv[2:])
torch.ops.load_library(library)
torch.set_num_threads(1)

def resident(key):
    with open("/proc/self/status") as status:
        return 1024 * int(next(line for line in status if line.startswith(key)).split()[1])

def step(length):
    def leaf(*shape, scale=1.0):
        return torch.randn(1, length, *shape).mul_(scale).requires_grad_()
    q, k, v = (leaf(heads, width) for _ in range(3))
    parts = dict(down=(rank, heads), up=(rank, heads), gate=(heads,))
    mixes = {f"{place}_{side}_{name}": leaf(*shape, scale=0.3)
             for place in ("pre", "post") for side in ("query", "key") for name, shape in parts.items()}
    out, _ = torch.ops.motet.composed_attention(q, k, v, pre_identity=True, post_identity=True, causal=True, **mixes)
    out.backward(torch.ones_like(out))

step(16)  # libraries and pools
try:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the present size is the new peak
except OSError:
    pass  # then the old peak counts too, and the result can only be too large
before = resident("VmRSS")
step(length)
print(resident("VmHWM") - before)
"""


def raised(length):
    command = [sys.executable, "-c", PROGRAM, LIBRARY, *map(str, (length, HEADS, WIDTH, RANK))]
    # With a fixed threshold freed tensors leave the process at once, so that the peak is what was alive, to 1 MiB.
    environment = os.environ | {"OMP_WAIT_POLICY": "passive", "MALLOC_MMAP_THRESHOLD_": "131072"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.fixture(scope="module")
def peak():
    return {length: raised(length) for length in (1024, 4096)}


# Of each token there are, in float32: q, k, v, their gradients, out and its gradient (8 x 512 numbers), k and v in packed
# tiles, two of them forward and three backward (2560), the parts of the mixes, their packed form and their gradients
# (1000), and one row of scores of a block of queries and 8 heads forward and three of 9 backward: of 64 queries, or,
# where L2 has 2 MiB and the sequence 32 such blocks, of 128.
SMALL_BLOCK, LARGE_BLOCK = (4 * (7_660 + queries * (8 + 3 * 9)) for queries in (64, 128))
# What does not depend on the length, generously.
REST = 16 * 2**20


def test_forward_and_backward_fit_the_bound(peak):
    """The bound, 206 MiB, is below half of one tensor [heads, T, T], 512 MiB, of which plain attention keeps several."""
    bound = 4096 * LARGE_BLOCK + REST
    assert bound < 4 * HEADS * 4096**2 / 2
    assert peak[4096] <= bound, f"{peak[4096] / 2**20:.0f} MiB"


def test_memory_grows_linearly(peak):
    """The tokens add 106 MiB, or 153 in larger blocks, of 159; one tensor [T, T] of a single head would add 60 more."""
    grown = peak[4096] - peak[1024]
    assert grown <= 4096 * LARGE_BLOCK - 1024 * SMALL_BLOCK + REST / 2, f"{grown / 2**20:.0f} MiB"


# ---- data

BOOKS = ROOT.parent / "shared" / "data" / "corpus" / "books100M.train.txt"


def peak_of_training(data, out):
    """The peak resident memory of a small training on `data`, in bytes."""
    return peak_of(out, *"--batch-size 16 --steps 100 --set train.eval_windows=4 --set train.final_eval_windows=4".split(), data)


def peak_of(out, *arguments):
    """What a training of a tiny model told of its last step, in bytes."""
    sizes = "--tokenizer bytes --hidden-size 16 --num-layers 1 --num-heads 2 --ctx-size 256 -t 1".split()
    done = run("train", *sizes, *arguments, "--out", out)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [row["peak_bytes"] for row in rows if "peak_bytes" in row][-1]


def test_an_evaluation_takes_no_more_than_a_step(tmp_path):
    """Of 768 windows of 256 tokens the logits alone are 201 MB, of 32 windows 8 MB, of a step 0.3 MB."""
    common = "--steps 2 --eval-every 1 --validation 0.5 --set train.eval_windows=768 --set train.final_eval_windows=4".split()
    parted = "--set train.micro_batch_size=4 --set train.loss_rows=256".split()
    small = peak_of(tmp_path / "small", *common, *parted, "--batch-size", 4)
    large = peak_of(tmp_path / "large", *common, *parted, "--batch-size", 768)
    assert large - small < 60e6, f"{small / 1e6:.0f} MB with 4 rows, {large / 1e6:.0f} MB with 768"


@pytest.mark.slow
def test_a_training_on_books_holds_as_much_memory_as_on_a_page(tmp_path):
    """Within 300 MB: 100 MB of text are 200 MB of tokens, which are mapped; what is read of them counts as resident."""
    if not BOOKS.exists():
        pytest.skip("shared/data is absent")
    page = tmp_path / "page.txt"
    page.write_bytes(BOOKS.read_bytes()[:100_000])
    for text, name in ((page, "small"), (BOOKS, "large")):
        done = run("data", "prepare", text, "--tokenizer", "bytes", "--validation", "0.05", "--out", tmp_path / name)
        assert done.returncode == 0, done.stderr
    small, large = (peak_of_training(tmp_path / name, tmp_path / f"run-{name}") for name in ("small", "large"))
    assert large - small < 300e6, f"{small / 1e6:.0f} MB on a page, {large / 1e6:.0f} MB on books"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_benchmark_of_memory_at_once(number):
    """It takes most of a minute, of which one pass is the most; that it ended early is that its table is not there."""
    command = [MOTET, "bench", "memory", "--device", "cpu", "-t", "1"]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        used = 0.0  # seconds of the processor: it measures long before 3 of them
        while used < 3 and process.poll() is None:
            time.sleep(0.1)
            fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        process.send_signal(number)
        out, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, out, errors) == (128 + number, "", "motet: interrupted\n")
