"""The operator as an attention function of Hugging Face transformers, against PyTorch's own in the same models."""
import subprocess
import sys

import pytest
from conftest import ROOT, environment

sys.path.insert(0, str(ROOT / "python"))
import torch  # noqa: E402

import motet  # noqa: E402


def test_without_transformers_the_error_says_so():
    script = "import sys; sys.modules['transformers'] = None; import motet; motet.register_hf()"
    variables = environment(PYTHONPATH=str(ROOT / "python"))
    done = subprocess.run([sys.executable, "-c", script], env=variables, capture_output=True, text=True)
    assert "ImportError: register_hf: transformers with AttentionInterface is missing" in done.stderr


transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
from motet import attention_interface  # noqa: E402

SIZES = dict(
    vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=None,
)
MODELS = {
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)),
    "mistral, window": lambda: transformers.MistralForCausalLM(transformers.MistralConfig(sliding_window=4, **SIZES)),
    "qwen2, every second layer a window": lambda: transformers.Qwen2ForCausalLM(
        transformers.Qwen2Config(use_sliding_window=True, sliding_window=4, max_window_layers=1, **SIZES)
    ),
    "phimoe, whose layers do not name their window": lambda: transformers.PhimoeForCausalLM(
        transformers.PhimoeConfig(
            sliding_window=4, num_local_experts=2, router_jitter_noise=0.0, experts_implementation="eager", **SIZES
        )
    ),
    "doge, which adds to its mask": lambda: transformers.DogeForCausalLM(
        transformers.DogeConfig(sliding_window=None, hidden_dropout=0.0, **SIZES)
    ),
}
# Of each model, whether its layers have a window; None: it wants every mask whole.
WINDOWS = dict(zip(MODELS, ({False}, {True}, {False, True}, {True}, None), strict=True))
IDS = torch.randint(2, 50, (2, 9), generator=torch.Generator().manual_seed(0))
MASKS = {
    "none": None,
    "left padding": torch.tensor([[0] * 3 + [1] * 6, [1] * 9]),
    "right padding": torch.tensor([[1] * 9, [1] * 5 + [0] * 4]),
    "holes": torch.tensor([[1] * 9, [1, 1, 0, 1, 1, 0, 0, 1, 1]]),
}


@pytest.fixture(autouse=True)
def registered():
    assert motet.register_hf() == "motet"


def made(name):
    torch.manual_seed(0)
    return MODELS[name]().double()


def results(model, implementation, **given):
    """Logits, and gradients of the real tokens' logits."""
    model.set_attn_implementation(implementation)
    model.zero_grad()
    logits = model(IDS, **given).logits
    mask = given.get("attention_mask")
    real = torch.ones_like(IDS) if mask is None else mask  # what a padded query gives is nobody's business
    (logits * real.unsqueeze(-1)).square().sum().backward()
    return [logits[real.bool()], *(parameter.grad.clone() for parameter in model.parameters())]


def same(have, want):
    for a, b in zip(have, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)


def masks_given(monkeypatch):
    """The masks that the attention function sees, from now on."""
    seen, forward = [], attention_interface.attention_forward

    def spy(module, query, key, value, attention_mask, **more):
        seen.append(attention_mask)
        return forward(module, query, key, value, attention_mask, **more)

    monkeypatch.setattr(attention_interface, "attention_forward", spy)
    motet.register_hf()
    return seen


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize("name", MODELS)
def test_a_model_equals_sdpa(name, mask, monkeypatch):
    model, seen = made(name), masks_given(monkeypatch)
    given = dict(attention_mask=mask)
    if mask is not None:
        given["position_ids"] = (mask.cumsum(1) - 1).clamp_min(0)
    same(results(model, "motet", **given), results(model, "sdpa", **given))
    whole = mask is MASKS["holes"] or WINDOWS[name] is None
    of_layer = {True: torch.int32, False: None if mask is None else torch.bool}
    kinds = {None if m is None else 4 if m.dim() == 4 else m.dtype for m in seen}
    assert kinds == ({4} if whole else {of_layer[window] for window in WINDOWS[name]})


def test_packed_sequences_do_not_see_each_other():
    model = made("llama")
    given = dict(position_ids=torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5, 6, 0, 1]]))
    same(results(model, "motet", **given), results(model, "sdpa", **given))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("cache", [None, "static"])
