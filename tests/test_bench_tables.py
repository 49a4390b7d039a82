"""scripts/bench_tables.py: what a table says of made-up figures of a GPU."""
import importlib.util
import json
import re

import pytest
from conftest import ROOT, run

spec = importlib.util.spec_from_file_location("bench_tables", ROOT / "scripts/bench_tables.py")
tables = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tables)


def row(goal, ratio, limit=None, at_least=False):
    return {"goal": goal, "ratio": ratio, "limit": limit, "at_least": at_least, "gpu": "made-up GPU", "torch": "0.0"}


def test_without_results_the_section_says_so(tmp_path):
    assert tables.on_gpu(tmp_path).startswith("No figures of a GPU are committed yet")


def test_lengths_stand_beside_each_other_and_the_rest_below(tmp_path):
    ours = "dcmha forward over SDPA"
    (tmp_path / "goals-cuda-2048.json").write_text(json.dumps([row(f"T 2048: {ours} flash", 1.456, 1.6), row(f"T 2048: {ours} cuDNN", None)]))
    (tmp_path / "goals-cuda-8192.json").write_text(json.dumps([row(f"T 8192: {ours} flash", 1.5, 1.6), row("differential, T 8192: a over b", 1.0, 1.1)]))
    (tmp_path / "goals-cuda-train.json").write_text(json.dumps([row("mha over compiled PyTorch, tokens/s", 0.97, 0.95, True)]))
    decoding = [{"program": f"motet {name} int8", "case": case, "ratio": ratio, "compared_with": "motet mha int8" if ratio else "", "gpu": "made-up GPU"}
                for name, case, ratio in (("mha", "tg128", None), ("dcmha", "tg128", 0.634), ("dcmha", "pp512", 0.5))]
    (tmp_path / "infer-cuda.json").write_text(json.dumps(decoding))
    (tmp_path / "goals-avx512.json").write_text("[1]")
    assert tables.on_gpu(tmp_path).splitlines() == [
        "On made-up GPU, torch 0.0; in brackets the goal.",
        "",
        "| time over time | T 2048 | T 8192 |",
        "|---|---|---|",
        f"| {ours} flash | 1.46 (at most 1.6) | 1.50 (at most 1.6) |",
        f"| {ours} cuDNN | not measured |  |",
        "| a over b |  | 1.00 (at most 1.1) |",
        "",
        "| | ratio |",
        "|---|---|",
        "| mha over compiled PyTorch, tokens/s | 0.97 (at least 0.95) |",
        "| decoding, dcmha int8 over mha int8, tokens/s | 0.63 |",
    ]


def test_a_table_of_a_cpu_says_which_products_made_it(tmp_path):
    for name in ("goals-some", "goals-some-tiles"):
        (tmp_path / f"{name}.json").write_text(json.dumps([{**row("T 512: mha forward", 0.5), "processor": "a CPU"}]))
    heads = [line for line in tables.on_cpus(tmp_path).splitlines() if line.startswith("On")]
    assert heads == ["On a CPU, torch 0.0; in brackets the goal.", "On a CPU, torch 0.0, by tiles (`MOTET_KERNEL=fused_amx`); in brackets the goal."]


def test_what_processes_exchange_is_what_a_plan_says():
    own = ["--hidden-size", "256", "--num-layers", "2", "--num-heads", "2", "--batch-size", "8", "--steps", "2", "--processes", "8", "--dry-run"]
    for sharded in (False, True):
        plan = run("train", *own, "--set", f"train.shard_optimizer={str(sharded).lower()}").stdout
        parameters, received = int(re.search(r"parameters (\d+)", plan)[1]), float(re.search(r"receives ([\d.]+) MB", plan)[1])
        assert received == pytest.approx(tables.exchanged(parameters, 8, sharded) / 1e6, abs=0.01)
        kept = float(re.search(r"gradients and optimiser ([\d.]+) MB", plan)[1])
        assert kept == pytest.approx((tables.kept(parameters, 8) if sharded else 16 * parameters) / 1e6, abs=0.01)
