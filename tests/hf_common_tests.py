"""transformers' own tests of a model, for models of every mechanism: run by test_python_transformers.py in a copy of the
source package of transformers, whose folder `tests` they need."""
import unittest

import torch
from tests.test_configuration_common import ConfigTester
from tests.test_modeling_common import ModelTesterMixin, ids_tensor

from motet import huggingface


class Sizes:
    """What the tests ask a model tester for."""

    batch_size, seq_length, encoder_seq_length, key_length = 3, 7, 7, 7
    hidden_size, num_hidden_layers, num_attention_heads, vocab_size, is_training = 32, 2, 4, 99, True

    def __init__(self, mechanism, block, options):
        self.given = dict(attention_mechanism=mechanism, block=block, attention_options={"num_heads": 4, **options})

    def get_config(self):
        sizes = dict(vocab_size=99, hidden_size=32, num_hidden_layers=2, max_position_embeddings=64, pad_token_id=0)
        return huggingface.MotetConfig(**sizes, **self.given)

    def prepare_config_and_inputs_for_common(self):
        ids = ids_tensor([self.batch_size, self.seq_length], self.vocab_size)
        return self.get_config(), {"input_ids": ids, "attention_mask": torch.ones_like(ids).tril()}


class Common(ModelTesterMixin):
    all_model_classes = (huggingface.MotetForCausalLM,)
    all_generative_model_classes = ()  # their tests of generate() are not in the source package
    has_attentions = False  # they are never made

    def setUp(self):
        self.model_tester = Sizes(*self.kind)
        self.config_tester = ConfigTester(self, config_class=huggingface.MotetConfig, hidden_size=32)

    def test_config(self):
        self.config_tester.run_common_tests()

    def _prepare_for_class(self, inputs_dict, model_class, return_labels=False):
        return {**inputs_dict, "labels": inputs_dict["input_ids"]} if return_labels else dict(inputs_dict)


KINDS = {
    "Softmax": ("softmax", "parallel", {"num_kv_heads": 2}),
    "KeySize": ("key_size", "sequential", {"position_bias": "relative"}),
    "TalkingHeads": ("talking_heads", "sequential_layer_norm", {"dynamic": "both"}),
    "Dcmha": ("dcmha", "sequential", {"window": 4}),
    "DifferentialV1": ("differential", "parallel", {"version": "v1"}),
    "DifferentialV2": ("differential", "sequential", {"version": "v2"}),
    "Coca": ("coca", "sequential", {}),
}
for name, kind in KINDS.items():
    globals()[name] = type(name, (Common, unittest.TestCase), {"kind": kind, "__module__": __name__})
