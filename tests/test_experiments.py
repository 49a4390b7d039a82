"""Experiments: cells that end once, whatever stops them, and reports that are what the results say."""
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import time

import pytest
from conftest import MOTET, ROOT, environment, records, refused, run, slow

SMALL = """
claim = "a second layer lowers the loss"
source = "a test"
kind = "train"

[options.model]
hidden_size = 16
num_layers = 1
attention = { num_heads = 2 }

[options.train]
steps = STEPS
context = 16
batch_size = 2
eval_windows = 8
final_eval_windows = 256

[[scale]]
name = "xs"
seeds = 2

[[scale]]
name = "s"
seeds = 2
model = { hidden_size = 32 }

[[arm]]
name = "one"
mechanism = "mha"

[[arm]]
name = "two, talking"
mechanism = "talking_heads"
model = { num_layers = 2 }
match = "none"

[[control]]
name = "is a number"
arm = "one"
metric = "validation_loss"
below = 10

[[verdict]]
says = "two below one"
metric = "validation_loss"
less = ["two, talking", "one"]
margin = 0.01
"""


@pytest.fixture
def folder(tmp_path):
    return written(tmp_path / "experiments" / "T1_small")


def written(folder, text=SMALL, steps=6):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "experiment.toml").write_text(text.replace("STEPS", str(steps)))
    return folder


def motet(folder, *words, **more):
    return run("experiment", *words, "--folder", folder.parent, folder=folder.parent.parent, **more)


def results(folder):
    return json.loads((folder / "results.json").read_text())


def metrics(folder):
    """What every cell came to, without what tells of the machine."""
    return {key: {name: cell[name] for name in ("arm", "seed", "scale", "metrics", "curve")} for key, cell in results(folder)["cells"].items()}


def config_of(text, path):
    """The [model] and [train] of an experiment's options, for motet train --config."""
    path.write_text(re.search(r"\[options.model\].*?(?=\n\[\[)", text, re.S).group().replace("options.", ""))
    return path


def good(done):
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_cells_run_once_and_the_report_is_what_they_say(folder):
    good(motet(folder, "run", "T1", "-t", 2))
    stored = (folder / "results.json").read_text()
    assert sorted((cell["arm"], cell["seed"]) for cell in results(folder)["cells"].values()) == [
        ("one", 1), ("one", 2), ("two, talking", 1), ("two, talking", 2)]  # fmt: skip
    again = good(motet(folder, "run", "T1"))
    assert "cells" not in again.stderr and (folder / "results.json").read_text() == stored
    assert motet(folder, "report", "--check").returncode == 1, "there is no README yet"
    (folder.parent.parent / "docs").mkdir()
    (folder.parent.parent / "README.md").write_text("# A project\n<!-- experiments -->\n<!-- /experiments -->\n")
    good(motet(folder, "report"))
    good(motet(folder, "report", "--check"))
    word = results(folder)["verdicts"]["xs"][0]["verdict"]
    for text in ("README.md", "docs/experiments.md", "experiments/T1_small/README.md"):
        assert word in (folder.parent.parent / text).read_text(), text
    assert word in good(motet(folder, "list")).stdout
    page = (folder.parent.parent / "runs/experiments/T1.html").read_text()
    assert "two below one" in page
    for text in ("README.md", "docs/experiments.md", "experiments/T1_small/README.md"):
        path = folder.parent.parent / text
        whole = path.read_text()
        path.write_text(whole.replace(word, "contradicted by hand"))
        line = refused(1, "experiment", "report", "--check", "--folder", folder.parent, folder=folder.parent.parent)
        assert str(path) in line and line.endswith("want motet experiment report")
        path.write_text(whole)
    good(motet(folder, "report", "--check"))


def test_flags_of_another_action_are_refused_before_anything_is_done(folder):
    before = sorted(folder.parent.parent.rglob("*"))
    for action, flag in [("report", "--dry-run"), ("list", "--check"), ("merge", "--json"), ("run", "--check"), ("report", "--scale=xs"),
                         ("report", "--arms=one"), ("list", "--seeds=1"), ("merge", "--jobs=2"), ("report", "--device=cpu")]:
        line = refused(2, "experiment", action, "T1", flag, "--folder", folder.parent, folder=folder.parent.parent)
        name = "--output" if flag == "--json" else flag.split("=")[0]
        assert line == f"motet: {name}: has no meaning for experiment {action}"
    assert sorted(folder.parent.parent.rglob("*")) == before
    good(motet(folder, "report", MOTET_THREADS="1"))


