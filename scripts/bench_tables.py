#!/usr/bin/env python3
"""Writes what README.md and docs/ show of speed and memory from the committed results: tables and a plot.

usage: bench_tables.py            rewrites docs/speed.svg and the tables in README.md and in docs/ generation.md, training.md, kernels.md, scale.md and serving.md
       bench_tables.py --check    fails when they are not what the results give
"""
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOALS, MEMORY = ROOT / "bench/results/goals-avx512.json", ROOT / "bench/results/memory-avx512.json"
INFER, MECHANISMS = ROOT / "bench/results/infer-2core.json", ROOT / "bench/results/infer-mechanisms-2core.json"
TRAIN, STEP_MEMORY, CHECKPOINT = (ROOT / f"bench/results/{name}.json" for name in ("train-2core", "memory-train", "checkpoint-2core"))
PROCESSES = ROOT / "bench/results/processes-2core.json"
SERVE = [ROOT / "bench/results" / f"serve-{name}.json" for name in ("2core", "zen4", "zen3")]
TURN = ROOT / "bench/results/serve-turn.json"
HARNESS = ROOT / "bench/results/serve-lm-eval.jsonl"
MODELS = {"10M": 10.4e6, "124M": 124e6, "1.3B": 1.3e9, "7B": 6.7e9}  # parameters
LINKS = (1, 10, 100, 400)  # Gb/s
ON_GPU = "goals-cuda-*.json"  # of one GPU and one run
TILES = "fused_amx"
GPU_DECODING = "infer-cuda.json"
ON_CPU = "goals-*.json"  # of one CPU; README shows those of GOALS
OTHER_CPUS = {"zen5": "an AMD Zen 5", "cascadelake": "an Intel Cascade Lake", "zen3": "an AMD Zen 3",
              "emeraldrapids": "an Intel Emerald Rapids", "graniterapids": "an Intel Granite Rapids"}
LENGTHS = (512, 1024, 2048, 4096)
ROWS = {"mha forward": "plain attention, forward", "mha forward+backward": "plain attention, forward+backward",
        "dcmha forward": "DCMHA, forward", "dcmha forward+backward": "DCMHA, forward+backward",
        "differential_v1 forward+backward": "differential V1, forward+backward",
        "talking_heads forward+backward": "talking heads, forward+backward",
        "key_size forward+backward": "key size 256, forward+backward"}
DASHES = ("none", "9 3", "2 3", "14 4", "8 3 2 3", "4 6", "12 3 2 3 2 3")  # for who does not tell colours apart
COLOURS = ("#8c8c8c", "#4d4d4d", "#7fb3d5", "#1f618d", "#c0392b", "#b7950b", "#6c3483")
CASES = {"pp512": "prompt", "tg128": "tokens", "pp512 @ 4096": "prompt after 4096 tokens", "tg128 @ 4096": "tokens after 4096"}


def ratios():
    goals = {row["goal"]: row for row in json.loads(GOALS.read_text())}
    return {name: [goals[f"T {length}: {name}"]["ratio"] for length in LENGTHS] for name in ROWS}


def table(found):
    lines = ["| time / PyTorch's plain attention (SDPA) | " + " | ".join(f"T {length}" for length in LENGTHS) + " |",
             "|---|" + "---|" * len(LENGTHS)]
    lines += [f"| {ROWS[name]} | " + " | ".join(f"{x:.2f}" for x in row) + " |" for name, row in found.items()]
    return "\n".join(lines) + "\n"


def on_other_cpus(folder):
    """README's sentence of the longest of the table's rows, keys of 64, on each other CPU."""
    found = []
    for stem, name in OTHER_CPUS.items():
        rows = {row["goal"]: row["ratio"] for row in json.loads((folder / f"goals-{stem}.json").read_text())}
        ratio, length, row = max((rows[f"T {length}: {row}"], length, row) for row in ROWS if row != "key_size forward+backward" for length in LENGTHS)
        found.append(f"{ratio:.2f} on {name} ({ROWS[row]}, T {length})")
    return f"On other CPUs the longest of these rows, keys of 256 aside, took {', '.join(found[:-1])} and {found[-1]}; above 1 PyTorch's\n" \
           "plain attention is ahead. Their tables, and those of bfloat16 and of AMX, are in [docs/kernels.md](docs/kernels.md#where-the-time-goes).\n"


