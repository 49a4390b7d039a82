"""A model of Motet in TorchTitan's slot for models (torchtitan 0.3, pip install torchtitan):

    from torchtitan_model import model_registry
    trainer_config.model_spec = model_registry("dcmha")

The rest (data, optimiser, checkpoints, the loop) is TorchTitan's.
"""
from dataclasses import dataclass, field

from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torchtitan.config import TORCH_DTYPE_MAP
from torchtitan.protocols.model import BaseModel
from torchtitan.protocols.model_spec import ModelSpec

import motet.huggingface as hf

SIZES = {"vocab_size": 2048, "hidden_size": 256, "num_hidden_layers": 6, "attention_options": {"num_heads": 8}}


class TitanModel(BaseModel):
    @dataclass(kw_only=True, slots=True)
    class Config(BaseModel.Config):
        settings: dict = field(default_factory=dict)  # of MotetConfig

        def update_from_config(self, *, config, **more):
            self.settings = {**self.settings, "max_position_embeddings": config.training.seq_len}

        def get_nparams_and_flops(self, model, seq_len):
            count = sum(p.numel() for p in model.parameters())
            return count, 6 * count  # of the matrices; `motet inspect` counts the attention too

    def __init__(self, config):
        super().__init__()
        self.causal = hf.MotetForCausalLM(hf.MotetConfig(**config.settings))

    def forward(self, tokens, positions=None, **ignored):  # positions that begin anew begin another document
        return self.causal(tokens, position_ids=positions, use_cache=False).logits

    def init_states(self, *, buffer_device=None):
        for module in self.causal.modules():
            module._is_hf_initialized = False  # it was drawn on the meta device
        self.causal.initialize_weights()

    def verify_module_protocol(self):
        """Its parts are transformers' modules and not TorchTitan's."""


def parallelize(model, *, parallel_dims, training, **more):
    dtypes = (training.mixed_precision_param, training.mixed_precision_reduce)
    given = {"mesh": parallel_dims.get_mesh(["fsdp"]), "mp_policy": MixedPrecisionPolicy(*map(TORCH_DTYPE_MAP.get, dtypes))}
    for module in (*model.causal.model.layers, model):
        fully_shard(module, **given).set_gradient_divide_factor(1.0)  # TorchTitan's loss is divided by all tokens
    return model


def model_registry(mechanism):
    config = TitanModel.Config(settings={**SIZES, "attention_mechanism": mechanism})
    more = dict.fromkeys(("pipelining_fn", "post_optimizer_build_fn", "state_dict_adapter"))
    return ModelSpec(name="motet", flavor=mechanism, model=config, parallelize_fn=parallelize, **more)
