"""Encoders from the command line: training by hidden tokens, its score, and models of transformers both ways."""
import json
import subprocess
import sys

import pytest
from conftest import ROOT, last_checkpoint, records, refused, run, slow

GOLDEN = ROOT / "tests" / "golden" / "encoder"
MASKED = ["--set", "train.objective=masked", "--set", "model.causal=false"]
BUDGET = ["--steps", "12", "--ctx-size", "24", "--batch-size", "4", "-t", "1", "--set", "train.final_eval_windows=1000000"]
SMALL = [*BUDGET, "--hidden-size", "16", "--num-layers", "2"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(" ".join(f"line {i} of {i * i % 97} words, some more than others\n" for i in range(400)))
    return path


@pytest.fixture(scope="module")
def data(text):
    lines = text.parent / "lines.jsonl"
    lines.write_text("".join(json.dumps({"text": line}) + "\n" for line in text.read_text().splitlines()))
    done = run("data", "prepare", lines, "--tokenizer", "bytes", "--validation", "0.2", "--out", text.parent / "tokens")
    assert done.returncode == 0, done.stderr
    return text.parent / "tokens"


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """A run by hidden tokens over prepared data, whole words in training."""
    folder = tmp_path_factory.mktemp("masked") / "run"
    form = ["norm_place=post", "positions=learned", "head=masked", "tie_embeddings=true", "embedding_norm=true", "token_types=2"]
    sets = [word for option in form for word in ("--set", f"model.{option}")]
    done = run("train", *SMALL, *MASKED, *sets, "--set", "train.mask_whole_words=true", data, "--out", folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_eval_masked_repeats_the_validation_loss_of_the_training(trained, data):
    last = [row for row in records(trained) if "validation_loss" in row][-1]
    done = run("eval", "masked", "-m", trained, data, "-o", "json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert row["nats_per_token"] == pytest.approx(last["validation_loss"], abs=1e-6)
    assert row["standard_error"] == pytest.approx(last["standard_error"], abs=1e-6)
    assert row["tokens"] == last["tokens"] and row["window"] == 24 and 0 < row["accuracy"] < 1
    assert row["accuracy"] == pytest.approx(last["accuracy"], abs=1e-9) and "bits_per_byte" not in last
    other = json.loads(run("eval", "masked", "-m", trained, data, "-b", "3", "-t", "1", "-o", "json").stdout)[0]
    assert other["tokens"] == row["tokens"] and other["nats_per_token"] == pytest.approx(row["nats_per_token"], abs=1e-6)
    config = json.loads((last_checkpoint(trained) / "config.json").read_text())
    assert config["vocab_size"] == 257  # the bytes and the mask


def test_eval_masked_scores_texts(trained, text, tmp_path):
    done = run("eval", "masked", "-m", trained, text, "-o", "json")
    assert done.returncode == 0, done.stderr
    whole = json.loads(done.stdout)[0]
    assert whole["tokens"] == pytest.approx(0.15 * text.stat().st_size, rel=0.1)
    short = tmp_path / "short.txt"
    short.write_text("no longer\n")
    assert json.loads(run("eval", "masked", "-m", trained, short, "-o", "json").stdout)[0]["window"] == 10
    assert "masked" in run("eval", "--list").stdout
    for flag in (["--stride", "3"], ["--positions", "4"], ["--limit", "2"], ["--logit-bits", "4"]):
        assert refused(2, "eval", "masked", "-m", trained, text, *flag) == f"motet: {flag[0]}: has no meaning for masked"
    assert "learned positions for 24 tokens" in refused(2, "eval", "masked", "-m", trained, text, "-c", "25")


def test_eval_masked_leaves_out_no_token_of_a_text(trained, tmp_path):
    def score(text, *flags):
        (tmp_path / "text.txt").write_text(text)
        done = run("eval", "masked", "-m", trained, tmp_path / "text.txt", *flags, "-o", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)[0]

    text = "line 7 of 49 words, more" * 4  # as many tokens as four windows have
    full, longer = score(text), score(text + "line 8")
    assert full["window"] == longer["window"] == 24 and 4 <= full["tokens"] < longer["tokens"]
    assert score(text[:-1] + "Q")["nats_per_token"] != full["nats_per_token"]
    assert score(text + "QZXQZX")["nats_per_token"] != longer["nats_per_token"]
    assert score("line", "-c", "24")["tokens"] >= 1


def test_what_continues_a_text_refuses_an_encoder_in_a_line(trained, text):
    for command in (["generate", "-m", trained, "-p", "a"], ["eval", "perplexity", "-m", trained, text]):
        assert "not causal" in refused(2, *command), command
    shown = run("inspect", trained).stdout
    assert "norm_place" in shown and "embedding_norm" in shown and "shared_layers" not in shown
    done = run("inspect", trained, "--probe", text)
    assert done.returncode == 0, done.stderr


def test_what_does_not_go_together_is_refused_before_the_training(trained, text, tmp_path):
    small = ["train", *SMALL, text, "--out", tmp_path / "never"]
    assert refused(2, *small, "--set", "model.causal=false") == (
        "motet: train.objective: next with model.causal = false, whose tokens see their targets, want masked"
    )
    assert refused(2, *small, "--set", "train.objective=masked") == (
        "motet: train.objective: masked with model.causal = true, which hides what follows, want causal = false"
    )
    for given, words in {
        "train.mask_whole_words=true": "train.mask_whole_words: true with train.objective = next, which hides nothing, want masked",
        "model.attention.rope_scaling=dynamic": "model.attention.rope_scaling: \"dynamic\" with model.positions = learned, where "
        "nothing rotates, want it left out",
        "model.attention.mechanism=coca": "model.positions: learned with the exact form of coca, whose keys are tied by what rotates, "
        "want rope",
    }.items():  # fmt: skip
        assert refused(2, *small, "--set", "model.positions=learned", "--set", given) == "motet: " + words
    task = ["train", "--task", "passkey", "--steps", "3", "--set", "train.objective=masked", "--out", tmp_path / "never"]
    assert refused(2, *task) == "motet: train.objective: masked: of a task the answers are learned, want next"
    assert "whose tokens see their targets" in refused(2, "train", *BUDGET, text, "--out", tmp_path / "never", "--init", trained)
    assert not (tmp_path / "never").exists()
    causal = tmp_path / "causal"
    assert run("train", *SMALL, text, "--out", causal).returncode == 0
    assert refused(2, "eval", "masked", "-m", causal, text) == (
        "motet: eval: masked of a causal model, which hides what follows, want motet eval perplexity"
    )


def test_a_trained_encoder_goes_on_from_init_and_compares(trained, data, tmp_path):
    message = refused(2, "train", *BUDGET, *MASKED, "--init", trained, data, "--out", tmp_path / "more")
    assert message == "motet: --init: model.causal comes from the checkpoint, want it left out"
    done = run("train", *BUDGET, "--set", "train.objective=masked", "--init", trained, data, "--out", tmp_path / "more", "-o", "json")
    assert done.returncode == 0, done.stderr
    (printed,) = json.loads(done.stdout)
    assert printed["accuracy"] == [row["accuracy"] for row in records(tmp_path / "more") if "accuracy" in row][-1]
    before, after = ([row["validation_loss"] for row in records(path) if "validation_loss" in row][-1] for path in (trained, tmp_path / "more"))
    assert after < before
    done = run("compare", *MASKED, "--mechanisms", "mha,dcmha", "--seeds", "1", "--steps", "3", "--ctx-size", "16", "--hidden-size", "16",
               "--num-heads", "2", "--batch-size", "2", "-t", "1", data, "--out", tmp_path / "compared")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "dcmha" in done.stdout and "Text by" not in done.stdout
    assert refused(2, "compare", *MASKED, "--prompt", "a", "--steps", "3", data) == "motet: --prompt: a model that is not causal continues no text"
    assert "--n-predict: has no meaning for a model that is not causal" in refused(2, "compare", *MASKED, "-n", "5", "--steps", "3", data)


def test_roberta_has_no_ordinary_token_for_padding(text, tmp_path):
    """Its positions skip padding, token 1, which is a letter of a tokenizer of characters."""
    form = ["block=sequential_layer_norm", "norm_place=post", "positions=learned", "first_position=2", "head=masked", "tie_embeddings=true",
            "embedding_norm=true", "token_types=1", "activation=gelu", "attention.bias=true"]  # fmt: skip
    sets = [word for option in form for word in ("--set", f"model.{option}")]
    done = run("train", *SMALL, *MASKED, *sets, "--tokenizer", "chars", text, "--out", tmp_path / "r")
    assert done.returncode == 0, done.stderr
    message = refused(1, "convert", tmp_path / "r", "--to", "roberta", "--out", tmp_path / "never")
    assert "gives token 1, which it takes for padding, no position, and here that token is ' '" in message
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize("name", ["bert", *slow("roberta", "albert")])
def test_transformers_reads_what_is_written(name, tmp_path):
    pytest.importorskip("transformers")
    ours, back = tmp_path / "ours", tmp_path / "back"
    for source, layout, out in ((GOLDEN / name, "motet", ours), (ours, name, back)):
        done = run("convert", source, "--to", layout, "--out", out)
        assert done.returncode == 0, done.stderr
        (out / "published_config.json").unlink(missing_ok=True)  # the config is to be written, not copied
    done = subprocess.run([sys.executable, ROOT / "scripts" / "golden_encoders.py", back], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) < 1e-5, done.stdout
    assert "newly initialized" not in done.stderr and "not used" not in done.stderr, done.stderr
