"""The operator's memory grows with the length, not with its square."""
import os
import pathlib
import subprocess
import sys

import pytest

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
# tiles, two of them forward and three backward (2560), one row of scores of a block of 64 queries and 8 heads forward and
# three backward (2048), the parts of the mixes, their packed form and their gradients (1000): 9,700 in all.
TOKEN = 4 * 9_700
# What does not depend on the length, generously.
REST = 16 * 2**20


def test_forward_and_backward_fit_the_bound(peak):
    """The bound, 168 MiB, is below half of one tensor [heads, T, T], 512 MiB, of which plain attention keeps several."""
    bound = 4096 * TOKEN + REST
    assert bound < 4 * HEADS * 4096**2 / 2
    assert peak[4096] <= bound, f"{peak[4096] / 2**20:.0f} MiB"


def test_memory_grows_linearly(peak):
    """The tokens add 106 MiB of 114; one tensor [T, T] of a single head would add 60 more."""
    grown = peak[4096] - peak[1024]
    assert grown <= (4096 - 1024) * TOKEN, f"{grown / 2**20:.0f} MiB"
