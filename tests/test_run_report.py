"""What a training writes down of itself: diagnoses in metrics.jsonl, and report.html."""
import html.parser
import json
import os
import re
import shlex
import signal
import subprocess
import time

import pytest
from conftest import ENDLESS, MOTET, TINY, environment, last_checkpoint, records, refused, run

LAYERS = ["--set", "model.num_layers=2"]
ALL_WINDOWS = ["--set", "train.final_eval_windows=0"]  # as many as `motet eval` scores
BESIDE = {"dcmha": {"mixed_entropy", "mixed_first_token", "pre_query_gate", "pre_key_gate", "post_query_gate", "post_key_gate"},
          "differential_v2": {"mixed_entropy", "mixed_first_token", "lambda"}, "mha": set()}  # fmt: skip


class Page(html.parser.HTMLParser):
    """The texts of a report's commands by their headings, and the numbers that its scripts draw."""

    def __init__(self, path):
        super().__init__()
        self.open, self.sections, self.code, self.heading, self.text, self.into = [], [], {}, "", "", None
        self.feed(path.read_text())
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag not in ("meta", "wbr", "path", "use", "br"):
            self.open.append(tag)
        if tag == "section":
            self.sections.append(attributes["id"])
        self.into = tag if tag in ("h3", "pre") or attributes.get("id") == "report-data" else self.into
        if self.into == tag:
            self.text = ""

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag != self.into:
            return
        if tag == "h3":
            self.heading = self.text
        elif tag == "pre":
            self.code[self.heading] = self.text
        else:
            self.data = json.loads(self.text)
        self.into = None

    def handle_data(self, text):
        self.text += text


@pytest.mark.parametrize("mechanism", BESIDE)
def test_a_diagnosis_changes_no_bit_and_has_every_layer(mechanism, tmp_path):
    for every in (0, 2):
        out = tmp_path / str(every)
        done = run("train", *TINY, *LAYERS, "--mechanism", mechanism, "--set", f"train.diagnose_every={every}", "--out", out)
        assert done.returncode == 0, done.stderr
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert (last_checkpoint(tmp_path / "0") / name).read_bytes() == (last_checkpoint(tmp_path / "2") / name).read_bytes()
    plain, diagnosed = (records(tmp_path / name) for name in ("0", "2"))
    found = [row for row in diagnosed if "layers" in row]
    assert plain == [row for row in diagnosed if "layers" not in row] and [row["step"] for row in found] == [2, 4]
    for row in found:
        assert set(row) == {"step", "layers", "update_ratio"}
        assert set(row["update_ratio"]) == {"embedding", "attention", "feed-forward", "norms", "output"}
        assert all(0 < ratio < 1 for ratio in row["update_ratio"].values())
        assert len(row["layers"]) == 2
        for layer in row["layers"]:
            plain_keys = {key for key in layer if not key.endswith("_by_head")}
            assert plain_keys == {"entropy", "first_token", "largest_logit"} | BESIDE[mechanism]
            assert 0 < layer["entropy"] < 5 and 0 < layer["first_token"] < 1
            for key in plain_keys - {"largest_logit"}:
                heads = layer.get(f"{key}_by_head", [layer[key]])
                assert layer[key] == pytest.approx(sum(heads) / len(heads))


def check_drawn(page, folder):
    """The report draws the lines of metrics.jsonl."""
    rows = records(folder)
    curve, axes = page.data["curves"][0], page.data["axes"]
    for x, y, key in (("x", "y", "loss"), ("ex", "ey", "validation_loss")):
        wanted = [(row["step"], row[key]) for row in rows if key in row]
        assert axes[curve[x]] == [step for step, _ in wanted]
        assert curve[y] == pytest.approx([value for _, value in wanted], rel=1e-4)
    traces = {trace["title"]: trace["lines"] for trace in page.data["traces"]}
    assert traces["Learning rate"][0]["y"] == pytest.approx([row["learning_rate"] for row in rows if "loss" in row], rel=1e-4)
    assert traces["Norm of the gradient"][0]["y"] == pytest.approx([row["gradient_norm"] for row in rows if "loss" in row], rel=1e-4)
    found = [row for row in rows if "layers" in row]
    if not found:
        return
    for title, key in (("Attention entropy", "entropy"), ("Weight on the first token", "first_token"), ("Largest logit", "largest_logit")):
        assert [line["name"] for line in traces[title]] == ["layer 1", "layer 2"]
        for i, line in enumerate(traces[title]):
            assert axes[line["x"]] == [row["step"] for row in found]
            assert line["y"] == pytest.approx([row["layers"][i][key] for row in found], rel=1e-4)
    for line in traces["Size of an update"]:
        assert line["y"] == pytest.approx([row["update_ratio"][line["name"]] for row in found], rel=1e-4)


