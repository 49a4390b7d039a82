"""Training on answers alone: prompts with completions, and conversations in the model's own template."""
import json
import random
import shutil

import pytest
from conftest import SIZES, last_checkpoint, refused, run
from test_generation import tokenizer  # noqa: F401  (a fixture: a tokenizer with a chat template)

FORM = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}a:{% endif %}"
ENOUGH = ["--steps", "150", "--set", "train.learning_rate=0.02", "--set", "data.validation=0.1"]


def lines(path, examples):
    path.write_text("".join(json.dumps(example) + "\n" for example in examples))
    return path


@pytest.fixture
def noise():
    """Words that nobody can learn, and answers of one kind: the last letter, three times."""
    rng = random.Random(3)
    words = ["".join(rng.choice("abcdefgh") for _ in range(12)) for _ in range(300)]
    return [{"prompt": word + "=", "completion": "yes;"} for word in words]


def last_loss(folder):
    return json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])


def test_completions_alone_are_learned(noise, tmp_path):
    data = lines(tmp_path / "a.jsonl", noise)
    done = run("train", *SIZES, *ENOUGH, "--tokenizer", "bytes", data, "--out", tmp_path / "r", "--json")
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)[0]
    assert row["loss"] < 0.02  # letters of the prompts would hold it above 1
    assert row["tokens_scored"] == 30 * len("yes;")
    held = lines(tmp_path / "held.jsonl", noise[-30:])  # those that the training held back
    scored = json.loads(run("eval", "-m", tmp_path / "r", held, "--json").stdout)[0]
    assert scored["tokens"] == row["tokens_scored"]
    assert scored["nats_per_token"] == pytest.approx(row["loss"], rel=1e-6) and scored["bits_per_byte"] == pytest.approx(row["bits_per_byte"], rel=1e-6)
    assert "--stride: a validation part, prepared data and examples" in refused(2, "eval", "-m", tmp_path / "r", held, "--stride", "8")
    said = run("generate", "-m", tmp_path / "r", "-p", noise[0]["prompt"], "-n", "4", "--temp", "0")
    assert said.stdout.rstrip("\n").endswith("=yes;"), said.stdout


def test_a_conversation_is_learned_as_the_template_writes_it(tokenizer, tmp_path):  # noqa: F811
    source = shutil.copytree(tokenizer[0], tmp_path / "tokenizer")
    (source / "chat_template.jinja").write_text(FORM)
    words = ["to be", "or not", "the king", "my lord"]
    talk = [{"messages": [{"role": "user", "content": words[i % 4]}, {"role": "assistant", "content": "O"}]} for i in range(60)]
    data = lines(tmp_path / "talk.jsonl", talk)
    done = run("train", *SIZES, *ENOUGH, "--tokenizer", source, data, "--out", tmp_path / "r")
    assert done.returncode == 0, done.stderr
    assert last_loss(tmp_path / "r")["validation_loss"] < 0.05
    held = lines(tmp_path / "held.jsonl", talk[-6:])
    scored = json.loads(run("eval", "-m", tmp_path / "r", held, "--json").stdout)[0]
    assert scored["nats_per_token"] == pytest.approx(last_loss(tmp_path / "r")["validation_loss"], rel=1e-6)
    assert scored["tokens"] == 6 * 2  # O and the end
    said = run("chat", "-m", tmp_path / "r", "-n", "8", "--temp", "0", stdin="to be\n")
    assert said.returncode == 0 and said.stdout.strip() == "O", (said.stdout, said.stderr)
    assert (last_checkpoint(tmp_path / "r") / "chat_template.jinja").exists()


def test_a_comparison_learns_answers_too(noise, tmp_path):
    data = lines(tmp_path / "a.jsonl", noise)
    done = run("compare", "--mechanisms", "mha,dcmha", *SIZES, "--steps", "2", "--seeds", "1", "--tokenizer", "bytes", data, "--out", tmp_path / "c", "--json")
    assert done.returncode == 0, done.stderr
    held = lines(tmp_path / "held.jsonl", noise[-30:])
    for said in json.loads((tmp_path / "c" / "results.json").read_text())["runs"]:
        model = tmp_path / "c" / "models" / f"{said['mechanism']}-seed1"
        scored = json.loads(run("eval", "-m", model, held, "--json").stdout)[0]
        assert scored["tokens"] == 30 * len("yes;") and scored["nats_per_token"] == pytest.approx(said["validation_loss"], rel=1e-6)


