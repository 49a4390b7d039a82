"""Scores of `motet eval` against Hugging Face transformers, and what its command line refuses."""
import json
import math
import pathlib
import shutil
import signal
import subprocess
import time

import eval_reference
import pytest
from conftest import MOTET, ROOT, environment, last_checkpoint, refused, run

DATA = ROOT.parent / "shared" / "data" / "eval"
FILES = {
    "arc_easy": "arc_easy.jsonl",
    "hellaswag": "hellaswag_val_full.txt",
    "lambada": "lambada_openai.jsonl",
    "piqa": "piqa.jsonl",
    "winogrande": "winogrande.jsonl",
    "blimp": "causative.jsonl",
}
# Words of the built-in text, which a tokenizer of its characters can say.
SMALL = {
    "arc_easy": [{"query": "Question: who", "choices": ["a king", "the queen", "no man"], "gold": i % 3} for i in range(5)],
    "lambada": [{"context": "To be, or not to", "continuation": "be"}, {"context": "ROMEO: I ", "continuation": "love"}],
    "piqa": [{"query": "Question: sleep\n", "choices": ["in bed", "standing up in the cold"], "gold": 0}],
    "winogrande": [{"context_options": ["She saw her so she", "She saw her so her"], "continuation": "ran.", "gold": 1}],
    "blimp": [{"sentence_good": "The king sleeps.", "sentence_bad": "The king sleep."}],
}


def scored(task, folder, file, items, *more):
    done = run("eval", task, "-m", folder, file, "--items", items, "--json", *more)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def compared(task, folder, file, items, limit, dtype="float32"):
    """The items that differ from those of transformers, and the largest difference."""
    theirs = eval_reference.reference(folder, task, file, limit, dtype)
    each = zip(eval_reference.questions(task, file, limit), theirs, eval_reference.read_items(items), strict=True)
    found = [eval_reference.differences(*one) for one in each]
    return [different for different, _ in found if different], max(error for _, error in found)


@pytest.fixture(scope="session")
def llama(model, tmp_path_factory):
    """The tiny model as transformers loads it, with a token that begins texts."""
    out = tmp_path_factory.mktemp("llama") / "model"
    assert run("convert", model, "--to", "llama", "--out", out).returncode == 0
    config = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps(config | {"bos_token_id": 0}))
    return out


@pytest.mark.parametrize("task", [*SMALL, "hellaswag"])
def test_scores_are_those_of_transformers(task, llama, tmp_path):
    pytest.importorskip("transformers")
    file = tmp_path / "questions"
    lines = [json.dumps(item) for item in SMALL.get(task, [])] or ["The king", "2", "eats", "goes away", "is", "a"]
    file.write_text("\n".join(lines) + "\n")
    scored(task, llama, file, tmp_path / "items", "--dtype", "float64")
    different, error = compared(task, llama, file, tmp_path / "items", 100, "float64")
    assert not different and error < 1e-6  # transformers keeps its rotary tables in float32


