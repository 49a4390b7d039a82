#!/usr/bin/env python3
"""Makes tests/golden/encoder: tiny random encoders of transformers, each with the logits that transformers computes.

usage: golden_encoders.py            writes the folders
       golden_encoders.py FOLDER...  computes the logits of each folder again, with the ids beside the golden ones, and
                                     prints the largest difference; for what `motet convert` wrote
"""
import pathlib
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file

GOLDEN = pathlib.Path(__file__).parent.parent / "tests" / "golden" / "encoder"
COMMON = dict(vocab_size=48, hidden_size=24, num_hidden_layers=3, num_attention_heads=4, intermediate_size=40)
# Of RoBERTa two positions are those of padding.
MODELS = {
    "bert": (transformers.BertConfig, dict(max_position_embeddings=14, type_vocab_size=2)),
    "roberta": (transformers.RobertaConfig, dict(max_position_embeddings=16, type_vocab_size=1, layer_norm_eps=1e-5)),
    "albert": (transformers.AlbertConfig, dict(max_position_embeddings=14, type_vocab_size=2, embedding_size=10)),
}


def logits(folder, given):
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        return model(input_ids=given["ids"], token_type_ids=given["types"]).logits


def make(name, seed):
    config_class, own = MODELS[name]
    torch.manual_seed(seed)
    model = transformers.AutoModelForMaskedLM.from_config(config_class(**COMMON, **own)).eval()
    with torch.no_grad():  # biases and norms too, so that one which is left out is seen
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    folder = GOLDEN / name
    model.save_pretrained(folder)
    for path in folder.iterdir():
        if path.name not in ("config.json", "model.safetensors"):
            path.unlink()
    ids = torch.randint(5, COMMON["vocab_size"], (3, 13))  # RoBERTa's padding, which has a position of its own, is 1
    types = torch.randint(0, own["type_vocab_size"], ids.shape)
    given = {"ids": ids, "types": types}
    save_file({**given, "logits": logits(folder, given), "logits_of_type_0": logits(folder, {"ids": ids, "types": ids * 0})},
              folder / "expected.safetensors")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        for seed, name in enumerate(MODELS):
            make(name, seed)
    for folder in map(pathlib.Path, sys.argv[1:]):
        kind = transformers.AutoConfig.from_pretrained(folder).model_type
        given = load_file(GOLDEN / kind / "expected.safetensors")
        print(folder, (logits(folder, given) - given["logits"]).abs().max().item())