def test_the_report_shows_the_run_and_its_commands_work(tmp_path):
    out = tmp_path / "a run"
    options = [*LAYERS, "--mechanism", "differential_v2", "--set", "train.diagnose_every=2", *ALL_WINDOWS]
    done = run("train", *TINY, *options, "--prompt", "To be", "-n", "5", "--out", out)
    assert done.returncode == 0, done.stderr
    page = Page(out / "report.html")
    assert page.sections == ["loss", "course", "attention", "texts", "reproduce"]
    check_drawn(page, out)
    text = (out / "report.html").read_text()
    loss = [row["validation_loss"] for row in records(out) if "validation_loss" in row][-1]
    assert f"The validation loss after step 4 is {loss:.4f} ± " in text and "<title>Training of differential on " in text
    assert "<b>To be</b>" in text and "differential" in page.code["Configuration"]
    assert page.code["Command"].startswith(f"{MOTET} train --hidden-size 16 ") and "Lambda" in [trace["title"] for trace in page.data["traces"]]
    assert {picture["layer"] for picture in page.data["pictures"]} == {0, 1}
    for name in ("Evaluate", "Generate", "Go on with a larger budget"):
        words = shlex.split(page.code[name])
        assert words[0] == "motet" and str(out) in words
        done = run(*words[1:], "-t", "1", *(["-o", "json"] if name == "Evaluate" else []))
        assert done.returncode == 0, name
        if name == "Evaluate":
            assert json.loads(done.stdout)[0]["nats_per_token"] == pytest.approx(loss, rel=1e-6)
    assert [row["step"] for row in records(out) if "loss" in row] == list(range(1, 9))
    again = Page(out / "report.html")
    check_drawn(again, out)
    first, second = again.code["Command"].splitlines()  # all that made it: the first one said how the model began
    assert first == page.code["Command"] and second == f"{MOTET} train --resume {shlex.quote(str(out))} --steps 8 -t 1"


