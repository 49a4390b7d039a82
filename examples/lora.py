"""Low-rank adapters on the queries, keys and values of a model that `motet train` wrote:

    build/motet train --mechanism dcmha --tokenizer bytes --out runs/first
    python examples/lora.py runs/first/checkpoints/step_00000500 OUT TEXT

OUT holds the adapted model, merged: `motet eval -m OUT TEXT`.
"""
import argparse
import pathlib

import peft
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import motet.huggingface  # noqa: F401  registers the models
from data import TEXT, windows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder of a model")
    parser.add_argument("out", help="folder of the adapted one")
    parser.add_argument("text", nargs="?", type=pathlib.Path, default=TEXT, help="what it is adapted to")
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()

    torch.manual_seed(1)
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    model = AutoModelForCausalLM.from_pretrained(arguments.model)
    # CoCA makes its keys with t_proj.
    adapters = peft.LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=["q_proj", "k_proj", "t_proj", "v_proj"])
    model = peft.get_peft_model(model, adapters)
    model.print_trainable_parameters()

    batch = 4
    rows = windows(tokenizer, min(64, model.config.max_position_embeddings), batch * arguments.steps, arguments.text)
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-2)
    for step in range(arguments.steps):
        ids = torch.stack([row["input_ids"] for row in rows[step * batch : (step + 1) * batch]])
        loss = model(ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step + 1}  loss {loss.item():.4f}", flush=True)

    merged = model.merge_and_unload()
    merged.save_pretrained(arguments.out)
    tokenizer.save_pretrained(arguments.out)


if __name__ == "__main__":
    main()