def test_a_word_that_a_person_wrote_does_not_stay(folder):
    good(motet(folder, "run", "T1"))
    good(motet(folder, "report"))
    true = (folder / "results.json").read_text()
    word = results(folder)["verdicts"]["xs"][0]["verdict"]
    (folder / "results.json").write_text(true.replace(f'"verdict":"{word}"', '"verdict":"confirmed!"'))
    assert str(folder / "results.json") in motet(folder, "report", "--check").stderr
    good(motet(folder, "report"))
    assert (folder / "results.json").read_text() == true


def test_parts_jobs_and_machines_come_to_the_same(folder, tmp_path):
    good(motet(folder, "run", "T1", "-t", 2, "--jobs", 2))
    first = written(tmp_path / "a" / "experiments" / "T1_small")
    good(motet(first, "run", "T1", "--cells", "1/2", "-t", 1))
    assert len(results(first)["cells"]) == 2
    second = written(tmp_path / "b" / "experiments" / "T1_other_name")
    good(motet(second, "run", "T1", "--cells", "2/2", "-t", 1))
    done = good(motet(first, "merge", second.parent))
    assert "2 cells are merged" in done.stderr
    assert metrics(first) == metrics(folder)
    good(motet(folder, "run", "T1", "--scale", "s", "--arms", "one", "--seeds", 1))
    assert sum(cell["scale"] == "s" for cell in results(folder)["cells"].values()) == 1


