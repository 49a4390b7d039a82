#!/usr/bin/env python3
"""The table of README.md is what `make run` printed: kept in bench/results/make_run.json.

usage: readme_table.py --record      runs `build/motet compare`, writes bench/results/make_run.json and README.md
       readme_table.py --check       fails when README.md does not show the recorded run
       readme_table.py --against FOLDER  fails when a run of this machine (its table.json) tells another story
"""
import json
import pathlib
import platform
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULT, README = ROOT / "bench/results/make_run.json", ROOT / "README.md"
BLOCK = re.compile(r"(<!-- make run -->\n```console\n).*?(```\n<!-- /make run -->)", re.DOTALL)
TOLERANCE = 0.05  # nats: processors round otherwise; a mistake that matters shows more


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.processor()


def record():
    begin = time.monotonic()
    out = ROOT / "runs" / f"readme-table-{int(time.time())}"
    done = subprocess.run([ROOT / "build/motet", "compare", "--out", out], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    seconds = round(time.monotonic() - begin)
    shown = done.stdout.split("\nText by ")[0].rstrip() + "\n"
    result = {"command": "build/motet compare", "processor": processor(), "seconds": seconds, "shown": shown,
              "rows": json.loads((out / "table.json").read_text())}
    RESULT.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


def wrapped(text, width=138):
    """Notes and the summary in lines that fit; the table as it is."""
    out = []
    for line in text.splitlines():
        while len(line) > width and "  " not in line:
            at = line.rfind(" ", 0, width)
            out.append(line[:at])
            line = line[at + 1 :]
        out.append(line)
    return "\n".join(out) + "\n"


def shown_in_readme(readme):
    recorded = wrapped(json.loads(RESULT.read_text())["shown"])
    if not BLOCK.search(readme):
        sys.exit("readme_table: README.md has no block between <!-- make run --> and <!-- /make run -->")
    return BLOCK.sub(lambda match: match[1] + recorded + match[2], readme)


def against(folder):
    here = {row["mechanism"]: row for row in json.loads((pathlib.Path(folder) / "table.json").read_text())}
    recorded = {row["mechanism"]: row for row in json.loads(RESULT.read_text())["rows"]}
    if list(here) != list(recorded):
        sys.exit(f"readme_table: the run has {', '.join(here)}, want {', '.join(recorded)}")
    for name, row in recorded.items():
        loss, wanted = here[name]["validation_loss"], row["validation_loss"]
        if loss is None or abs(loss - wanted) > TOLERANCE:
            sys.exit(f"readme_table: {name} has a loss of {loss}, want {wanted:.4f} +- {TOLERANCE}")
        for key in ("parameters", "ffn_width", "flops_per_token", "kv_bytes_per_token"):
            if here[name][key] != row[key]:
                sys.exit(f"readme_table: {name} has {key} {here[name][key]}, want {row[key]}")


def main():
    arguments = sys.argv[1:]
    if arguments == ["--record"]:
        record()
        README.write_text(shown_in_readme(README.read_text()))
    elif arguments == ["--check"]:
        if README.read_text() != shown_in_readme(README.read_text()):
            sys.exit("readme_table: README.md does not show bench/results/make_run.json, run scripts/readme_table.py --record")
    elif len(arguments) == 2 and arguments[0] == "--against":
        against(arguments[1])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
