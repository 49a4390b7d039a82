"""Hugging Face transformers on the CPU: a rival of `motet bench infer`. Protocol: README.md."""

import os
import sys

from rival import serve
from rival_infer import cases

os.environ.setdefault("HF_HUB_OFFLINE", "1")
REQUIRED = ("folder", "prompt", "generate", "depth", "vocab", "threads", "weights", "check", "seed")


def build(request):
    import torch
    import transformers

    if request["weights"] != "float32":
        raise ValueError(f"weights {request['weights']}, want float32")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(request["folder"], dtype=torch.float32,
                                                              attn_implementation="sdpa").eval()
    state = {"cache": transformers.DynamicCache()}

    def decode(ids):
        with torch.inference_mode():
            out = model(torch.tensor([ids]), past_key_values=state["cache"], use_cache=True, logits_to_keep=1)
        return out.logits[0, -1]

    def prepare(depth):
        if depth == 0 or state["cache"].get_seq_length() < depth:
            state["cache"] = transformers.DynamicCache()
            for begin in range(0, depth, 512):
                decode([(begin + i) % model.config.vocab_size for i in range(min(512, depth - begin))])
        elif state["cache"].get_seq_length() > depth:
            state["cache"].crop(depth - state["cache"].get_seq_length())  # so many tokens less

    logits = decode(request["check"]).tolist()
    return {"logits": logits, "version": transformers.__version__}, (prepare, decode)


if __name__ == "__main__":
    sys.exit(serve(REQUIRED, {}, cases(build)))