def decoding():
    rows = {(row["program"], row["case"]): row for row in json.loads(INFER.read_text())}
    lines = ["| weights | | Motet | llama.cpp | transformers | to llama.cpp | to transformers |", "|---|---|---|---|---|---|---|"]
    for weights, label, rival in (("float32", "float32", "llama.cpp F32"), ("bfloat16", "bfloat16, as stored", "llama.cpp BF16"),
                                  ("int8", "8 bits (llama.cpp: Q8_0)", "llama.cpp Q8_0")):
        for case, name in CASES.items():
            programs = [f"motet model {weights}", rival, f"transformers {weights}"]
            found = [rows.get((program, case)) for program in programs]
            rates = [f"{round(row['tokens_per_second'], 1 if row['tokens_per_second'] < 100 else None)}" if row else "" for row in found]
            ratios = [f"{row['ratio']:.2f}" if row else "" for row in found[1:]]
            lines.append(f"| {label} | {name} | " + " | ".join(rates + ratios) + " |")
    return "\n".join(lines) + "\n"


def mechanisms():
    rows = {(row["program"].split()[1], row["case"]): row["ratio"] for row in json.loads(MECHANISMS.read_text())}
    names = [name for name, case in rows if case == "tg16" and name != "mha"]
    lines = ["| | " + " | ".join(f"`{name}`" for name in names) + " |", "|---|" + "---|" * len(names)]
    for case, label in (("tg16", "tokens"), ("tg16 @ 4096", "tokens after 4096")):
        lines.append(f"| {label} | " + " | ".join(f"{rows[name, case]:.2f}" for name in names) + " |")
    return "\n".join(lines) + "\n"


def decoding_in_words():
    """README's paragraph of what decoding() and mechanisms() show."""
    over = {(row["program"], row["case"]): row["ratio"] for row in json.loads(INFER.read_text())}
    empty, deep = ([over[program, case] for program in ("llama.cpp F32", "llama.cpp BF16", "llama.cpp Q8_0", "transformers float32")]
                   for case in ("tg128", "tg128 @ 4096"))
    ratios = [sorted((row["ratio"], row["program"].split()[1]) for row in json.loads(MECHANISMS.read_text())
                     if row["case"] == case and row["ratio"]) for case in ("tg16", "tg16 @ 4096")]
    least = ", ".join(f"`{name}` {ratio:.2f}" for ratio, name in ratios[1][:2])
    rates = {weights: next(row["tokens_per_second"] for row in json.loads(INFER.read_text())
                           if (row["program"], row["case"]) == (f"motet model {weights}", "tg128")) for weights in ("float32", "bfloat16")}
    return f"""Decoding is bound by memory and reads every weight once. A model that is stored in bfloat16, as most published ones are, is read as it lies: SmolLM2-135M on two
threads makes {rates["bfloat16"]:.0f} tokens a second in place of {rates["float32"]:.0f}, with the same bits. Of llama.cpp's tokens a second that is {empty[1]:.2f} times, in float32 {empty[0]:.2f}, in 8 bits {empty[2]:.2f},
and in float32 {empty[3]:.1f} times those of Hugging Face transformers; with 4096 tokens in the cache {deep[1]:.1f}, {deep[0]:.1f}, {deep[2]:.1f} and {deep[3]:.1f} times.
The other mechanisms decode at {ratios[0][0][0]:.2f} to {ratios[0][-1][0]:.2f} of plain attention's speed at equal size, after 4096 tokens at {ratios[1][0][0]:.2f} to {ratios[1][-1][0]:.2f} ({least};
`docs/generation.md`, `motet bench infer`).
"""


def training():
    """Rates of a step beside both rivals and our own plain attention; a model's time with recompute over that without."""
    rows = {row["program"]: row for row in json.loads(TRAIN.read_text())}
    lines = ["| tokens a second, over those of | eager PyTorch | torch.compile | our plain attention | time with `recompute`, of without |",
             "|---|---|---|---|---|"]
    for name, row in rows.items():
        again = rows.get(f"{name}, recompute")
        if again:
            rates = [row["ratio"], row["ratio_to_compiled_pytorch"], row["ratio_to_mha"], again["wall_ms"] / row["wall_ms"]]
            lines.append(f"| `{name.removeprefix('motet ')}` | " + " | ".join(f"{x:.2f}" for x in rates) + " |")
    return "\n".join(lines) + "\n"