def test_results_have_errors_and_limits(model, tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text("\n".join(map(json.dumps, SMALL["arc_easy"])))
    (row,) = scored("arc_easy", model, file, tmp_path / "items")
    assert row["items"] == 5 and row["task"] == "arc_easy" and row["file"] == "a.jsonl"
    assert 0 < row["acc_stderr"] < 0.5 and 0 <= row["acc_norm"] <= 1
    assert scored("arc_easy", model, file, tmp_path / "two", "--limit", "2")[0]["items"] == 2
    file.write_text(json.dumps(SMALL["lambada"][0]))
    (word,) = scored("lambada", model, file, tmp_path / "word")
    items = eval_reference.read_items(tmp_path / "word")
    assert word["perplexity"] == pytest.approx(math.exp(-items[0]["log_likelihood"][0])) and "acc_norm" not in word


def test_accuracies_and_their_errors_are_those_of_the_items(model, tmp_path):
    file, choices = tmp_path / "a.jsonl", ["a king", "the queen of the land", "no"]
    asked = [{"query": f"Question: {word}", "choices": choices, "gold": 0} for word in "who what when where why how".split()]
    file.write_text("\n".join(map(json.dumps, asked)))
    scored("arc_easy", model, file, tmp_path / "first")
    for item, line in zip(asked, eval_reference.read_items(tmp_path / "first"), strict=True):
        item["gold"] = line["chosen"] if item is not asked[0] else (line["chosen"] + 1) % 3
    file.write_text("\n".join(map(json.dumps, asked)))
    (row,) = scored("arc_easy", model, file, tmp_path / "items")
    lines = eval_reference.read_items(tmp_path / "items")
    for chosen, name in (("chosen", "acc"), ("chosen_by_length", "acc_norm")):
        right = [line[chosen] == line["gold"] for line in lines]
        mean = sum(right) / 6
        assert row[name] == pytest.approx(mean)
        assert row[f"{name}_stderr"] == pytest.approx(math.sqrt(mean * (1 - mean) / 5))
    assert row["acc"] == pytest.approx(5 / 6) and row["acc_norm"] != row["acc"]


def test_texts_begin_with_the_token_that_begins_texts(model, tmp_path):
    folder, file = tmp_path / "m", tmp_path / "a.jsonl"
    assert run("convert", model, "--to", "llama", "--out", folder).returncode == 0
    config = json.loads((folder / "config.json").read_text())
    file.write_text(json.dumps(SMALL["blimp"][0]))

    def likelihoods(**ids):
        (folder / "config.json").write_text(json.dumps(config | ids))
        items = tmp_path / "-".join(ids)
        scored("blimp", folder, file, items)
        return eval_reference.read_items(items)[0]["log_likelihood"]

    begins, ends = likelihoods(bos_token_id=3), likelihoods(eos_token_id=5)
    assert ends != likelihoods(pad_token_id=5)
    assert likelihoods(bos_token_id=3, eos_token_id=5) == begins != ends  # the token that ends texts stands in for it


def test_an_interrupted_evaluation_goes_on(model, tmp_path):
    file, items = tmp_path / "a.jsonl", tmp_path / "items"
    file.write_text("\n".join(map(json.dumps, SMALL["arc_easy"] * 300)))
    command = [MOTET, "eval", "arc_easy", "-m", model, file, "--items", items, "-b", "1", "-t", "1"]
    with subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        deadline = time.time() + 60
        while (not items.exists() or items.read_bytes().count(b"\n") < 20) and time.time() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 130
    before = items.read_bytes()
    assert 20 <= before.count(b"\n") < 1501
    resumed = scored("arc_easy", model, file, items, "-b", "1", "-t", "1")
    whole = scored("arc_easy", model, file, tmp_path / "whole", "-b", "1", "-t", "1")
    assert resumed == whole
    assert items.read_bytes() == (tmp_path / "whole").read_bytes() and items.read_bytes().startswith(before)
    assert "belongs to another evaluation" in refused(
        1, "eval", "arc_easy", "-m", model, file, "--items", items, "--limit", "3"
    )


def test_longer_items_are_said(model, tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text("\n".join(json.dumps(item | {"query": "who " * 20}) for item in SMALL["arc_easy"]))
    done = run("eval", "arc_easy", "-m", model, file, "--json")
    assert done.returncode == 0
    assert "a.jsonl: 5 of 5 items are longer than the context of 32 tokens; their beginnings are left out" in done.stderr


def test_perplexity_takes_a_stride(model, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("To be, or not to be, that is the question.\n" * 3)
    row = lambda *more: json.loads(run("eval", *more, "--json").stdout)[0]  # noqa: E731
    whole = row("perplexity", "-m", model, text)
    assert whole == row("-m", model, text) and whole["tokens"] == 43 * 3 - 1
    near = row("perplexity", "-m", model, text, "--stride", "1")
    assert near["tokens"] == whole["tokens"] and near["nats_per_token"] != whole["nats_per_token"]
    assert near["word_perplexity"] > near["perplexity"]


@pytest.mark.parametrize(
    "code, arguments, wanted",
    [
        (2, ["helaswag"], "unknown task 'helaswag': nearest is 'hellaswag'"),
        (2, ["arc_easy"], "FILE is missing, want the questions of arc_easy"),
        (2, ["arc_easy", "x", "--stride", "3"], "--stride: has no meaning for arc_easy"),
        (2, ["perplexity", "--items", "x"], "--items: has no meaning for perplexity"),
        (2, ["--limit", "3"], "--limit: has no meaning for perplexity"),
        (2, ["arc_easy", "x", "--dtype", "float8"], "--dtype: 'float8' is not known"),
        (2, ["perplexity", "--stride", "33"], "a stride of 33 tokens, want at most the window of 32"),
        (2, ["arc_easy", "CONTRIBUTING.md", "-c", "64"], "want at most the model's context of 32"),
        (1, ["arc_easy", "none.jsonl"], "cannot read 'none.jsonl': No such file"),
        (1, ["arc_easy", "docs"], "docs: the folder holds no *.jsonl"),
        (1, ["arc_easy", "CONTRIBUTING.md"], "CONTRIBUTING.md:1: "),
    ],
)
def test_wrong_usage_is_one_line(code, arguments, wanted, model):
    assert wanted in refused(code, "eval", "-m", model, *arguments)


def test_items_that_cannot_be_written_are_no_success(model, tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text("\n".join(map(json.dumps, SMALL["arc_easy"])))
    assert "cannot write" in refused(1, "eval", "arc_easy", "-m", model, file, "--items", tmp_path / "none" / "items")
    assert "is no file" in refused(1, "eval", "arc_easy", "-m", model, file, "--items", "/dev/full")
    assert "is no file" in refused(1, "eval", "arc_easy", "-m", model, file, "--items", tmp_path)
    items = tmp_path / "items"
    arguments = ["eval", "arc_easy", "-m", model, file, "--items", items, "-b", "1"]
    assert f"cannot write '{items}'" in refused(1, *arguments, largest_file=512)
    assert items.stat().st_size == 512  # goes on from here
    assert run(*arguments).returncode == 0 and len(eval_reference.read_items(items)) == 5


# ---- a real model


@pytest.mark.slow
@pytest.mark.parametrize("task", FILES)
def test_smollm_chooses_as_in_transformers(task, smollm_folder, tmp_path):
    """Few items; 500 of each were compared by tests/eval_reference.py."""
    file = tmp_path / FILES[task]
    file.write_bytes(questions_of(task))
    scored(task, smollm_folder, file, tmp_path / "items", "--limit", "6")
    different, error = compared(task, smollm_folder, file, tmp_path / "items", 6)
    assert not different and error < 1e-4


def questions_of(task):
    """The bytes of a file of shared/data/eval, unpacked."""
    import bz2
    import zipfile

    if not DATA.is_dir():
        pytest.skip("../shared/data/eval is not there")
    if task == "hellaswag":
        return bz2.decompress((DATA / (FILES[task] + ".bz2")).read_bytes())
    if task == "blimp":
        return zipfile.ZipFile(DATA / "blimp.zip").read("data/" + FILES[task])
    return pathlib.Path(DATA / FILES[task]).read_bytes()


def test_a_model_is_scored_beyond_its_context_at_several_lengths(model, tmp_path):
    """A table over lengths; positions of the rotary embedding as --set says; the last part of long windows is worse."""
    text = tmp_path / "text.txt"
    text.write_text((ROOT / "motet/data/tinyshakespeare.txt").read_text()[:5000])

    def rows(*more):
        done = run("eval", "-m", model, text, "-o", "json", *more)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    alone = rows()[0]
    both = rows("-c", "32,128", "--positions", "4")
    assert [row["window"] for row in both] == [32, 128]
    assert both[0]["nats_per_token"] == alone["nats_per_token"]
    assert len(both[1]["by_position"]) == 4
    scaled = rows("-c", "32,128", "--set", "model.attention.rope_scaling=dynamic", "--set", "model.attention.rope_factor=4")
    assert scaled[0]["nats_per_token"] == alone["nats_per_token"], "dynamic scaling begins beyond the trained length"
    assert scaled[1]["nats_per_token"] != both[1]["nats_per_token"]
    # The same by hand: config.json with the other context and scaling.
    source = last_checkpoint(model)
    by_hand = tmp_path / "m"
    shutil.copytree(source, by_hand)
    config = json.loads((by_hand / "config.json").read_text())
    config["max_position_embeddings"] = 128
    options = {"rope_scaling": "dynamic", "rope_factor": 4.0, "rope_trained_length": 32}
    config["attention_options"] |= options
    config |= {"model_type": "motet", "architectures": ["MotetForCausalLM"]}
    (by_hand / "config.json").write_text(json.dumps(config))
    done = run("eval", "-m", by_hand, text, "-c", "128", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["nats_per_token"] == scaled[1]["nats_per_token"]


def test_rounded_logits_cost_the_more_the_fewer_bits_they_have(model, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text((ROOT / "motet/data/tinyshakespeare.txt").read_text()[:2000])

    def nats(*words):
        (row,) = json.loads(run("eval", "-m", model, text, "-o", "json", *words).stdout)
        return row["nats_per_token"]

    plain = nats()
    assert abs(nats("--logit-bits", "16") - plain) < 1e-3
    two = abs(nats("--logit-bits", "2") - plain)
    rows = [abs(nats("--logit-bits", "4", "--logit-scale", scale) - plain) for scale in ("tensor", "head", "row")]
    assert rows[2] < rows[0] < two and len(set(rows)) == 3, "finer scales and more bits lose less"
    assert "logits of 1 bits, want 2 to 16" in refused(2, "eval", "-m", model, text, "--logit-bits", "1")
    assert "'heads'" in refused(2, "eval", "-m", model, text, "--logit-bits", "4", "--logit-scale", "heads")
    assert refused(2, "eval", "-m", model, text, "--logit-scale", "row") == "motet: --logit-scale: has no meaning without --logit-bits"
    assert "--logit-bits: has no meaning for" in refused(2, "eval", "blimp", "-m", model, text, "--logit-bits", "4")


def test_the_mean_over_positions_is_the_score(model, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text((ROOT / "motet/data/tinyshakespeare.txt").read_text()[: 32 * 20 + 1])
    (row,) = json.loads(run("eval", "-m", model, text, "-o", "json", "--positions", "8").stdout)
    assert row["by_position"] and abs(sum(row["by_position"]) / 8 - row["nats_per_token"]) < 1e-6
    for words, line in [
        (["--set", "model.attention.rank=1"], "model.attention.rank: comes from the checkpoint, want one of rope_base"),
        (["--set", "train.steps=1"], "--set: 'train.steps', want a key of model.attention.rope_base"),
        (["-c", "32,many"], "--ctx-size: "),
        (["-c", "16", "--positions", "17"], "--positions: 17 parts of a window of 16 tokens, want at most 16"),
        (["--set", "model.attention.rope_scaling=dynamo"], "rope_scaling"),
    ]:
        assert line in refused(2, "eval", "-m", model, text, *words)
    assert "--ctx-size: 8,16, want one window for arc_easy" in refused(2, "eval", "arc_easy", "-m", model, text, "-c", "8,16")


def test_training_goes_on_at_another_length(model, tmp_path):
    done = run("train", "--init", model, "-c", 64, "-b", 2, "--steps", 2, "--set", "model.attention.rope_base=400000", "--out", tmp_path / "r", "-t", 1)
    assert done.returncode == 0, done.stderr
    assert "its context of 32 tokens becomes 64" in done.stderr
    config = json.loads((last_checkpoint(tmp_path / "r") / "config.json").read_text())
    assert config["max_position_embeddings"] == 64 and config["rope_theta"] == 400000