def test_a_kill_loses_the_cells_that_run_and_nothing_else(folder, tmp_path):
    never = written(tmp_path / "never" / "experiments" / "T1_small", steps=200)
    good(motet(never, "run", "T1", "-t", 1))
    written(folder, steps=200)
    command = [MOTET, "experiment", "run", "T1", "-t", "1", "--folder", folder.parent]
    for signals in (signal.SIGKILL, signal.SIGINT, signal.SIGKILL):
        before = len(results(folder)["cells"]) if (folder / "results.json").exists() else 0
        process = subprocess.Popen(command, cwd=folder.parent.parent, env=environment(), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        deadline = time.time() + 60
        while process.poll() is None and time.time() < deadline:
            if (folder / "results.json").exists() and len(results(folder)["cells"]) > before:
                break
            time.sleep(0.01)
        time.sleep(0.1)
        process.send_signal(signals)
        _, error = process.communicate(timeout=60)
        if signals == signal.SIGINT and process.returncode != 0:
            assert process.returncode == 130
            assert re.search(r"motet: experiment: stopped; \d cells have ended; to go on: .*motet experiment run T1", error.splitlines()[-1]), error
        assert before < len(results(folder)["cells"]) <= 4
    good(motet(folder, "run", "T1", "-t", 1))
    assert metrics(folder) == metrics(never)


def test_a_file_that_changed_makes_its_cells_void(folder):
    good(motet(folder, "run", "T1"))
    good(motet(folder, "report"))
    written(folder, SMALL.replace("num_layers = 2", "num_layers = 3"))
    line = motet(folder, "report", "--check")
    assert line.returncode == 1
    assert "T1: experiment.toml has changed since its results: 2 cells of two, talking are void" in line.stderr
    done = good(motet(folder, "run", "T1"))
    assert "2 cells of two, talking are void" in done.stderr and len(results(folder)["cells"]) == 6
    good(motet(folder, "report"))
    assert len(results(folder)["cells"]) == 6, "numbers of another file stay until their experiment is named"
    good(motet(folder, "report", "T1"))
    assert len(results(folder)["cells"]) == 4


def test_what_a_cell_says_is_what_train_says(folder, tmp_path):
    good(motet(folder, "run", "T1", "-t", 1))
    config = config_of(SMALL.replace("STEPS", "6"), tmp_path / "one.toml")
    for seed in (1, 2):
        out = tmp_path / f"run{seed}"
        good(run("train", "--config", config, "--set", f"train.seed={seed}", "--set", f"train.data_seed={seed - 1}", "-t", 1, "--out", out))
        last = [row["validation_loss"] for row in records(out) if "validation_loss" in row][-1]
        (cell,) = [c for c in results(folder)["cells"].values() if c["arm"] == "one" and c["seed"] == seed]
        assert cell["metrics"]["validation_loss"] == last


RATES = SMALL.replace("seeds = 2\n\n[[scale]]", "seeds = 3\nrates = [0.5, 1, 4]\nrate_seeds = 1\n\n[[scale]]")


def test_an_arm_trains_all_its_seeds_at_its_own_best_rate(folder, tmp_path):
    """Run in one go, and in parts by two machines: the same cells, the same choice."""
    written(folder, RATES, steps=20)
    planned = good(motet(folder, "run", "T1", "--dry-run")).stdout
    assert "6 cells, " in planned and planned.rstrip().endswith("; 4 more follow once the rates are chosen"), planned
    assert "0 of 10" in good(motet(folder, "list")).stdout
    good(motet(folder, "run", "T1", "-t", 2, "--jobs", 2))
    stored = results(folder)
    assert "10 of 10" in good(motet(folder, "list")).stdout and "; " not in good(motet(folder, "run", "T1", "--dry-run")).stdout
    for arm, chosen in stored["rates"]["xs"].items():
        cells = {(cell["seed"], cell.get("rate", 1)): cell["metrics"]["validation_loss"] for cell in stored["cells"].values() if cell["arm"] == arm}
        assert chosen == min((0.5, 1, 4), key=lambda rate: cells[1, rate]) and len(set(cells.values())) == 5
        assert sorted(cells) == sorted({(1, 0.5), (1, 1), (1, 4), (2, chosen), (3, chosen)})
        shown = next(line for line in (good(motet(folder, "report")), folder / "README.md")[1].read_text().splitlines() if line.startswith(f"| {arm} "))
        assert shown.split("|")[3].strip() == f"{chosen:g}" + ("" if chosen == 1 else " (edge)"), shown
    good(motet(folder, "report", "--check"))

    first = written(tmp_path / "a" / "experiments" / "T1_small", RATES, steps=20)
    second = written(tmp_path / "b" / "experiments" / "T1_small", RATES, steps=20)
    done = good(motet(second, "run", "T1", "--cells", "2/2", "-t", 1))
    assert not (second / "results.json").exists() and "cells" not in done.stderr, "what seed 2 trains with is not known here"
    good(motet(first, "run", "T1", "--cells", "1/2", "-t", 1))
    assert len(results(first)["cells"]) == 8
    assert "8 cells are merged" in good(motet(second, "merge", first.parent)).stderr
    good(motet(second, "run", "T1", "--cells", "2/2", "-t", 1))
    assert metrics(second) == metrics(folder) and results(second)["rates"] == stored["rates"]


def test_a_rate_is_a_factor_of_the_learning_rate(folder, tmp_path):
    written(folder, RATES.replace("[options.train]", '[options.train]\noptimizer = "muon"'))
    good(motet(folder, "run", "T1", "-t", 1, "--arms", "one", "--seeds", 1))
    config = config_of(SMALL.replace("STEPS", "6"), tmp_path / "one.toml")
    for rate in (0.5, 4):
        rates = [f"train.learning_rate={3e-3 * rate}", f"train.muon_learning_rate={0.02 * rate}", "train.optimizer=muon"]
        out = tmp_path / f"run{rate}"
        good(run("train", "--config", config, *(word for pair in rates for word in ("--set", pair)), "-t", 1, "--out", out))
        last = [row["validation_loss"] for row in records(out) if "validation_loss" in row][-1]
        (cell,) = [c for c in results(folder)["cells"].values() if c.get("rate") == rate]
        assert cell["metrics"]["validation_loss"] == last
    (folder / "results.json").unlink()
    written(folder, RATES.replace("[options.train]", "[options.train]\nlearning_rate = 5"))
    line = refused(2, "experiment", "run", "T1", "--arms", "one", "--folder", folder.parent, folder=folder.parent.parent)
    assert line == "motet: T1, one: train.learning_rate times 4: 20.0 is above 10" and not (folder / "results.json").exists()


def test_a_watched_training_says_how_steady_it_was(folder, tmp_path):
    text = SMALL.replace("[options.model]", "[options]\nwatch = true\n\n[options.model]").replace("STEPS", "80")
    written(folder, text)
    good(motet(folder, "run", "T1", "-t", 1, "--arms", "one", "--seeds", 1))
    (cell,) = results(folder)["cells"].values()
    good(run("train", "--config", config_of(text, tmp_path / "one.toml"), "-t", 1, "--out", tmp_path / "run"))
    steps = [row for row in records(tmp_path / "run") if "gradient_norm" in row]
    losses = [row["loss"] for row in steps]
    spikes = sum(losses[i] > statistics.mean(losses[i - 50 : i]) + 4 * statistics.stdev(losses[i - 50 : i]) for i in range(50, 80))
    assert cell["metrics"]["largest_gradient"] == max(row["gradient_norm"] for row in steps if row["step"] > 4), "5 % of the steps are the warm-up"
    assert (cell["metrics"]["spikes"], cell["metrics"]["diverged"]) == (spikes, 0) and "validation_loss" in cell["metrics"]

    wild = text.replace("[options.train]", "[options.train]\nlearning_rate = 10\nweight_decay = 1\nwarmup = 0")
    for watched in (True, False):
        (folder / "results.json").unlink()
        written(folder, wild if watched else wild.replace("watch = true", ""))
        assert "and what is not known" in good(motet(folder, "run", "T1", "--dry-run", "--arms", "one", "--seeds", 1)).stdout
        done = good(motet(folder, "run", "T1", "-t", 1, "--arms", "one", "--seeds", 1))
        (cell,) = results(folder)["cells"].values()
        assert "warning: T1, one, seed 1: step " in done.stderr and cell["failure"].startswith("step ")
        if not watched:
            assert "metrics" not in cell
            continue
        made = int(re.match(r"step (\d+): ", cell["failure"])[1]) - 1
        assert 0 < made < 80 and cell["metrics"]["diverged"] == 1 and "validation_loss" not in cell["metrics"]
        assert 80 - made <= cell["metrics"]["spikes"] <= 80 - made + max(made - 50, 0), "steps that it no longer made count"


def test_a_cell_goes_on_with_other_positions_as_train_does(folder, tmp_path):
    then = '[options]\nthen = { model = { attention = { rope_scaling = "linear", rope_factor = 2 } }, train = { context = 32, steps = 3, batch_size = 1 } }\n'
    text = SMALL.replace("[options.model]", then + "lengths = { times = [1, 2], tokens = 500 }\nrecall = { n = 2, tokens = 500 }\n\n[options.model]").replace("STEPS", "6")
    written(folder, text)
    good(motet(folder, "run", "T1", "-t", 1, "--arms", "one", "--seeds", 1))
    (cell,) = results(folder)["cells"].values()
    config = config_of(text, tmp_path / "one.toml")
    good(run("train", "--config", config, "-t", 1, "--out", tmp_path / "first"))
    more = ["train.context=32", "train.steps=3", "train.batch_size=1", "model.attention.rope_scaling=linear", "model.attention.rope_factor=2"]
    sets = [word for pair in more for word in ("--set", pair)]
    good(run("train", "--init", tmp_path / "first", "--config", config, *sets, "-t", 1, "--out", tmp_path / "second"))
    last = [row["validation_loss"] for row in records(tmp_path / "second") if "validation_loss" in row][-1]
    assert cell["metrics"]["validation_loss"] == last
    assert cell["tokens"] == 6 * 2 * 16 + 3 * 32 and cell["curve"][-1] == [cell["tokens"], last]
    assert sorted(name for name in cell["metrics"] if name.startswith("loss")) == ["loss{1T}", "loss{2T}", "loss{recall}", "loss{rest}"]
    assert 0 < cell["metrics"]["recalled"] < 0.5
    resolved = results(folder)["configurations"]["xs"]["one"]
    assert resolved["then"]["train"]["context"] == 32 and resolved["then"]["attention"]["rope_scaling"] == "linear"
    assert resolved["train"]["context"] == 16 and resolved["model"]["attention"]["rope_scaling"] == "none"

    (folder / "results.json").unlink()
    for before, after, line in [
        ("rope_factor = 2", "num_heads = 2", "T1, one: model.attention.num_heads: comes from the checkpoint, want one of rope_base"),
        ("model = { attention", "model = { num_layers = 2, attention", "then.model.num_layers: comes from the training"),
        ("steps = 3, ", "", "T1, one: then.train: want steps or tokens"),
        ("train = { context", "trian = { context", "unknown option 'then.trian': nearest is 'then.train'"),
        ("then = {", "watch = true\nthen = {", "T1, one: watch: is of one training"),
        ("n = 2,", "n = 32,", "T1, one: recall.n: 32, want less than the context of 32"),
    ]:
        written(folder, text.replace(before, after))
        assert line in refused(2, "experiment", "run", "T1", "--arms", "one", "--folder", folder.parent, folder=folder.parent.parent)


def test_the_time_that_is_given_is_kept(folder):
    done = good(motet(folder, "run", "T1", "-t", 1, "--minutes", "0.00001"))
    assert "the time is up; 0 cells have ended" in done.stderr and not (folder / "results.json").exists()
    good(motet(folder, "run", "T1", "-t", 1, "--arms", "one", "--scale", "xs"))
    stored = results(folder)
    for cell in stored["cells"].values():
        cell["seconds"] = 7200
    (folder / "results.json").write_text(json.dumps(stored))
    text = SMALL.replace("seeds = 2", "seeds = 3")
    written(folder, text)
    done = good(motet(folder, "run", "T1", "-t", 1, "--arms", "one", "--scale", "xs", "--minutes", 100))
    assert "the time is up; 0 cells have ended" in done.stderr, "as long as the other seeds took"
    written(folder, text.replace('name = "two, talking"', 'name = "two, talking"\ntrain = { steps = 20000 }'))
    done = good(motet(folder, "run", "T1", "-t", 1, "--scale", "s", "--minutes", 0.1))
    assert "the time is up" in done.stderr, "as a few steps tell"
    assert {cell["arm"] for cell in results(folder)["cells"].values() if cell["scale"] == "s"} <= {"one"}
    written(folder, text)
    done = good(motet(folder, "run", "T1", "-t", 1, "--scale", "s", "--minutes", 100))
    assert "the time is up" not in done.stderr and len(results(folder)["cells"]) == 2 + 6
    written(folder, text, steps=7)
    done = good(motet(folder, "run", "T1", "-t", 1, "--arms", "one", "--scale", "xs", "--minutes", 100))
    assert "the time is up" not in done.stderr, "the cells of 7200 seconds are void, and tell nothing"


def test_the_weakest_of_several_comparisons_is_shown(folder):
    path = folder / "experiment.toml"
    both = '[[verdict]]\nsays = "both below 9"\nmetric = "validation_loss"\nbelow = ["ARMS"]\nlimit = 9\ntest = "exact"\n'
    path.write_text(path.read_text() + "\n" + both.replace("ARMS", 'one", "two, talking'))
    good(motet(folder, "run", "T1", "-t", 2))
    (folder.parent.parent / "docs").mkdir()
    (folder.parent.parent / "README.md").write_text("<!-- experiments -->\n<!-- /experiments -->\n")
    cells = results(folder)["cells"].values()
    mean = lambda arm: statistics.mean(cell["metrics"]["validation_loss"] for cell in cells if cell["arm"] == arm)  # noqa: E731
    weakest = max(("one", "two, talking"), key=mean)
    assert f"{weakest} - 9 -" in good(motet(folder, "report")).stdout
    path.write_text(path.read_text().replace('"one", "two, talking"]\nlimit', '"two, talking", "one"]\nlimit'))
    assert f"{weakest} - 9 -" in good(motet(folder, "report")).stdout


def test_mistakes_are_one_line(folder):
    def wrong(*words, code=2):
        return refused(code, "experiment", *words, "--folder", folder.parent, folder=folder.parent.parent)

    assert wrong("run", "T2") == "motet: unknown experiment 'T2': nearest is 'T1'; known: T1"
    assert wrong("runn") == "motet: unknown action 'runn': nearest is 'run'; known: list, run, report, merge"
    assert wrong("run", "T1", "--scale", "m") == "motet: T1: unknown scale 'm': nearest is 's'; known: xs, s"
    assert wrong("run", "T1", "--arms", "three") == "motet: --arms: T1: unknown arm 'three': known: one, two, talking"
    assert wrong("run", "T1", "--arms", "two, talking,two") == "motet: --arms: T1: unknown arm 'two': known: one, two, talking"
    named = good(motet(folder, "run", "T1", "--dry-run", "--arms", "two, talking,one")).stdout
    assert named == good(motet(folder, "run", "T1", "--dry-run")).stdout and "two, talking" in named
    path, whole = folder / "experiment.toml", (folder / "experiment.toml").read_text()
    path.write_text(whole.replace('metric = "validation_loss"', 'metric = "validation_los"'))
    for words in [], ["--dry-run"]:
        said = wrong("run", "T1", *words, code=1)
        assert said == "motet: T1, one: unknown metric 'validation_los': nearest is 'validation_loss'; known: validation_loss"
    assert not (folder / "results.json").exists(), "no cell was trained"
    path.write_text(whole)
    assert wrong("run", "T1", "--cells", "3/2") == "motet: --cells: '3/2', want a part such as 1/2"
    known = "nearest is 'cpu'; known: auto, cpu, cuda, cuda:N"
    for nothing_left in [], ["--cells", "3/3"]:
        assert wrong("run", "T1", *nothing_left, "--device", "tpu") == f"motet: unknown device 'tpu': {known}"
    assert "want an id" in wrong("run")
    (folder / "results.json").write_text('{"version": 9}')
    assert "is of version 9, want 1" in wrong("run", "T1", code=1)
    (folder / "results.json").unlink()
    for before, after, line in [
        ('kind = "train"', 'kind = "traim"', "unknown kind 'traim': nearest is 'train'; known: train, bench, fit"),
        ("num_layers = 1", "num_layer = 1", "T1, one: unknown key 'model.num_layer': nearest is 'model.num_layers'"),
        ('match = "none"', 'mach = "none"', "T1, two, talking: unknown option 'mach': nearest is 'match'"),
        ("steps = STEPS", 'steps = STEPS\ndevice = "tpu"', ""),
        ("[options.model]", '[options.data]\ntext = "books10M"\n\n[options.model]', "T1, one: its data is not there, want 'data/books10M'"),
        ("[options.model]", '[options.data]\ntask = { name = "where" }\n\n[options.model]', "T1, one: "),
    ]:
        written(folder, SMALL.replace(before, after))
        if line:
            found = wrong("run", "T1", "-t", 1)
            assert line in found, found
    written(folder, SMALL.replace("[[control]]", "[[controll]]"))
    assert "unknown key 'controll': nearest is 'control'" in wrong("list", code=1)


TASK = """
claim = "it runs"
source = "a test"
kind = "train"

[options]
data = { task = TASK }

[options.model]
hidden_size = 16
num_layers = 1
attention = { num_heads = 2, rope_fraction = 0 }

[options.train]
steps = STEPS
batch_size = 32
learning_rate = 0.01

[[scale]]
name = "xs"
seeds = 1

[[arm]]
name = "mha"
mechanism = "mha"

[[control]]
name = "a control"
arm = "mha"
metric = "accuracy"
above = 0

[[verdict]]
says = "it learns"
metric = "accuracy"
above = ["mha"]
limit = 0.5
test = "exact"
"""


def test_a_task_is_learned_and_its_slices_are_counted(folder):
    where = '{ name = "where-select", fields = 3, values = 2, items = 2, held_out = 1 }'
    recall = '{ name = "noisy-recall", tokens = 4, needles = 1, keys = 2, values = 2, noise = 2, test = [{ name = "n=12", tokens = 12 }] }'
    for task, slices, steps in ((where, ["held out", "seen"], 5), (recall, ["n=12"], 300)):
        written(folder, TASK.replace("TASK", task), steps)
        good(motet(folder, "run", "T1", "-t", 1))
        (cell,) = [c for c in results(folder)["cells"].values() if any(f"accuracy{{{slices[0]}}}" == m for m in c["metrics"])]
        accuracies = [name for name in sorted(cell["metrics"]) if name.startswith("accuracy")]
        assert accuracies == ["accuracy", *(f"accuracy{{{s}}}" for s in slices)]
        assert abs(sum(number for name, number in cell["metrics"].items() if name.startswith("share")) - 1) < 1e-5
    assert cell["metrics"]["accuracy"] > 0.95, "one needle among three tokens of noise"
    assert 0.5 < cell["metrics"]["accuracy{n=12}"] <= cell["metrics"]["accuracy"]


def test_a_bench_cell_measures(folder):
    text = SMALL.replace('"train"', '"bench"')
    text = re.sub(r"\[options.model\].*?(?=\n\[\[scale)", "[options]\nhidden = 16\nlayers = 1\nheads = 2\nT = 16\nB = 1\nvocab = 32\nrepeats = 1\n", text, flags=re.S)
    text = text.replace("model = { hidden_size = 32 }", "").replace("model = { num_layers = 2 }", "").replace('match = "none"', "").replace("validation_loss", "speed")
    written(folder, text.replace("seeds = 2", "seeds = 1"))
    for measure in ("step", "decode", "attention"):
        more = "head_dim = 8\n" if measure == "attention" else ""
        written(folder, text.replace("[options]\n", f'[options]\nmeasure = "{measure}"\n{more}').replace("seeds = 2", "seeds = 1"))
        good(motet(folder, "run", "T1", "-t", 1))
    assert len(results(folder)["cells"]) == 6
    assert all(cell["metrics"]["speed"] > 0 for cell in results(folder)["cells"].values())


IDS = {path.name.split("_")[0] for path in (ROOT / "experiments").iterdir() if path.is_dir()}
LARGE = {"C2", "D6", "F5"}  # a few steps of each are timed, for what all of them would take


@pytest.mark.parametrize("id", [*sorted(IDS - LARGE), *slow(*sorted(LARGE))])
def test_the_projects_own_experiments_say_what_would_run(id, tmp_path):
    """Those of a text without it: what is missing is named."""
    shutil.copytree(ROOT / "experiments", tmp_path / "experiments")
    for path in tmp_path.glob("experiments/*/results.json"):
        path.unlink()
    done = run("experiment", "run", id, "--dry-run", folder=tmp_path)
    text = next((ROOT / "experiments").glob(f"{id}_*/experiment.toml")).read_text()
    if 'text = "books10M"' in text:
        assert done.returncode == 2 and "books10M" in done.stderr and len(done.stderr.splitlines()) == 1
    else:
        good(done)


@pytest.fixture(scope="module")
def small_books(tmp_path_factory):
    """Text in place of books10M: what experiments would compute is checked, without computing it."""
    place = tmp_path_factory.mktemp("books")
    words = ["the", "sea", "was", "dark", "and", "of", "old", "houses", "nobody", "spoke", "\n"]
    for name, count in (("train", 20_000), ("valid", 250_000)):
        (place / f"{name}.txt").write_text(" ".join(words[i * i % 13 % 11] for i in range(count)))
    out = place / "data" / "books10M"
    good(run("data", "prepare", place / "train.txt", "--validation-text", place / "valid.txt", "--tokenizer", "bytes", "--out", out, folder=place))
    return place / "data"


@pytest.mark.parametrize("id", sorted(IDS))
def test_the_projects_own_experiments_have_options_that_are_known(id, small_books, tmp_path):
    """Every arm at every scale and rate is resolved before the first cell, for which there is no time."""
    (folder,) = (ROOT / "experiments").glob(f"{id}_*")
    shutil.copytree(folder, tmp_path / "experiments" / folder.name, ignore=shutil.ignore_patterns("results.json"))
    text = (folder / "experiment.toml").read_text()
    for scale in re.findall(r'\[\[scale\]\]\nname = "(.*)"', text):
        done = good(run("experiment", "run", id, "--scale", scale, "--minutes", "1e-9", "-t", 1, "--data", small_books, folder=tmp_path))
        assert "the time is up; 0 cells have ended" in done.stderr
    assert "not_run" in text or "[[scale]]" in text
    assert not (tmp_path / "experiments" / folder.name / "results.json").exists()


@pytest.mark.slow
def test_the_curves_of_x3_are_still_those(tmp_path):
    """A change of an operator that changes what is learned shows here; float64, so that processors agree."""
    stored = json.loads((ROOT / "experiments/X3_curves/results.json").read_text())["cells"]
    shutil.copytree(ROOT / "experiments/X3_curves", tmp_path / "experiments/X3_curves", ignore=shutil.ignore_patterns("results.json"))
    good(run("experiment", "run", "X3", folder=tmp_path, timeout=1200))
    found = json.loads((tmp_path / "experiments/X3_curves/results.json").read_text())["cells"]
    assert found.keys() == stored.keys() and len(found) == 8
    for key, cell in found.items():
        for (tokens, loss), (at, was) in zip(cell["curve"], stored[key]["curve"], strict=True):
            assert tokens == at and abs(loss - was) < 1e-4, (cell["arm"], tokens, loss, was)