@pytest.mark.parametrize("diagnose", [0, 5])
def test_a_run_that_is_stopped_has_a_whole_report(diagnose, tmp_path):
    out = tmp_path / "run"
    command = [MOTET, "train", *ENDLESS, *LAYERS, "--set", f"train.diagnose_every={diagnose}", "--out", out]
    process = subprocess.Popen([str(word) for word in command], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (out / "metrics.jsonl").exists() or '"step":45,' not in (out / "metrics.jsonl").read_text():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    page = Page(out / "report.html")
    check_drawn(page, out)
    at = int(re.search(r"stopped at step (\d+) of", errors)[1])
    assert f"The run stopped after step {at}. The validation loss after step {at // 20 * 20} is " in (out / "report.html").read_text()
    assert page.sections == ["loss", "course", "attention", "reproduce"] and page.code["Go on"] == f"motet train --resume {out}"


def test_the_command_that_evaluates_keeps_documents_apart(tmp_path):
    texts, data, folder = tmp_path / "texts.jsonl", tmp_path / "data", tmp_path / "run"
    texts.write_text("".join(json.dumps({"text": f"document {i} has words"}) + "\n" for i in range(300)))
    run("data", "prepare", texts, "--validation", "0.2", "-m", "bytes", "--out", data).check_returncode()
    run("train", data, "--documents", "apart", *TINY, "--out", folder).check_returncode()
    words = shlex.split(Page(folder / "report.html").code["Evaluate"])
    assert "--validation" not in words  # the data has its own
    scored = json.loads(run(*words[1:], "-t", "1", "-o", "json").stdout)
    losses = [row["validation_loss"] for row in records(folder) if "validation_loss" in row]
    assert scored[0]["nats_per_token"] == pytest.approx(losses[-1], rel=1e-7)


def evaluations(folder):
    """What the report's commands that evaluate print, by their headings, and the last validation loss."""
    commands = {name: shlex.split(code) for name, code in Page(folder / "report.html").code.items() if name.startswith("Evaluate")}
    losses = [row["validation_loss"] for row in records(folder) if "validation_loss" in row]
    return {name: json.loads(run(*words[1:], "-t", "1", "-o", "json").stdout)[0] for name, words in commands.items()}, losses[-1]


@pytest.mark.parametrize("kind", ["two texts", "shards", "examples", "hidden tokens"])
def test_the_command_that_evaluates_scores_what_the_training_kept(kind, tmp_path):
    one, two, more = tmp_path / "a.txt", tmp_path / "b.txt", ["--tokenizer", "bytes"]
    one.write_text("".join(f"{i} times {i} is {i * i}\n" for i in range(300)))
    two.write_text("".join(f"half of {i} is {i / 2}" for i in range(300)))
    texts = [one, two]
    if kind == "shards":  # without a validation part of their own
        run("data", "prepare", *texts, "-m", "bytes", "--out", tmp_path / "d").check_returncode()
        texts, more = [tmp_path / "d"], []
    elif kind == "examples":
        texts = [tmp_path / "a.jsonl"]
        texts[0].write_text("".join(json.dumps({"prompt": f"{i}+{i}=", "completion": str(2 * i)}) + "\n" for i in range(300)))
    elif kind == "hidden tokens":
        more += ["--set", "train.objective=masked", "--set", "model.causal=false"]
    run("train", *TINY, *ALL_WINDOWS, *more, "--validation", "0.15", *texts, "--out", tmp_path / "r").check_returncode()
    scores, loss = evaluations(tmp_path / "r")
    assert scores["Evaluate"]["nats_per_token"] == pytest.approx(loss, rel=1e-6)
    assert scores["Evaluate"].get("text").endswith(" (validation)")


@pytest.mark.parametrize("second", ["prepared", "text"])
def test_the_command_that_evaluates_a_mixture_names_all_sources(second, tmp_path):
    for name, word in (("a", "half"), ("b", "twice")):
        (tmp_path / f"{name}.txt").write_text("".join(f"{word} {i} is no {i % 7}\n" for i in range(600)))
        options = ["--separator", "", "--validation-text", tmp_path / f"{name}.txt"] if name == "a" else []
        run("data", "prepare", tmp_path / f"{name}.txt", *options, "-m", "bytes", "--out", tmp_path / name).check_returncode()
    sources = [str(tmp_path / "a"), str(tmp_path / ("b" if second == "prepared" else "b.txt"))]
    (tmp_path / "mixture.toml").write_text(f"[data]\nmixture = {json.dumps([[source, 0.5] for source in sources])}\n")
    run("train", *TINY, *ALL_WINDOWS, "--config", tmp_path / "mixture.toml", "--out", tmp_path / "r").check_returncode()
    scores, loss = evaluations(tmp_path / "r")
    assert list(scores) == ["Evaluate"] and scores["Evaluate"]["nats_per_token"] == pytest.approx(loss, rel=1e-6)
    assert scores["Evaluate"]["text"].count(" (validation)") == 2


def test_a_mixture_of_texts_is_evaluated_text_by_text(tmp_path):
    texts = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for text in texts:
        text.write_text("".join(f"{text.stem} {i} is no {i % 7}\n" for i in range(600)))
    (tmp_path / "mixture.toml").write_text(f"[data]\nmixture = {json.dumps([[str(text), 0.5] for text in texts])}\n")
    run("train", *TINY, *ALL_WINDOWS, "--config", tmp_path / "mixture.toml", "--out", tmp_path / "r").check_returncode()
    scores, loss = evaluations(tmp_path / "r")
    assert list(scores) == [f"Evaluate {text}" for text in texts]
    assert [score["text"] for score in scores.values()] == ["a.txt (validation)", "b.txt (validation)"]
    assert sum(score["nats_per_token"] for score in scores.values()) / 2 == pytest.approx(loss, rel=0.01)


def test_a_report_that_cannot_be_written_hides_nothing(tmp_path):
    out = tmp_path / "run"
    out.mkdir()
    (out / "report.html").mkdir()  # in its way
    process = subprocess.Popen([str(word) for word in [MOTET, "train", *ENDLESS, "--out", out]], env=environment(), stderr=subprocess.PIPE, text=True)
    while not (out / "metrics.jsonl").exists() or '"step":5,' not in (out / "metrics.jsonl").read_text():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143 and "report.html is not written: " in errors
    assert re.search(r"motet: stopped at step \d+ of 1000000; to go on: ", errors.splitlines()[-1])


def test_a_model_that_is_not_causal_has_a_report_without_a_text(tmp_path):
    sizes = ["--steps", "2", "--hidden-size", "16", "--ctx-size", "16", "--batch-size", "2", "-t", "1", "--set", "model.causal=false", "--set", "train.objective=masked"]
    done = run("train", *sizes, "--out", tmp_path / "r")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "r" / "report.html").read_text()
    assert "motet eval masked -m" in page and "motet generate" not in page
    assert "a model that is not causal continues no text" in refused(2, "train", *sizes, "-p", "A", "--out", tmp_path / "s")
    assert "--n-predict: has no meaning for a model that is not causal" in refused(2, "train", *sizes, "-n", "5", "--out", tmp_path / "s")