def step_memory():
    lines = ["| model | | beyond the model, MiB | of plain |", "|---|---|---|---|"]
    for row in json.loads(STEP_MEMORY.read_text()):
        model = f"{row['layers']} layer{'s' if row['layers'] > 1 else ''}, width {row['width']}, vocabulary {row['vocabulary']}, {row['B']} x {row['T']} tokens"
        lines.append(f"| {model} | {row['way']} | {row['beyond_bytes'] / 2**20:.0f} | {row['beyond_of_plain']:.2f} |")
    return "\n".join(lines) + "\n"


def held_up():
    rows = json.loads(CHECKPOINT.read_text())
    lines = [f"| {rows[0]['parameters'] / 1e6:.0f}M parameters, {rows[0]['bytes'] / 1e6:.0f} MB | seconds | of copying |", "|---|---|---|"]
    lines += [f"| {row['what']} | {row['wall_ms'] / 1e3:.2f} | {row['ratio']:.1f} |" for row in rows]
    return "\n".join(lines) + "\n"


def serving():
    return "\n".join(serving_on(path) for path in SERVE)


def serving_on(path):
    """Streams beside llama.cpp's server and beside one stream, by kind of weights; then what stands beside 8 streams."""
    rows = json.loads(path.read_text())
    lines = [f"{rows[0]['threads']} threads of {rows[0]['processor']}:", "",
             "| weights | clients | tokens/s | to one client | to llama-server | first token, p95 | to llama-server's |", "|---|---|---|---|---|---|---|"]
    beside = {"generate": "`motet generate`, one stream"}
    others = []
    for weights in dict.fromkeys(row["weights"] for row in rows):
        of = {(row["way"], row["clients"]): row for row in rows if row["weights"] == weights}
        for n in (1, 4, 8, 16):
            own, rival = of["serve", n], of["llama-server", n]
            lines.append(f"| {weights} | {n} | {own['tokens_per_second']:.3g} | {own['over_one_stream']:.2f} | {rival['serve_over_it']:.2f} | "
                         f"{own['first_token_p95_ms'] / 1e3:.2f} s | {rival['serve_first_token_over_its']:.2f} |")
        one_more = of["serve, and one more answer", 8]["tokens_per_second"]
        for (way, _), row in of.items():
            if way in ("serve", "llama-server", "serve, and one more answer"):
                continue
            slow = "reads 10 bytes" in way
            found = row["tokens_per_second"] / one_more if slow else 1 / row["serve_over_it"]
            others.append(f"| {beside.get(way, '8 streams: ' + way)} | {weights} | {found:.2f} |")
    lines += ["", "| to `serve` with as many streams | weights | tokens/s |", "|---|---|---|", *others]
    return "\n".join(lines) + "\n"


def turn():
    """The first token of a conversation's second turn, beside the first turn's."""
    rows = json.loads(TURN.read_text())
    lines = ["| weights | turn | prompt | of it kept | first token | to the first turn's |", "|---|---|---|---|---|---|"]
    lines += [f"| {row['weights']} | {row['turn']} | {row['prompt_tokens']} | {row['kept_tokens']} | {row['first_token_ms'] / 1e3:.2f} s | "
              f"{row['over_first_turn']:.2f} |" for row in rows]
    return "\n".join(lines) + f"\n\n{rows[0]['threads']} threads of {rows[0]['processor']}, medians of {rows[0]['repeats']}.\n"


def harness():
    """Scores by the harness through the server, beside `motet eval`."""
    lines = ["| task | items | harness, acc | `motet eval`, acc | log-likelihoods apart by at most |", "|---|---|---|---|---|"]
    for row in map(json.loads, HARNESS.read_text().splitlines()):
        lines.append(f"| {row['task']} | {row['items']} | {row['harness_acc']:.3f} | {row['acc']:.3f} | {row['log_likelihoods_apart']:.1e} |")
    return "\n".join(lines) + "\n"


