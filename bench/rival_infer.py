"""The cases of `motet bench infer`, the same for every rival: prompts and single tokens, empty or at depth."""

import time


def cases(build):
    """build(request) -> (facts, (prepare, decode)) becomes what serve() wants.

    prepare(depth): forgets all but the first `depth` tokens, computed when they are not there.
    decode(ids): computes these next tokens and the logits after the last.
    A step is named: "pp 0", "tg 4096" - a prompt, or single tokens, at that depth. Only the tokens themselves are timed.
    """
    def built(request):
        facts, (prepare, decode) = build(request)

        def token(i):
            return (7 + i % 1000) % request["vocab"]

        def step(what):
            kind, _, depth = what.partition(" ")
            prepare(int(depth))
            wall, cpu = time.perf_counter(), time.process_time()
            if kind == "pp":
                decode([token(i) for i in range(request["prompt"])])
            else:
                for i in range(request["generate"]):
                    decode([token(i)])
            return {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}

        return facts, step

    return built