def test_a_compared_model_keeps_the_form_in_which_it_was_trained(tokenizer, noise, tmp_path):  # noqa: F811
    """The end behind a completion is that of the tokenizer's folder; the model takes it along."""
    data, held = lines(tmp_path / "a.jsonl", noise[:60]), lines(tmp_path / "held.jsonl", noise[54:60])
    done = run("compare", "--mechanisms", "mha", *SIZES, "--steps", "2", "--seeds", "1", "--tokenizer", tokenizer[0], data, "--out", tmp_path / "c")
    assert done.returncode == 0, done.stderr
    said = json.loads((tmp_path / "c" / "results.json").read_text())["runs"][0]
    scored = json.loads(run("eval", "-m", tmp_path / "c" / "models" / "mha-seed1", held, "--json").stdout)[0]
    assert scored["nats_per_token"] == pytest.approx(said["validation_loss"], rel=1e-6)
    assert (tmp_path / "c" / "models" / "mha-seed1" / "chat_template.jinja").exists()


def test_a_corpus_with_prompts_is_no_file_of_examples(tmp_path):
    texts = lines(tmp_path / "web.jsonl", [{"prompt": "Write.", "text": "The quick brown fox. " * 20}] * 20)
    wanted = "web.jsonl': lines of JSON, want plain text, or a folder that motet data prepare makes of it"
    for subcommand in ("train", "compare"):
        assert wanted in refused(1, subcommand, *SIZES, "--steps", "1", texts, "--out", tmp_path / "r")
    run("data", "prepare", texts, "-m", "bytes", "--out", tmp_path / "d").check_returncode()
    done = run("train", *SIZES, "--steps", "1", tmp_path / "d", "--out", tmp_path / "r")
    assert done.returncode == 0, done.stderr
    assert wanted in refused(1, "eval", "-m", tmp_path / "r", texts)
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "folder.jsonl" / "a.txt").write_text("To be or not to be. " * 100)
    done = run("train", *SIZES, "--steps", "1", tmp_path / "folder.jsonl", "--out", tmp_path / "f")
    assert done.returncode == 0, done.stderr


def test_what_is_left_out_is_said(noise, tmp_path):
    noise = [{"prompt": "a", "completion": ""} if i % 3 == 0 else line for i, line in enumerate(noise)]
    data = lines(tmp_path / "a.jsonl", noise)
    done = run("train", *SIZES, "--steps", "1", "--tokenizer", "bytes", data, "--out", tmp_path / "r")
    assert "a.jsonl: 90 examples have no answer and are left out" in done.stderr
    done = run("eval", "-m", tmp_path / "r", "--ctx-size", "15", data)
    assert "200 examples are longer than 15 tokens and cut; 100 examples have no answer and are left out" in done.stderr


def test_a_stopped_training_on_examples_goes_on(noise, tmp_path):
    data = lines(tmp_path / "a.jsonl", noise)
    common = ["--tokenizer", "bytes", data]
    assert run("train", *SIZES, "--steps", "6", *common, "--out", tmp_path / "whole").returncode == 0
    assert run("train", *SIZES, "--steps", "6", "--set", "train.minutes=0", *common, "--out", tmp_path / "part").returncode == 0
    other = lines(tmp_path / "b.jsonl", noise[1:])
    assert "is not the data of the run (examples)" in refused(2, "train", "--resume", tmp_path / "part", "--steps", "8", other)
    done = run("train", "--resume", tmp_path / "part", "--steps", "8")
    assert done.returncode == 0, done.stderr


def test_mistakes_are_said_in_one_line(noise, tmp_path):
    data = lines(tmp_path / "a.jsonl", noise)
    assert "examples have no tokenizer of their own, want --init or --tokenizer" in refused(2, "train", *SIZES, data)
    assert "examples have no tokenizer of their own" in refused(2, "train", *SIZES, "--tokenizer", "chars", data)
    assert "has examples and there are other texts" in refused(2, "train", *SIZES, "--tokenizer", "bytes", data, data)
    short = lines(tmp_path / "b.jsonl", [{"prompt": "x" * 100, "completion": "y"}] * 20)
    assert "no example has an answer that begins among its first" in refused(1, "train", *SIZES, "--tokenizer", "bytes", short)
    empty = lines(tmp_path / "e.jsonl", [{"prompt": "x", "completion": ""}] * 20)
    assert "no example has an answer, want a completion that is not empty" in refused(1, "train", *SIZES, "--tokenizer", "bytes", empty)
    talk = lines(tmp_path / "c.jsonl", [{"messages": [{"role": "user", "content": "a"}]}] * 20)
    assert "line 1: has messages and the model has no chat template" in refused(1, "train", *SIZES, "--tokenizer", "bytes", talk)
    wrong = lines(tmp_path / "d.jsonl", [*noise[:3], {"prompt": "a"}])
    assert "d.jsonl: line 4: want a string 'completion'" in refused(1, "train", *SIZES, "--tokenizer", "bytes", wrong)
