"""Fresh parameters from the engine's distributions (with other random numbers)."""
import math

import torch
from torch import nn
from transformers import initialization as init

from motet.block import MaskedHead
from motet.mechanism import Mechanism


def initialize(module, config):
    """Draws what `module` itself holds, but for what a file gave; False for a module that this does not know."""
    if isinstance(module, nn.Linear):
        _draw(module.weight, config, getattr(module, "is_output", False))
        if module.bias is not None:
            init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        init.normal_(module.weight, std=config.initializer_range)
    elif isinstance(module, Mechanism):
        _draw_extras(module)
    elif isinstance(module, MaskedHead):
        init.zeros_(module.bias)
    else:
        return False
    return True


def _draw(weight, config, is_output):
    out, inner = weight.shape
    if config.initializer == "normal":
        init.normal_(weight, std=config.initializer_range)
    elif config.initializer == "kaiming":  # torch's own default
        init.uniform_(weight, -1 / math.sqrt(inner), 1 / math.sqrt(inner))
    elif config.initializer == "xavier":
        init.xavier_uniform_(weight)
    elif is_output:  # pythia
        init.normal_(weight, std=2 / (config.num_hidden_layers * math.sqrt(out)))
    else:
        init.normal_(weight, std=math.sqrt(2 / (5 * inner)))


def _draw_extras(mechanism):
    """initialize_extras knows no file: what one gave is put back."""
    own = [p for p in mechanism.parameters(recurse=False) if getattr(p, "_is_hf_initialized", False)]
    kept = [p.detach().clone() for p in own]
    with torch.no_grad():
        mechanism.initialize_extras()
        for parameter, value in zip(own, kept, strict=True):
            parameter.copy_(value)
