"""llama.cpp's server on the CPU: a rival of `motet bench serve`, whose clients ask it as they ask ours. Protocol: README.md.

It needs a `llama-server` on the PATH.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from rival import ends_with_parent, serve
from rival_llama_cpp import write_gguf

REQUIRED = ("folder", "context", "clients", "threads", "weights", "check", "generate", "seed")
PATIENCE = 120  # seconds until a model is loaded


def free_port():
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask(port, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)


def started(program, model, request):
    port = free_port()
    command = [program, "-m", model, "--host", "127.0.0.1", "--port", port, "-t", request["threads"], "-tb", request["threads"],
               "--parallel", request["clients"], "-c", request["clients"] * request["context"], "-ctk", "f32", "-ctv", "f32",
               "--no-cache-prompt", "--no-warmup", "--offline"]  # fmt: skip
    server = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=ends_with_parent)
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            ask(port, "/health")
            return port
        if server.poll() is not None:
            raise RuntimeError(f"{program} ended with code {server.returncode} before it served")
        time.sleep(0.1)
    raise RuntimeError(f"{program} served nothing in {PATIENCE} seconds")


def build(request):
    program = shutil.which("llama-server")
    if not program:
        raise RuntimeError("llama-server is not on the PATH: bench/README.md says how to build it")
    # libgomp's own default, which the passive policy of the other rivals would make 0: llama.cpp is tuned with it.
    os.environ["GOMP_SPINCOUNT"] = "300000"
    os.environ.pop("OMP_WAIT_POLICY", None)
    said = subprocess.run([program, "--version"], capture_output=True, text=True)
    version = next((line.partition("version: ")[2] for line in (said.stderr + said.stdout).splitlines() if "version: " in line), "unknown")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.gguf")
        write_gguf(request["folder"], path, request["weights"], words=True)
        port = started(program, path, request)
    found = ask(port, "/completion", {"prompt": request["check"], "n_predict": request["generate"], "temperature": 0,
                                      "ignore_eos": True, "return_tokens": True})  # fmt: skip
    return {"port": port, "version": version, "tokens": found["tokens"]}, lambda: {}


if __name__ == "__main__":
    sys.exit(serve(REQUIRED, {}, build))
