"""lm-evaluation-harness's `local-completions` through `motet serve`: the log-likelihoods and scores of `motet eval`.

LM_EVAL_MODEL and LM_EVAL_ITEMS take another model and more items; LM_EVAL_RESULTS is a file to which what was found is added, a line a task.
"""
import bz2
import json
import os
import pathlib
import subprocess
import sys

import pytest
from conftest import ROOT, environment, run
from serving import serving, small_model

DATA = ROOT.parent / "shared/data/eval"
# file, its format here, the harness's question
TASKS = {
    "arc_easy": ("arc_easy.jsonl", "{{query}}\nAnswer:"),
    "piqa": ("piqa.jsonl", "{{query}}Answer:"),
    "hellaswag": ("hellaswag_val_full.txt.bz2", "{{query}}"),
    "lambada": ("lambada_openai.jsonl", None),
}
CHOICES = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{question}"
doc_to_target: gold
doc_to_choice: choices
metric_list: [{{metric: acc}}, {{metric: acc_norm}}]
"""
LAST_WORD = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: loglikelihood
doc_to_text: "{{{{context}}}}"
doc_to_target: " {{{{continuation}}}}"
metric_list: [{{metric: acc}}]
"""


def unpacked(file, folder):
    """The file that `motet eval` reads, and the same items as the harness reads them."""
    if file.suffix != ".bz2":
        return file, file
    text, items = folder / file.stem, folder / "items.jsonl"
    text.write_bytes(bz2.decompress(file.read_bytes()))
    lines = text.read_text().split("\n")
    found = [lines[i : i + 6] for i in range(0, len(lines) - 5, 6)]
    items.write_text("".join(json.dumps({"query": i[0], "choices": i[2:], "gold": int(i[1])}) + "\n" for i in found))
    return text, items


def scored_by_harness(server, name, file, question, limit, folder):
    """Results of the harness and the log-likelihoods of each item's endings."""
    form = CHOICES if question else LAST_WORD
    (folder / f"{name}.yaml").write_text(form.format(name="lines_" + name, file=file, question=(question or "").replace("\n", "\\n")))
    arguments = f"model=small,base_url={server.url}/v1/completions,tokenizer_backend=remote,num_concurrent=4,max_retries=1"
    options = ["--model", "local-completions", "--model_args", arguments, "--tasks", "lines_" + name, "--include_path", folder]
    options += ["--limit", limit, "--log_samples", "--output_path", folder / ("out_" + name)]
    variables = environment(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", HF_HOME=str(folder / "cache"), OPENAI_API_KEY="none")
    command = [sys.executable, "-m", "lm_eval", *map(str, options)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    out = folder / ("out_" + name)
    (results,) = (json.loads(path.read_text())["results"]["lines_" + name] for path in out.rglob("results*.json"))
    (samples,) = ([json.loads(line) for line in path.open()] for path in out.rglob("samples*.jsonl"))
    pairs = lambda row: row["filtered_resps"] if isinstance(row["filtered_resps"][0], list) else [row["filtered_resps"]]  # noqa: E731
    return results, {row["doc_id"]: [float(pair[0]) for pair in pairs(row)] for row in samples}


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_local_completions_score_as_motet_eval(name, tmp_path, tmp_path_factory):
    pytest.importorskip("lm_eval", reason="lm_eval is not installed: pip install 'lm_eval[api]'")
    file, question = TASKS[name]
    if not (DATA / file).exists():
        pytest.skip("shared/data/eval is not here")
    lines, items = unpacked(DATA / file, tmp_path)
    limit = int(os.environ.get("LM_EVAL_ITEMS", 20))
    model = pathlib.Path(os.environ.get("LM_EVAL_MODEL", "") or small_model(tmp_path_factory.mktemp("m"), context=2048))
    done = run("eval", name, "-m", model, lines, "--limit", limit, "--items", tmp_path / "ours", "--json", timeout=3600)
    assert done.returncode == 0, done.stderr
    with serving(model, "--name", "small") as server:
        results, theirs = scored_by_harness(server, name, items, question, limit, tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "ours").read_text().splitlines()]
    ours = {row["item"]: row["log_likelihood"] for row in rows if "item" in row}
    assert len(ours) == limit and theirs.keys() == ours.keys()
    for item, likelihoods in ours.items():
        assert theirs[item] == pytest.approx(likelihoods, abs=1e-4 * max(1, max(map(abs, likelihoods)) / 10)), item
    scores = json.loads(done.stdout)[0]
    assert results["acc,none"] == pytest.approx(scores["acc"])
    if found := os.environ.get("LM_EVAL_RESULTS"):
        apart = max(abs(a - b) for item in ours for a, b in zip(ours[item], theirs[item]))
        row = {"task": name, "items": limit, "acc": scores["acc"], "harness_acc": results["acc,none"], "log_likelihoods_apart": apart}
        with open(found, "a") as file:
            file.write(json.dumps(row) + "\n")