def test_a_reader_of_stdout_that_is_gone_takes_no_report_with_it(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    command = [str(word) for word in [MOTET, "train", *TINY, "--prompt", "To be", "-n", "5", "--out", tmp_path / "run"]]
    done = subprocess.run(command, env=environment(), stdout=writing, stderr=subprocess.PIPE, text=True, timeout=300)
    os.close(writing)
    assert done.returncode == -signal.SIGPIPE, done.stderr
    assert Page(tmp_path / "run" / "report.html").sections == ["loss", "course", "attention", "texts", "reproduce"]


def test_a_run_that_ended_before_its_report_makes_it_as_it_goes_on(tmp_path):
    out = tmp_path / "run"
    whole = run("train", *TINY, "--set", "train.average=last:2", "--out", out, "-o", "json")
    before, report = records(out), out / "report.html"
    os.utime(report, (1, 1))  # of a run that had stopped earlier
    for leave in (lambda: None, report.unlink):
        leave()
        again = run("train", "--resume", out, "-o", "json", "-t", "1")
        assert again.returncode == 0 and "has all of its 4 steps; a larger budget goes on" in again.stderr, again.stderr
        assert json.loads(again.stdout) == json.loads(whole.stdout)
        assert records(out) == before
        check_drawn(Page(report), out)
        assert "The run stopped" not in report.read_text()
    made = report.read_bytes()
    last = run("train", "--resume", out, "-t", "1")
    assert (last.returncode, last.stdout) == (0, "") and report.read_bytes() == made


def test_a_character_of_several_tokens_stands_at_the_last(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("ä€ " * 400)
    done = run("train", *TINY, "--tokenizer", "bytes", "--validation", "0.5", text, "--out", tmp_path / "r")
    assert done.returncode == 0, done.stderr
    assert Page(tmp_path / "r" / "report.html").data["tokens"] == (["", "ä", "", "", "€", " "] * 6)[:32]


CLOSELY = {"logits_top", "logits_median", "logits_kurtosis", "states_top", "states_median", "states_kurtosis", "self",
           "near", "middle", "far", "logit_rank", "rotary_rises", "rotary_rises_near", "rotary_rises_weighted",
           "rotary_rise", "rotary_rise_tokens"}


@pytest.mark.parametrize("mechanism", list(BESIDE))
def test_inspect_probes_any_model(mechanism, tmp_path):
    """The numbers that a diagnosis has, of the beginning of a text: those of its first tokens alone."""
    done = run("train", *TINY, *LAYERS, "--mechanism", mechanism, "--out", tmp_path / "r")
    assert done.returncode == 0, done.stderr
    text = tmp_path / "text.txt"
    text.write_text("First Citizen: We are accounted poor citizens, the patricians good.\n" * 2)

    def rows(path):
        done = run("inspect", tmp_path / "r", "--probe", path, "-o", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    found = rows(text)
    assert [row["layer"] for row in found] == [1, 2]
    looks = {name for name in found[0] if name in CLOSELY or name.startswith(("pre_", "post_"))}
    assert looks >= CLOSELY
    composed = {"pre_dynamic", "post_dynamic"} if mechanism in ("dcmha", "talking_heads") else set()
    assert {name for name in looks if name.endswith("dynamic")} == composed
    own = set(found[0]) - {name for name in looks if name.endswith(("fixed", "by_query", "by_key", "dynamic"))} - CLOSELY
    assert own == {"layer", "largest_logit", "entropy", "first_token"} | BESIDE[mechanism]
    for row in found:
        assert abs(row["self"] + row["near"] + row["middle"] + row["far"] - 1) < 1e-5 and row["far"] == 0
        assert row["logits_median"] <= row["logits_top"] and abs(row["largest_logit"]) <= row["logits_top"] * (1 + 1e-6)
        assert (row["rotary_rises"] == 0) == (mechanism == "coca")
    assert all(0 < row["entropy"] < 3.47 and 0 < row["first_token"] < 1 for row in found), "ln 32 at most"
    # People read a column a layer.
    shown = run("inspect", tmp_path / "r", "--probe", text)
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert lines[0].split() == ["number", "layer", "1", "layer", "2"]
    (entropy,) = (line.split()[1:] for line in lines if line.split()[:1] == ["entropy"])
    assert [float(number) for number in entropy] == pytest.approx([row["entropy"] for row in found], abs=5e-5)
    (tmp_path / "begun.txt").write_text(text.read_text()[:32])
    assert rows(tmp_path / "begun.txt") == found, "the context is 32 characters"
    (tmp_path / "short.txt").write_text("F")
    assert "has 1 tokens, want at least 2" in refused(1, "inspect", tmp_path / "r", "--probe", tmp_path / "short.txt")
    assert "nothing" in refused(1, "inspect", tmp_path / "r", "--probe", tmp_path / "nothing")
