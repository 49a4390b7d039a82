"""The line protocol of the rivals: a resident process that does one step for each line it reads. See README.md."""

import contextlib
import ctypes
import json
import os
import signal
import sys
import time

# Two resident processes take turns on the same cores: the waiting one must not spin. OpenMP reads this with torch.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


PR_SET_PDEATHSIG = 1


def ends_with_parent():
    """This process goes when its parent does, however that ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def answer(**fields):
    print(json.dumps(fields), flush=True)


def device_of(torch, name):
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"this PyTorch {torch.__version__} has no {device}, want one with CUDA or --device cpu")
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device.index)  # of events too
    return device


def only(torch, backend):
    """Where scaled_dot_product_attention may use one backend alone: flash, cudnn; "": PyTorch's choice."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backends = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
    if backend and backend not in backends:
        raise ValueError(f"backend is {backend!r}, want one of {', '.join(backends)}")
    return sdpa_kernel(backends[backend]) if backend else contextlib.nullcontext()


def timed(torch, request, step):
    """What the step returns, with the time of one of request["calls"] steps in turn: by a GPU's own clock on one."""
    device, calls = torch.device(request.get("device", "cpu")), request.get("calls", 1)
    if device.type == "cuda":
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(device)
        begin.record()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(calls):
        fields = step()
    if device.type == "cuda":
        end.record()
        torch.cuda.synchronize(device)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    if device.type == "cuda":
        wall = begin.elapsed_time(end) * 1e-3
    return {"seconds": wall / calls, "cpu_seconds": cpu / calls, **fields}


def one_line(error):
    return str(error).strip().split("\n")[0] or type(error).__name__


def serve(required, defaults, build):
    """Reads the request, calls build(request) -> (facts, step), answers the facts, then calls step for each line.

    "step WORDS" calls step("WORDS"). What step returns is added to the answer, or stands in it in place of the time
    around the call. A request may have "device" and "calls": see timed.
    """
    ends_with_parent()
    line = sys.stdin.readline()
    try:
        request = json.loads(line)
        missing = [name for name in required if name not in request]
        unknown = [name for name in request if name not in required and name not in defaults]
        if missing or unknown:
            raise ValueError(f"missing {missing}, unknown {unknown}; want {sorted([*required, *defaults])}")
        import torch

        request = {**defaults, **request}
        torch.set_num_threads(request["threads"])
        torch.manual_seed(request["seed"])
        facts, step = build(request)
    except (ImportError, OSError, ValueError, TypeError, KeyError, RuntimeError) as error:
        answer(error=one_line(error))
        return 1
    answer(**facts, torch=torch.__version__, threads=torch.get_num_threads())
    for line in sys.stdin:
        word, _, what = line.strip().partition(" ")
        if word == "quit":
            break
        if word != "step":
            answer(error=f"{word!r} is neither step nor quit")
            continue
        try:
            answer(**timed(torch, request, (lambda: step(what)) if what else step))
        except RuntimeError as error:  # such as no memory left
            answer(error=one_line(error))
    return 0
