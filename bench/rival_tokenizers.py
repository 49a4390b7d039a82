#!/usr/bin/env python3
"""Speed of `motet tokenize` and of the `tokenizers` package on the lines of a text, in turns, in one run.

usage: rival_tokenizers.py TOKENIZER.json TEXT [ROUNDS] > bench/results/tokenizers.json
"""
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RIVAL = """
import json, sys, time, tokenizers
tokenizer = tokenizers.Tokenizer.from_file(sys.argv[1])
lines = open(sys.argv[2], encoding="utf-8", newline="").read().split("\\n")
lines = [line + "\\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
start = time.perf_counter()
encoded = tokenizer.encode_batch_fast(lines, add_special_tokens=False)
print(json.dumps([time.perf_counter() - start, sum(len(e.ids) for e in encoded)]))
"""


def ours(tokenizer, text, threads):
    command = [ROOT / "build" / "motet", "tokenize", "-m", tokenizer, "--repeats", "1", "-t", str(threads), "--json", text]
    row = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)[0]
    return row["seconds"], row["tokens"]


def theirs(tokenizer, text, threads):
    environment = os.environ | {"RAYON_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "true"}
    command = [sys.executable, "-c", RIVAL, tokenizer, text]
    return json.loads(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def main():
    tokenizer, text = sys.argv[1:3]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    size = os.path.getsize(text) / 1e6
    out = {"text": pathlib.Path(text).name, "tokenizer": pathlib.Path(tokenizer).name, "rounds": rounds, "rows": []}
    for threads in (1, 2):
        times = {"motet": [], "tokenizers": []}
        for _ in range(rounds):
            for name, measure in (("motet", ours), ("tokenizers", theirs)):
                seconds, tokens = measure(tokenizer, text, threads)
                times[name].append((seconds, tokens))
        assert len({tokens for rows in times.values() for _, tokens in rows}) == 1, "the two count other tokens"
        best = {name: min(seconds for seconds, _ in rows) for name, rows in times.items()}
        out["rows"].append(
            {
                "threads": threads,
                "tokens": times["motet"][0][1],
                "motet_mb_per_second": round(size / best["motet"], 2),
                "tokenizers_mb_per_second": round(size / best["tokenizers"], 2),
                "ratio": round(best["tokenizers"] / best["motet"], 2),
            }
        )
    print(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
