#!/usr/bin/env python3
"""Writes what README.md shows of speed and memory from the committed results: a table and a plot.

usage: bench_tables.py            rewrites docs/speed.svg and the table in README.md
       bench_tables.py --check    fails when they are not what the results give
"""
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOALS, MEMORY = ROOT / "bench/results/goals-avx512.json", ROOT / "bench/results/memory-avx512.json"
LENGTHS = (512, 1024, 2048, 4096)
ROWS = {"mha forward": "plain attention, forward", "mha forward+backward": "plain attention, forward+backward",
        "dcmha forward": "DCMHA, forward", "dcmha forward+backward": "DCMHA, forward+backward",
        "differential_v1 forward+backward": "differential V1, forward+backward",
        "talking_heads forward+backward": "talking heads, forward+backward",
        "key_size forward+backward": "key size 256, forward+backward"}
COLOURS = ("#8c8c8c", "#4d4d4d", "#7fb3d5", "#1f618d", "#c0392b", "#b7950b", "#6c3483")
BEGIN, END = "<!-- speed -->\n", "<!-- /speed -->\n"


def ratios():
    goals = {row["goal"]: row for row in json.loads(GOALS.read_text())}
    return {name: [goals[f"T {length}: {name}"]["ratio"] for length in LENGTHS] for name in ROWS}


def table(found):
    lines = ["| time / PyTorch's plain attention (SDPA) | " + " | ".join(f"T {length}" for length in LENGTHS) + " |",
             "|---|" + "---|" * len(LENGTHS)]
    lines += [f"| {ROWS[name]} | " + " | ".join(f"{x:.2f}" for x in row) + " |" for name, row in found.items()]
    return "\n".join(lines) + "\n"


def text(x, y, words, anchor="start", size=12):
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="{anchor}">{words}</text>'


def chart(left, title, series, positions, labels, top):
    """One panel: lines through (position, value), value 0 at the bottom and `top` at the top."""
    width, height, base = 300, 220, 260
    x = lambda i: left + width * positions[i] / positions[-1]
    y = lambda value: base - height * value / top
    out = [text(left, 24, title, size=13),
           f'<path d="M{left} {base - height}V{base}H{left + width}" fill="none" stroke="#444"/>']
    for step in range(5):
        value = top * step / 4
        out.append(f'<path d="M{left} {y(value):.1f}h{width}" stroke="#ddd"/>')
        out.append(text(left - 6, y(value) + 4, f"{value:g}", "end"))
    out += [text(x(i), base + 18, label, "middle") for i, label in enumerate(labels)]
    for colour, (_, values) in zip(COLOURS, series):
        points = " ".join(f"{x(i):.1f},{y(value):.1f}" for i, value in enumerate(values))
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
    return out


def plot(found):
    memory = json.loads(MEMORY.read_text())
    lengths = [row["T"] for row in memory]
    beyond = [row["beyond_bytes"] / 2**30 for row in memory]
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" width="1000" height="300" font-family="sans-serif">',
             '<rect width="1000" height="300" fill="white"/>']
    parts += chart(50, "time / SDPA's, one thread", list(found.items()), list(range(len(LENGTHS))),
                   [f"T {length}" for length in LENGTHS], 2)
    for i, (colour, name) in enumerate(zip(COLOURS, found)):
        parts.append(f'<path d="M370 {50 + 22 * i}h18" stroke="{colour}" stroke-width="2"/>')
        parts.append(text(394, 54 + 22 * i, ROWS[name]))
    parts += chart(680, "DCMHA, GiB beyond the tensors", [("memory", beyond)], lengths,
                   [f"{length // 1024}K" if length >= 16384 else "" for length in lengths], 1.6)
    return "\n".join([*parts, "</svg>"]) + "\n"


def main():
    found = ratios()
    readme = (ROOT / "README.md").read_text()
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    wanted = {ROOT / "docs/speed.svg": plot(found),
              ROOT / "README.md": pattern.sub(lambda _: BEGIN + table(found) + END, readme)}
    if "--check" in sys.argv:
        stale = [path.name for path, content in wanted.items() if not path.exists() or path.read_text() != content]
        print(f"bench_tables: {len(stale)} stale files{': ' if stale else ''}{', '.join(stale)}")
        return 1 if stale else 0
    for path, content in wanted.items():
        path.write_text(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