def several():
    rows = json.loads(PROCESSES.read_text())
    lines = ["| | tokens/s, of one process | MB a step, each | MB of state, each |", "|---|---|---|---|"]
    lines += [f"| {row['way']} | {row['ratio']:.2f} | {row['exchanged_bytes'] / 1e6:.1f} | {row['state_bytes'] / 1e6:.1f} |" for row in rows]
    one = rows[0]
    return "\n".join(lines) + f"\n\nThe model has {one['parameters'] / 1e6:.1f}M parameters, a process one thread of {one['processor']}.\n"


def exchanged(parameters, processes, sharded):
    """Bytes that each process sends, and receives, in a step in float32 (motet/train/plan.cpp): gradients go round in two rounds, with ZeRO-1 parameters in a third."""
    return (3 if sharded else 2) * (processes - 1) / processes * 4 * parameters


def kept(parameters, processes):
    """Bytes of weights, gradients and AdamW's two moments that each process keeps; of ZeRO-1."""
    return 8 * parameters + 8 * parameters / processes


def seconds(bits, speed):
    found = bits / (speed * 1e9)
    return f"{found:.2g} s" if found < 10 else f"{found:.0f} s"


def at_scale(processes=8):
    lines = ["| parameters | GB a step | " + " | ".join(f"{link} Gb/s" for link in LINKS) + " | GB kept | with `shard_optimizer`: GB a step | GB kept |",
             "|---|---|" + "---|" * len(LINKS) + "---|---|---|"]
    for name, parameters in MODELS.items():
        plain, shards = exchanged(parameters, processes, False), exchanged(parameters, processes, True)
        times = " | ".join(seconds(8 * plain, link) for link in LINKS)
        numbers = [f"{x / 1e9:.3g}" for x in (16 * parameters, shards, kept(parameters, processes))]
        lines.append(f"| {name} | {plain / 1e9:.3g} | {times} | " + " | ".join(numbers) + " |")
    return "\n".join(lines) + "\n"


def ratio_of(row):
    if row["ratio"] is None:
        return "not measured"
    limit = f" ({'at least' if row['at_least'] else 'at most'} {row['limit']:g})" if row["limit"] else ""
    return f"{row['ratio']:.2f}{limit}"


def on_gpu(folder):
    """What the goals on a GPU reached: those of several lengths by length, then the others."""
    rows = [row for path in sorted(folder.glob(ON_GPU)) for row in json.loads(path.read_text())]
    if not rows:
        return "No figures of a GPU are committed yet; `bench/README.md` says how to make them.\n"
    by_length, others = {}, []
    for row in rows:
        match = re.match(r"(?:differential, )?T (\d+): (.*)", row["goal"])
        if match:
            by_length.setdefault(match[2], {})[int(match[1])] = ratio_of(row)
        else:
            others.append(f"| {row['goal']} | {ratio_of(row)} |")
    decoding = json.loads((folder / GPU_DECODING).read_text()) if (folder / GPU_DECODING).exists() else []
    for row in decoding:
        if row["case"].startswith("tg") and row["ratio"]:
            others.append(f"| decoding, {row['program'].removeprefix('motet ')} over {row['compared_with'].removeprefix('motet ')}, tokens/s | {row['ratio']:.2f} |")
    lengths = sorted({length for found in by_length.values() for length in found})
    gpus = ", ".join(sorted({row["gpu"] for row in [*rows, *decoding]}))
    lines = [f"On {gpus}, torch {rows[0]['torch']}; in brackets the goal.", ""]
    lines += ["| time over time | " + " | ".join(f"T {length}" for length in lengths) + " |", "|---|" + "---|" * len(lengths)]
    lines += [f"| {name} | " + " | ".join(found.get(length, "") for length in lengths) + " |" for name, found in by_length.items()]
    if others:
        lines += ["", "| | ratio |", "|---|---|", *others]
    return "\n".join(lines) + "\n"


