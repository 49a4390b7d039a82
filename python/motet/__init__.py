"""Attention beyond multi-head attention for PyTorch.

`composed_attention` is the one operator; the modules turn hidden states into its arguments, with the option names,
parameter names and shapes of Motet's C++ mechanisms; `register_hf` gives the operator to Hugging Face transformers, and
`import motet.huggingface` whole models.
On a busy machine set OMP_WAIT_POLICY=passive before importing torch.
"""
from motet.attention_interface import register_hf
from motet.coca import CocaAttention
from motet.dcmha import DCMHA
from motet.differential import DifferentialAttention
from motet.folder import attention_layer
from motet.key_size import KeySizeAttention, SoftmaxAttention
from motet.composed import composed_attention
from motet.talking_heads import TalkingHeadsAttention

__all__ = [
    "CocaAttention",
    "DCMHA",
    "DifferentialAttention",
    "KeySizeAttention",
    "SoftmaxAttention",
    "TalkingHeadsAttention",
    "attention_layer",
    "composed_attention",
    "register_hf",
]