def test_generation_with_a_cache_equals_sdpa(name, cache):
    model, texts = made(name), []
    prompts = dict(input_ids=IDS * MASKS["left padding"], attention_mask=MASKS["left padding"])
    for implementation in ("motet", "sdpa"):
        model.set_attn_implementation(implementation)
        options = dict(max_new_tokens=6, do_sample=False, cache_implementation=cache, disable_compile=True)
        texts.append(model.generate(**prompts, **options))
    assert torch.equal(*texts)


OF_ENCODERS = {name: value for name, value in SIZES.items() if name != "num_key_value_heads"}
ENCODERS = {
    "bert": lambda: transformers.BertModel(transformers.BertConfig(**OF_ENCODERS)),
    "splinter, whose layers do not say that they see both ways": lambda: transformers.SplinterModel(
        transformers.SplinterConfig(**OF_ENCODERS)
    ),
    "align, likewise": lambda: transformers.AlignTextModel(transformers.AlignTextConfig(**OF_ENCODERS)),
    "clap, likewise": lambda: transformers.ClapTextModel(transformers.ClapTextConfig(**OF_ENCODERS)),
    "layoutlm, with one row of a mask for all tokens": lambda: transformers.LayoutLMModel(
        transformers.LayoutLMConfig(**OF_ENCODERS)
    ),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize("name", ENCODERS)
def test_a_bidirectional_model_equals_the_eager_one(name, mask):
    torch.manual_seed(0)
    model, outputs = ENCODERS[name]().double().eval(), []
    for implementation in ("motet", "eager"):
        model.set_attn_implementation(implementation)
        outputs.append(model(IDS, attention_mask=mask).last_hidden_state)
    real = torch.ones_like(IDS).bool() if mask is None else mask.bool()
    torch.testing.assert_close(outputs[0][real], outputs[1][real], rtol=0, atol=1e-6)  # clap's softmax is in float32


def test_cross_attention_equals_sdpa(monkeypatch):
    torch.manual_seed(0)
    sizes = dict(encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4)
    config = transformers.BartConfig(
        vocab_size=50, d_model=32, encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=64, **sizes
    )
    model, seen, outputs = transformers.BartModel(config).double().eval(), masks_given(monkeypatch), []
    given = dict(attention_mask=MASKS["left padding"], decoder_input_ids=IDS[:, :5])
    for implementation in ("motet", "sdpa"):
        model.set_attn_implementation(implementation)
        outputs.append(model(IDS, **given).last_hidden_state)
    torch.testing.assert_close(*outputs, rtol=1e-7, atol=1e-9)
    assert [None if mask is None else mask.dim() for mask in seen] == [2, None, 2]  # encoder, decoder, cross


def test_a_compiled_model_equals_the_eager_one():
    torch._dynamo.reset()
    model = made("llama").eval()
    model.set_attn_implementation("motet")
    given = dict(attention_mask=MASKS["left padding"], use_cache=False)
    compiled = torch.compile(model, backend="aot_eager")
    real = MASKS["left padding"].bool()
    torch.testing.assert_close(compiled(IDS, **given).logits[real], model(IDS, **given).logits[real])


LACKS = [(dict(dropout=0.1), "dropout is 0.1"), (dict(softcap=30.0), "softcap is set")]


@pytest.mark.parametrize("given, words", LACKS)
def test_what_it_lacks_is_refused(given, words):
    q = torch.zeros(1, 2, 3, 4)
    with pytest.raises(ValueError, match=f"motet attention: {words}, want "):
        attention_interface.attention_forward(torch.nn.Module(), q, q, q, None, **given)


def test_a_model_of_sparse_attention_is_refused():
    sparse = dict(num_hidden_layers=1, qk_rope_head_dim=8, qk_nope_head_dim=8, kv_lora_rank=8, q_lora_rank=8, v_head_dim=8)
    indexer = dict(index_n_heads=2, index_head_dim=16, index_topk=2)
    model = transformers.DeepseekV32ForCausalLM(transformers.DeepseekV32Config(**{**SIZES, **sparse, **indexer}))
    model.set_attn_implementation("motet")
    with pytest.raises(ValueError, match="motet attention: indices is set, want None or another attn_implementation"):
        model(IDS)


def test_a_mask_of_integers_with_four_dimensions_is_refused():
    model = made("llama")
    model.set_attn_implementation("motet")
    whole = torch.ones(2, 1, 9, 9, dtype=torch.bool).tril()
    for dtype in (torch.int64, torch.uint8):
        with pytest.raises(ValueError, match=f"attention_mask is of dtype {dtype}, want bool, or a float added"):
            model(IDS, attention_mask=whole.to(dtype))
    same([model(IDS, attention_mask=whole).logits], [model(IDS).logits])
