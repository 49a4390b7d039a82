"""The steps of `motet train` against a plain PyTorch loop: transformers' Llama, torch's AdamW, clip_grad_norm_, cosine."""
import json
import math

import pytest
from conftest import run

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

CONTEXT, STEPS, RATE, LAST, WARMUP, DECAY, CLIP, BETA1, BETA2 = 32, 12, 0.02, 0.2, 0.25, 1.0, 0.5, 0.8, 0.95
TEXT = "To be, or not to be, that is the question: whether 'tis nobler in the mind to suffer the slings"


def test_steps_are_those_of_a_plain_loop(tmp_path):
    # One window alone: every batch is the same, whatever the order.
    (tmp_path / "t.txt").write_text(TEXT[: CONTEXT + 1])
    (tmp_path / "v.txt").write_text(TEXT[30 : 30 + 2 * CONTEXT + 1])
    done = run("data", "prepare", tmp_path / "t.txt", "--validation-text", tmp_path / "v.txt", "-m", "bytes", "--out", tmp_path / "d")
    assert done.returncode == 0, done.stderr
    sizes = f"--hidden-size 16 --num-layers 2 --num-heads 2 --ctx-size {CONTEXT} --batch-size 2 -t 1".split()
    done = run("train", *sizes, "--steps", "1", "--learning-rate", "0", "--set", "model.initializer_range=0.2", tmp_path / "d", "--out", tmp_path / "first")
    assert done.returncode == 0, done.stderr
    assert run("convert", tmp_path / "first", "--to", "llama", "--out", tmp_path / "hf").returncode == 0
    options = {"learning_rate": RATE, "final_learning_rate": LAST, "warmup": WARMUP, "weight_decay": DECAY, "clip": CLIP, "beta1": BETA1, "beta2": BETA2}
    sets = [word for key, value in options.items() for word in ("--set", f"train.{key}={value}")]
    done = run("train", "--init", tmp_path / "first", "--ctx-size", CONTEXT, "--batch-size", "2", "--steps", STEPS, *sets, tmp_path / "d", "-t", "1", "--out", tmp_path / "r")
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()]

    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf", dtype=torch.float32)
    groups = [
        {"params": [p for name, p in model.named_parameters() if (p.dim() >= 2 and "embed_tokens" not in name) == decays], "weight_decay": DECAY * decays}
        for decays in (True, False)
    ]
    adamw = torch.optim.AdamW(groups, lr=RATE, betas=(BETA1, BETA2), eps=1e-8)

    def loss_of(text):
        ids = torch.tensor(list(text.encode()))[None]
        return torch.nn.functional.cross_entropy(model(ids[:, :-1]).logits.flatten(0, 1), ids[:, 1:].flatten())

    steps = [record for record in records if "loss" in record]
    assert len(steps) == STEPS
    for step, record in enumerate(steps):
        at = (step + 1) / STEPS
        rate = RATE * at / WARMUP if at < WARMUP else RATE * (LAST + (1 - LAST) * 0.5 * (1 + math.cos(math.pi * (at - WARMUP) / (1 - WARMUP))))
        for group in adamw.param_groups:
            group["lr"] = rate
        adamw.zero_grad()
        loss = loss_of(TEXT[: CONTEXT + 1])
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        adamw.step()
        assert record["step"] == step + 1
        assert record["learning_rate"] == pytest.approx(rate, rel=1e-9), step
        assert record["loss"] == pytest.approx(loss.item(), rel=1e-3), step
        assert record["gradient_norm"] == pytest.approx(norm.item(), rel=1e-2), step
    with torch.no_grad():  # two windows side by side
        held = sum(loss_of(TEXT[begin : begin + CONTEXT + 1]).item() for begin in (30, 30 + CONTEXT)) / 2
    assert records[-1]["validation_loss"] == pytest.approx(held, rel=1e-3)
    assert records[-1]["tokens"] == 2 * CONTEXT
