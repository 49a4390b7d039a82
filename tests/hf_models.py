"""Small models of every mechanism and kind of layer, for the tests of motet.huggingface."""
import os
import sys

from conftest import ROOT

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read with torch
sys.path.insert(0, str(ROOT / "python"))
import torch  # noqa: E402

VOCABULARY, CONTEXT = 256, 48


def config(mechanism, model=None, **options):
    return dict(attention_mechanism=mechanism, attention_options={"num_heads": 4, **options}, **(model or {}))


NEOX, LAYER_NORM = {"block": "parallel"}, {"block": "sequential_layer_norm", "hidden_act": "gelu_new"}
CASES = {
    "softmax": config("softmax", {"tie_word_embeddings": True}, num_kv_heads=2, qk_norm=True, output_gate=True),
    "softmax, bias": config("softmax", NEOX, position_bias="relative", bias=True, rope_fraction=0.5),
    "softmax, learned": config("softmax", {**LAYER_NORM, "positions": "learned", "embedding_size": 8, "first_position": 2}),
    "key_size": config("key_size", NEOX, key_dim=12, value_dim=6),
    "talking_heads": config("talking_heads", softmax_heads=6, value_heads=2, dynamic="both"),
    "talking_heads, collinear": config("talking_heads", collinear="slack", position_bias="alibi"),
    "dcmha": config("dcmha", window=5, window_pattern="LG", static=True, qk_norm=True),
    "dcmha, released": config("dcmha", NEOX, window=5, window_mask="released", groups=2, position_bias="relative"),
    "dcmha, last": config("dcmha", layers="last", where="post", window=5, window_pattern="LG", num_kv_heads=2),
    "differential v1": config("differential", {"shared_layers": True}, num_kv_heads=2),
    "differential composed": config("differential", compose=True),
    "differential v2": config("differential", LAYER_NORM, version="v2", num_kv_heads=2),
    "differential across": config("differential", version="v2", pairs="across", lambda_form="raw"),
    "coca": config("coca"),
    "coca, dynamic": config(
        "coca", NEOX, form="slack", rope_scaling="dynamic", rope_factor=2.0, rope_trained_length=8
    ),
}
ENCODERS = {
    "bert": config("softmax", {
        "block": "sequential_layer_norm", "norm_place": "post", "positions": "learned", "token_types": 2,
        "embedding_norm": True, "head": "masked", "tie_word_embeddings": True, "causal": False,
    }, bias=True),
    "albert of talking heads": config("talking_heads", {
        "block": "sequential_layer_norm", "norm_place": "post", "embedding_size": 8, "embedding_norm": True,
        "shared_layers": True, "head": "masked", "causal": False,
    }, dynamic="query"),
    "plain": config("dcmha", {"causal": False}),
}
# With those above: every option, and every word of an option, but for what says first values alone.
FURTHER = dict(enumerate([
    config("softmax", {"hidden_act": "gelu", "rms_norm_eps": 0.1}, head_norm="affine", head_norm_eps=0.1, head_dim=6),
    config("softmax", {"hidden_act": "gelu_new"}, head_norm="plain", rope_pairing="interleaved", rope_base=100.0),
    config("softmax", {**NEOX, "hidden_act": "silu"}, rope_scaling="linear", rope_factor=2.0),
    config("softmax", {"num_hidden_layers": 5}, rope_scaling="ntk", rope_factor=2.0, window=5, window_pattern="LGLL"),
    config("softmax", {"num_hidden_layers": 9}, qk_norm=True, qk_norm_eps=0.1, window=5, window_pattern="LGL6"),
    config("softmax", rope_scaling="llama3", rope_factor=4.0, rope_trained_length=64, rope_low_freq_factor=2.0,
           rope_high_freq_factor=8.0),
    config("talking_heads", mixes="pre", dynamic="key", residual=True, qk_scale="none", key_dim=8, value_dim=6),
    config("talking_heads", mixes="post", collinear="exact"),
    config("talking_heads", collinear="strict", static=False, dynamic_logits="key", dynamic_weights="both"),
    config("talking_heads", dynamic_logits="query", dynamic_weights="none", score_heads=2),
    config("talking_heads", dynamic_logits="both", dynamic_weights="query"),
    config("talking_heads", dynamic="both", dynamic_logits="none", dynamic_weights="key"),
    config("dcmha", {"intermediate_size": 20}, sides="query", where="post", low_rank=False),
    config("dcmha", sides="key", where="pre", gates=False, gelu="tanh", rank=3),
    config("differential", lambda_start="constant", lambda_init=0.3, head_norm="plain", head_norm_eps=0.01),
    config("differential", head_norm="none", compose=True, compose_rank=3),
    config("differential", version="v2", lambda_form="none"),
    config("coca", form="strict", num_heads=2),
]))
ALL = {**CASES, **ENCODERS, **FURTHER}
SMALL = dict(vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, max_position_embeddings=CONTEXT)


def made(name, dtype=torch.float32, seed=1, **more):
    """A model whose parameters are all random, none small."""
    from motet import huggingface

    settings = huggingface.MotetConfig(**{**SMALL, **ALL[name], **more})
    model = (huggingface.MotetForCausalLM if settings.causal else huggingface.MotetForMaskedLM)(settings)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return model.to(dtype).eval()


def ids(batch=2, length=9, seed=0):
    return torch.randint(0, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(seed))


PADDED = torch.tensor([[0] * 4 + [1] * 5, [1] * 9])


def equal(have, want, **near):
    torch.testing.assert_close(have, want, **({"rtol": 1e-9, "atol": 1e-10} | near))


def wide(name, **more):
    return made(name, torch.float64, **more)


def remade(model):
    """A model of its changed configuration with its parameters."""
    again = type(model)(model.config).double().eval()
    again.load_state_dict(model.state_dict())
    return again
