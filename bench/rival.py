"""The line protocol of the rivals: a resident process that does one step for each line it reads. See README.md."""

import json
import os
import sys
import time

# Two resident processes take turns on the same cores: the waiting one must not spin. OpenMP reads this with torch.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def answer(**fields):
    print(json.dumps(fields), flush=True)


def serve(required, defaults, build):
    """Reads the request, calls build(request) -> (facts, step), answers the facts, then calls step for each line.

    "step WORDS" calls step("WORDS"). What step returns is added to the answer, or stands in it in place of the time
    around the call.
    """
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
        answer(error=str(error).splitlines()[0])
        return 1
    answer(**facts, torch=torch.__version__, threads=torch.get_num_threads())
    for line in sys.stdin:
        word, _, what = line.strip().partition(" ")
        if word == "quit":
            break
        if word != "step":
            answer(error=f"{word!r} is neither step nor quit")
            continue
        wall, cpu = time.perf_counter(), time.process_time()
        fields = step(what) if what else step()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        answer(**{"seconds": wall, "cpu_seconds": cpu, **fields})
    return 0