def on_cpus(folder):
    """What the goals reached on CPUs other than the one of GOALS, a table each."""
    paths = [path for path in sorted(folder.glob(ON_CPU), key=lambda path: path.stem) if path != GOALS and not path.match(ON_GPU)]
    if not paths:
        return "Figures of another CPU than the README's are not committed yet; `bench/README.md` says how to make them.\n"
    tables = []
    for path in paths:
        rows, by_length = json.loads(path.read_text()), {}
        for row in rows:
            match = re.match(r"T (\d+): (.*)", row["goal"])
            if match and int(match[1]) in LENGTHS:
                by_length.setdefault(match[2], {})[int(match[1])] = ratio_of(row)
        way = f", by tiles (`MOTET_KERNEL={TILES}`)" if path.stem.endswith("-tiles") else ""
        lines = [f"On {rows[0]['processor']}, torch {rows[0]['torch']}{way}; in brackets the goal.", "",
                 "| time / SDPA of equal type | " + " | ".join(f"T {length}" for length in LENGTHS) + " |", "|---|" + "---|" * len(LENGTHS)]
        lines += [f"| {name} | " + " | ".join(found.get(length, "") for length in LENGTHS) + " |" for name, found in by_length.items()]
        tables.append("\n".join(lines) + "\n")
    return "\n".join(tables)


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
    for colour, dashes, (_, values) in zip(COLOURS, DASHES, series):
        points = " ".join(f"{x(i):.1f},{y(value):.1f}" for i, value in enumerate(values))
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/>')
    return out


def plot(found):
    memory = json.loads(MEMORY.read_text())
    lengths = [row["T"] for row in memory]
    beyond = [row["beyond_bytes"] / 2**30 for row in memory]
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" width="1000" height="300" font-family="sans-serif">',
             '<rect width="1000" height="300" fill="white"/>']
    parts += chart(50, "time / SDPA's, one thread", list(found.items()), list(range(len(LENGTHS))),
                   [f"T {length}" for length in LENGTHS], 2)
    for i, (colour, dashes, name) in enumerate(zip(COLOURS, DASHES, found)):
        parts.append(f'<path d="M366 {50 + 22 * i}h28" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/>')
        parts.append(text(400, 54 + 22 * i, ROWS[name]))
    parts += chart(680, "DCMHA, GiB beyond the tensors", [("memory", beyond)], lengths,
                   [f"{length // 1024}K" if length >= 16384 else "" for length in lengths], 1.6)
    return "\n".join([*parts, "</svg>"]) + "\n"


def with_sections(path, sections):
    """The file with what stands between <!-- name --> and <!-- /name --> put in anew."""
    content = path.read_text()
    for name, new in sections.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
        content, count = re.subn(re.escape(begin) + ".*?" + re.escape(end), lambda _: begin + new + end, content, flags=re.DOTALL)
        assert count == 1, f"{path.name}: {count} sections {name}, want 1"
    return content


def main():
    found = ratios()
    readme, generation, kernels = ROOT / "README.md", ROOT / "docs/generation.md", ROOT / "docs/kernels.md"
    wanted = {ROOT / "docs/speed.svg": plot(found),
              kernels: with_sections(kernels, {"cuda": on_gpu(ROOT / "bench/results"), "cpus": on_cpus(ROOT / "bench/results")}),
              ROOT / "docs/training.md": with_sections(ROOT / "docs/training.md", {"training": training(), "memory": step_memory(), "checkpoint": held_up()}),
              ROOT / "docs/scale.md": with_sections(ROOT / "docs/scale.md", {"several": several(), "exchanged": at_scale()}),
              ROOT / "docs/serving.md": with_sections(ROOT / "docs/serving.md", {"serving": serving(), "harness": harness(), "turn": turn()}),
              readme: with_sections(readme, {"speed": table(found), "cpus": on_other_cpus(ROOT / "bench/results"), "decoding": decoding_in_words()}),
              generation: with_sections(generation, {"decoding": decoding(), "mechanisms": mechanisms()})}
    if "--check" in sys.argv:
        stale = [path.name for path, content in wanted.items() if not path.exists() or path.read_text() != content]
        print(f"bench_tables: {len(stale)} stale files{': ' if stale else ''}{', '.join(stale)}")
        return 1 if stale else 0
    for path, content in wanted.items():
        path.write_text(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
