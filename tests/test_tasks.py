"""Tasks from the command line: trained without a text, stopped and gone on with, scored by the numbers of the training."""
import csv
import io
import json
import math
import shutil
import signal
import subprocess
import time
import tomllib

import pytest
from conftest import MOTET, environment, last_checkpoint, records, refused, run

SIZES = "--hidden-size 32 --num-layers 1 --num-heads 2 --learning-rate 0.003 --batch-size 32 -t 1".split()
SET = "--set model.attention.rope_fraction=0".split()
# Half learned in a second.
RECALL = ["--task", "noisy-recall", *[w for o in "tokens=6 needles=3 keys=4 values=3 noise=3".split() for w in ("--set", f"data.task.{o}")]]
WHERE = ["--task", "where-select", *[w for o in "fields=3 values=2 items=2 held_out=1".split() for w in ("--set", f"data.task.{o}")]]
FACTS = ["--task", "facts", *[w for o in "tokens=12 facts=3 fewest=2 entities=2 relations=2 values=3 noise=1".split() for w in ("--set", f"data.task.{o}")]]


def trained(folder, *arguments):
    done = run("train", *SIZES, *SET, *arguments, "--out", folder, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def scored(task, folder, *more):
    done = run("eval", task, "-m", folder, "--json", "-t", "1", *more)
    assert done.returncode == 0, done.stderr
    return {row["slice"]: row for row in json.loads(done.stdout)}


def evaluations(folder):
    return [row for row in records(folder) if "validation_loss" in row]


@pytest.fixture(scope="module")
def recall(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recall") / "run"
    return folder, trained(folder, *RECALL, "--steps", 60)


@pytest.fixture(scope="module")
def where(tmp_path_factory):
    folder = tmp_path_factory.mktemp("where") / "run"
    return folder, trained(folder, *WHERE, "--steps", 30, "--set", "train.average=ema:0.9", "--set", "train.learning_rate=0.01")


def test_what_eval_says_is_what_the_training_said(recall):
    folder, (row,) = recall
    last = evaluations(folder)[-1]
    assert last["episodes"] == 10000 and "accuracy_by_slice" not in last and "bits_per_byte" not in last
    assert 0.7 < last["accuracy"] < 1 and row["accuracy"] == last["accuracy"]
    assert "bits_per_byte" not in row
    found = scored("noisy-recall", folder)
    assert set(found) == {"all"}
    all_of_them = found["all"]
    assert all_of_them["exact_match"] == last["accuracy"] and all_of_them["episodes"] == 10000
    assert all_of_them["exact_match_stderr"] == row["accuracy_stderr"]
    p = last["accuracy"]
    assert all_of_them["exact_match_stderr"] == pytest.approx(math.sqrt(p * (1 - p) / 9999))
    told = (1 / 3 + 2 / 3 + 5 / 9) / 3  # of 1, 2 and 3 needles with 3 values
    assert all_of_them["chance"] == pytest.approx(told, abs=0.01) and "misattributed" not in all_of_them
    assert scored("noisy-recall", folder, "--batch-size", 7, "--limit", 100)["all"]["episodes"] == 100
    others = evaluations(folder)[:-1]
    assert len(others) == 9 and {row["episodes"] for row in others} == {64}
    assert others[0]["accuracy"] < 0.6, "it had to learn"


def test_slices_and_averages_are_scored_alike(where):
    folder, rows = where
    last = evaluations(folder)[-1]
    assert [row["accuracy"] for row in rows] == [last["accuracy"], last["average_accuracy"]]
    for model, accuracy in ((folder, last["accuracy"]), (f"{folder}:average", last["average_accuracy"])):
        found = scored("where-select", model)
        assert set(found) == {"all", "seen", "held out"}
        assert found["all"]["exact_match"] == accuracy
        assert found["seen"]["episodes"] + found["held out"]["episodes"] == 10000
        assert abs(found["held out"]["episodes"] - 10000 / 6) < 200
        if model == folder:
            assert {name: found[name]["exact_match"] for name in ("seen", "held out")} == last["accuracy_by_slice"]
    assert last["accuracy"] != last["average_accuracy"]


def test_the_last_evaluation_may_be_of_fewer_episodes(tmp_path):
    sizes = ["--steps", 2, "--set", "train.final_eval_windows=70"]
    done = run("train", *SIZES, *SET, *RECALL, *sizes, "--out", tmp_path / "r")
    assert done.returncode == 0, done.stderr
    last, found = evaluations(tmp_path / "r")[-1], scored("noisy-recall", tmp_path / "r", "--limit", 70)["all"]
    assert last["episodes"] == found["episodes"] == 70 and last["accuracy"] == found["exact_match"]


def stopped(arguments, folder, step):
    process = subprocess.Popen([MOTET, *map(str, arguments)], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if (folder / "metrics.jsonl").exists() and f'"step":{step},' in (folder / "metrics.jsonl").read_text():
            process.send_signal(signal.SIGTERM)
            break
        time.sleep(0.002)
    _, errors = process.communicate(timeout=60)
    return process.returncode, errors


@pytest.mark.parametrize("task", [RECALL, WHERE], ids=["noisy-recall", "where-select"])
def test_a_run_that_was_stopped_ends_as_one_that_was_not(task, tmp_path):
    common = ["train", *SIZES, *SET, *task, "--eval-every", 30, "--set", "train.checkpoint_every=25"]
    whole, parts, larger = tmp_path / "whole", tmp_path / "parts", tmp_path / "larger"
    assert run(*common, "--steps", 120, "--out", whole).returncode == 0
    code, errors = stopped([*common, "--steps", 120, "--out", parts], parts, 37)
    assert code == 143 and "to go on: motet train --resume" in errors, errors
    assert (parts / "report.html").exists() and records(parts)[-1]["step"] < 120
    done = run("train", "--resume", parts, "-t", 1)
    assert done.returncode == 0, done.stderr
    # A larger budget reads the same episodes and then new ones: nothing that was read comes again.
    schedule = ["--set", "train.schedule=constant", "--set", "train.warmup=0"]
    assert run(*common, *schedule, "--steps", 40, "--out", larger).returncode == 0
    assert run("train", "--resume", larger, "--steps", 60, "-t", 1).returncode == 0
    assert run(*common, *schedule, "--steps", 60, "--out", tmp_path / "at once").returncode == 0
    steps = [[row["loss"] for row in records(folder) if "loss" in row] for folder in (larger, tmp_path / "at once")]
    assert steps[0] == steps[1] and len(steps[0]) == 60
    assert records(parts) == records(whole)
    for row in map(json.loads, (whole / "metrics.jsonl").read_text().splitlines()):
        if "peak_flops_per_second" in row:
            machine = row
        elif "loss" in row:  # logits are computed of answers alone
            used = row["tokens_per_second"] * machine["flops_per_token"] / machine["peak_flops_per_second"]
            assert 0.1 * used < row["utilization"] < 0.99 * used
    for name in ("model.safetensors", "optimizer.safetensors", "config.json", "task.json"):
        assert (last_checkpoint(parts) / name).read_bytes() == (last_checkpoint(whole) / name).read_bytes(), name
    name = task[1]
    assert scored(name, parts) == scored(name, whole)
    assert scored(name, parts)["all"]["exact_match"] == evaluations(whole)[-1]["accuracy"]


def test_composite_tokens_keep_their_embedding(where, tmp_path):
    folder, _ = where
    first, last = (sorted((folder / "checkpoints").glob("step_*"))[i] / "model.safetensors" for i in (0, -1))
    torch = pytest.importorskip("torch")

    def tensor(path, name):
        raw = path.read_bytes()
        size = int.from_bytes(raw[:8], "little")
        begin, end = json.loads(raw[8 : 8 + size])[name]["data_offsets"]
        return torch.frombuffer(bytearray(raw[8 + size + begin : 8 + size + end]), dtype=torch.float32)

    assert torch.equal(tensor(first, "model.embed_tokens.weight"), tensor(last, "model.embed_tokens.weight"))
    assert set(tensor(last, "model.embed_tokens.weight").tolist()) == {0, 1}
    assert not torch.equal(tensor(first, "model.embed_projection.weight"), tensor(last, "model.embed_projection.weight"))


def test_other_sizes_of_the_same_tokens_are_scored(recall, tmp_path):
    folder, _ = recall
    longer = scored("noisy-recall", folder, "--set", "data.task.tokens=40")["all"]
    assert longer["episodes"] == 10000 * 7 // 41 and 0.2 < longer["exact_match"] <= 1
    assert longer["exact_match"] != scored("noisy-recall", folder)["all"]["exact_match"]
    assert "has 22 tokens, want the 24 of noisy-recall with these options" in refused(2, "eval", "noisy-recall", "-m", folder, "--set", "data.task.noise=5")
    assert "nearest is 'data.task.tokens'" in refused(2, "eval", "noisy-recall", "-m", folder, "--set", "data.task.token=5")
    assert "--set: 'train.steps', want an option of the task" in refused(2, "eval", "noisy-recall", "-m", folder, "--set", "train.steps=5")
    # Rotary positions beyond those of the training, as eval -c has them.
    turned = tmp_path / "turned"
    done = run("train", *SIZES, *RECALL, "--steps", 5, "--out", turned)
    assert done.returncode == 0, done.stderr
    far = ["--set", "data.task.tokens=40", "--limit", 500]
    plain = scored("noisy-recall", turned, *far)["all"]
    scaled = scored("noisy-recall", turned, *far, "--set", "model.attention.rope_scaling=linear", "--set", "model.attention.rope_factor=8")["all"]
    assert plain["episodes"] == scaled["episodes"] == 500


def test_a_model_goes_on_with_longer_episodes(recall, tmp_path):
    folder, _ = recall
    options = [*RECALL[2:], "--set", "data.task.tokens=10"]  # the last one counts
    done = run("train", "--init", folder, "--task", "noisy-recall", *options, "--steps", 3, "-b", 8, "--out", tmp_path / "longer", "-t", 1)
    assert done.returncode == 0, done.stderr
    assert tomllib.loads((tmp_path / "longer/config.toml").read_text())["train"]["context"] == 12
    assert json.loads((last_checkpoint(tmp_path / "longer") / "task.json").read_text())["tokens"] == 10
    assert scored("noisy-recall", tmp_path / "longer", "--limit", 50)["all"]["episodes"] == 50
    begin = ["train", "--init", folder, "--steps", 3, "--out", tmp_path / "x"]
    assert "is a model of the task noisy-recall, not facts" in refused(2, *begin, "--task", "facts")
    assert "noisy-recall has 712 tokens, want the 22 of" in refused(2, *begin, "--task", "noisy-recall")


def test_wrong_answers_are_told_apart(tmp_path):
    trained(tmp_path / "run", *FACTS, "--steps", 60)
    last = evaluations(tmp_path / "run")[-1]
    found = scored("facts", tmp_path / "run")
    for row in found.values():
        assert row["exact_match"] + row["misattributed"] + row["fabricated"] == pytest.approx(1)
    assert {key: found["all"][key] for key in ("misattributed", "fabricated")} == {key: last[key] for key in ("misattributed", "fabricated")}
    assert found["all"]["misattributed"] > found["all"]["fabricated"], "values of the text are what it learned first"
    assert found["facts 2-3"] == found["all"] | {"slice": "facts 2-3"}
    assert found["all"]["chance"] == pytest.approx((1 / 2 + 1 / 3) / 2, abs=0.01)


def test_an_answer_of_several_tokens(tmp_path):
    (row,) = trained(tmp_path / "run", "--task", "passkey", "--set", "data.task.tokens=60", "--steps", 5, "--set", "train.eval_windows=16")
    found = scored("passkey", tmp_path / "run", "--limit", 200)
    assert found["all"]["chance"] == pytest.approx(0.001) and found["all"]["episodes"] == 200
    assert set(found) == {"all", "distance < T", "depth 1/4", "depth 2/4", "depth 3/4", "depth 4/4"}
    far = scored("passkey", tmp_path / "run", "--limit", 200, "--set", "data.task.tokens=150")
    assert far["distance >= T"]["episodes"] > 50 and far["distance < T"]["episodes"] > 20
    assert json.loads((last_checkpoint(tmp_path / "run") / "task.json").read_text())["trained"] == 60
    assert row["tokens_scored"] == 3 * (500_000 // 63 + 1)


def test_tables_are_those_of_other_evaluations(recall):
    folder, _ = recall
    done = run("eval", "noisy-recall", "-m", folder, "--limit", 50)
    head, row = done.stdout.splitlines()[0], done.stdout.splitlines()[-1]
    assert head.split() == ["task", "slice", "episodes", "exact", "match", "+-", "chance"] and row.split()[:3] == ["noisy-recall", "all", "50"]
    (line,) = csv.DictReader(io.StringIO(run("eval", "noisy-recall", "-m", folder, "--limit", 50, "-o", "csv").stdout))
    assert line["episodes"] == "50" and float(line["chance"]) == pytest.approx(scored("noisy-recall", folder, "--limit", 50)["all"]["chance"])
    listed = {row["task"]: row["measures"] for row in json.loads(run("eval", "--list", "--json").stdout)}
    assert {"where-select", "noisy-recall", "passkey", "episodes", "facts", "perplexity", "blimp"} <= set(listed)


def test_the_report_shows_a_task(recall):
    folder, _ = recall
    page = (folder / "report.html").read_text()
    assert "Training of softmax on noisy-recall" in page and "the accuracy 0." in page
    assert "motet eval noisy-recall -m" in page and "motet generate" not in page and "Accuracy" in page
    assert "key 1 is" in page, "tokens of the pictures have the task's words"


def test_a_model_folder_says_its_task(recall, tmp_path):
    folder, _ = recall
    out = tmp_path / "motet"
    done = run("convert", folder, "--to", "motet", "--out", out)
    assert done.returncode == 0, done.stderr
    assert json.loads((out / "task.json").read_text())["name"] == "noisy-recall"
    assert scored("noisy-recall", out, "--limit", 300) == scored("noisy-recall", folder, "--limit", 300)
    assert "the layout llama cannot say attention.rope_fraction = 0.0" in refused(1, "convert", folder, "--to", "llama", "--out", tmp_path / "llama")
    (tmp_path / "motet/task.json").write_text("[]")
    assert "task.json: is damaged" in refused(1, "eval", "noisy-recall", "-m", tmp_path / "motet")
    (tmp_path / "motet/task.json").write_text('{"name": "noisy-recall", "keys": 9}')
    assert "has 22 tokens, want the 217 of noisy-recall" in refused(2, "eval", "noisy-recall", "-m", tmp_path / "motet")


def test_what_is_not_of_this_task_is_refused(recall, model, tmp_path):
    folder, _ = recall
    assert "was trained on noisy-recall, not on facts" in refused(2, "eval", "facts", "-m", folder)
    assert "was not trained on a task, want a model of motet train --task facts" in refused(2, "eval", "facts", "-m", model)
    assert "noisy-recall: its episodes are made, want no file" in refused(2, "eval", "noisy-recall", "-m", folder, "a.txt")
    assert "--ctx-size: has no meaning for noisy-recall" in refused(2, "eval", "noisy-recall", "-m", folder, "-c", "64")
    for flag, value in (("--stride", "3"), ("--items", "a"), ("--documents", "apart"), ("--positions", "3"), ("--logit-scale", "row")):
        assert f"{flag}: has no meaning for noisy-recall" in refused(2, "eval", "noisy-recall", "-m", folder, flag, value)
    assert "unknown task 'noisy-recal': nearest is 'noisy-recall'" in refused(2, "eval", "noisy-recal", "-m", folder)
    for words in (["generate", "-m", folder, "-p", "a"], ["chat", "-m", folder], ["eval", "-m", folder]):
        assert "a model of the task noisy-recall has no text, want motet eval noisy-recall" in refused(1, *words)
    out = ["--steps", 3, "--out", tmp_path / "x"]
    assert "unknown task 'where-selekt': nearest is 'where-select'" in refused(2, "train", "--task", "where-selekt", *out)
    assert "--task and a text: want one of them" in refused(2, "train", "--task", "facts", "a.txt", *out)
    assert "--n-predict: has no meaning for a task" in refused(2, "train", "--task", "facts", "-n", 5, *out)
    assert "--prompt: a task has no text" in refused(2, "train", "--task", "facts", "-p", "a", *out)
    assert "data.tokenizer: a task has no text" in refused(2, "train", "--task", "facts", "--tokenizer", "bytes", *out)
    assert "train.context: 64, want the 18 tokens" in refused(2, "train", "--task", "facts", "-c", 64, *out)
    assert "is no model of the task facts" in refused(2, "train", "--task", "facts", "--init", model, *out)
    assert "has no text, want motet eval noisy-recall" in refused(1, "train", "--init", folder, *out)
    assert "data.task: compare reads texts" in refused(2, "compare", "--set", "data.task.name=facts")
    assert not (tmp_path / "x").exists()


def test_a_resumed_run_has_its_task(recall, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(recall[0], folder)
    resume = ["train", "--resume", folder, "--steps", 65]
    assert "data.task.tokens was 6 and is 5, want it as it was" in refused(2, *resume, "--set", "data.task.tokens=5")
    assert "data.task" in refused(2, *resume, "--task", "facts")
    assert "data.task" in refused(2, *resume, "a.txt")
    done = run(*resume, "-t", 1)
    assert done.returncode == 0 and records(folder)[-1]["step"] == 65, done.stderr


def test_what_is_frozen_beside_the_table_of_a_task_goes_on_frozen(tmp_path):
    folder = tmp_path / "run"
    began = ["train", *SIZES, *SET, *WHERE, "--freeze", "*.mlp.*", "--resume", "auto", "--out", folder]
    for steps in (2, 3):
        done = run(*began, "--steps", steps)
        assert done.returncode == 0 and records(folder)[-1]["step"] == steps, done.stderr
    fixed = "model.embed_tokens.weight"
    assert json.loads((last_checkpoint(folder) / "state.json").read_text())["freeze"] == ["*.mlp.*", fixed]
    line = refused(2, *began, "--steps", 4, "--freeze", "*.norm.*")
    assert line == f'motet: train: --resume: --freeze was ["*.mlp.*","{fixed}"] and is ["*.mlp.*","*.norm.*","{fixed}"], want it as it was'


def test_the_options_of_tasks_are_shown_and_read(tmp_path):
    text = run("train", "--options").stdout
    shown = [line.removeprefix("# ") for line in text.splitlines()]
    for name, key in (("where-select", "held_out = 6"), ("passkey", "digits = 3"), ("episodes", 'order = "random"'), ("facts", "fewest = 2")):
        assert f'name = "{name}"' in shown and any(line.startswith(key) for line in shown)
    (tmp_path / "a.toml").write_text('[data.task]\nname = "facts"\nfacts = 5\n[train]\nsteps = 7\n')
    done = run("train", "--config", tmp_path / "a.toml", "--set", "data.task.tokens=30", "--dry-run")
    plan = tomllib.loads(done.stdout)
    assert (plan["data"]["task"]["facts"], plan["data"]["task"]["tokens"], plan["train"]["context"]) == (5, 30, 32)
    other = tomllib.loads(run("train", "--config", tmp_path / "a.toml", "--task", "passkey", "--dry-run").stdout)
    assert other["data"]["task"]["name"] == "passkey" and "facts" not in other["data"]["task"]
