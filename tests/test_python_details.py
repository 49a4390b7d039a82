"""What the other tests of the Python package pass over: first values, patterns over depth, the ends of ranges, and the
attention function's arguments one by one."""
import math
import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "python"))
import torch  # noqa: E402
from torch.utils import flop_counter  # noqa: E402

import motet  # noqa: E402
from motet import attention_interface  # noqa: E402


def drawn(cls, *arguments, **given):
    torch.manual_seed(0)
    return cls(*arguments, **given)


def test_static_maps_start_with_the_engines_deviations():
    dcmha = drawn(motet.DCMHA, 16, num_heads=64, head_dim=2, static=True, low_rank=False, gates=False)
    for static in (dcmha.compose_static_pre, dcmha.compose_static_post):
        assert static.std().item() == pytest.approx(0.1 * math.sqrt(2 / 128), rel=0.05)
    heads = dict(score_heads=32, softmax_heads=128, value_heads=32)
    talking = drawn(motet.TalkingHeadsAttention, 64, num_heads=32, **heads, dynamic="both", dynamic_std=0.5)
    assert talking.logits_mix.std().item() == pytest.approx(1 / math.sqrt(32), rel=0.05)
    assert talking.weights_mix.std().item() == pytest.approx(1 / math.sqrt(128), rel=0.05)
    assert talking.query_logits_mix.std().item() == pytest.approx(0.5 / math.sqrt(64 * 32), rel=0.05)
    assert talking.key_weights_mix.std().item() == pytest.approx(0.5 / math.sqrt(64 * 128), rel=0.05)
    square = drawn(motet.TalkingHeadsAttention, 64, num_heads=32, start="random")
    assert square.weights_mix.diag().std().item() == pytest.approx(1 / math.sqrt(32), rel=0.5)  # of the identity: 0
    wide = drawn(motet.DifferentialAttention, 512, num_heads=2, lambda_std=2.0)
    assert wide.lambda_k2.std().item() == pytest.approx(2, rel=0.2)


@pytest.mark.parametrize("pattern, windows", [("local", "LLLLLLLL"), ("LG", "LGLGLGLG"), ("LGLL", "LGLLLGLL"), ("LGL6", "LGLLLLLL")])
def test_windows_follow_their_pattern_over_depth(pattern, windows):
    layers = [motet.SoftmaxAttention(16, window=5, window_pattern=pattern, layer=n) for n in range(16)]
    assert [layer.window for layer in layers] == [5 if kind == "L" else 0 for kind in windows * 2]
    released = motet.DCMHA(16, window=5, window_mask="released")
    assert released.window == 6


def test_the_ends_of_ranges_are_inside():
    assert motet.DCMHA(16, num_heads=4, rank=64).options["rank"] == 64
    assert motet.DCMHA(16, num_heads=4, rank=1).options["rank"] == 1
    assert motet.TalkingHeadsAttention(16, dynamic="both", dynamic_std=1).options["dynamic_std"] == 1
    with pytest.raises(ValueError, match="rank is 65, want integer, 1 to 64"):
        motet.DCMHA(16, rank=65)


def test_dynamic_scaling_extends_the_trained_length():
    given = dict(rope_scaling="dynamic", rope_factor=2.0)
    by_model = motet.SoftmaxAttention(16, max_position=8, **given).rotary
    by_option = motet.SoftmaxAttention(16, max_position=64, rope_trained_length=8, **given).rotary
    at = lambda rotary, length: rotary.inverse_frequencies(length, "cpu")  # noqa: E731
    assert torch.equal(at(by_model, 24), at(by_option, 24)) and torch.equal(at(by_model, 8), at(by_option, 5))
    assert at(by_model, 24)[1] < at(by_model, 8)[1]
    module, x = motet.SoftmaxAttention(16, max_position=3, dtype=torch.float64, **given), torch.randn(1, 6, 16, dtype=torch.float64)
    planned = module(x, length=40)
    assert not torch.allclose(planned, module(x))
    keys = module.keys(x, length=40)
    assert torch.equal(planned, module.finish(module.attend(module.queries(x, length=40), keys)))


def test_llama3_scaling_is_its_formula():
    given = dict(rope_scaling="llama3", rope_factor=4.0, rope_low_freq_factor=2.0, rope_high_freq_factor=8.0)
    rotary = motet.SoftmaxAttention(64, num_heads=2, rope_trained_length=64, **given).rotary
    plain = motet.SoftmaxAttention(64, num_heads=2).rotary.inverse_frequencies(1, "cpu")
    kinds = set()
    for have, theta in zip(rotary.inverse_frequencies(1, "cpu").tolist(), plain.tolist(), strict=True):
        turns = 64 / (2 * math.pi / theta)  # over the trained length
        smooth = min(max((turns - 2) / (8 - 2), 0), 1)
        kinds.add(0 < smooth < 1)
        assert have == pytest.approx((1 - smooth) * theta / 4 + smooth * theta, rel=1e-12)
    assert kinds == {True, False}


def test_a_part_of_a_head_that_rotates_is_even():
    assert motet.SoftmaxAttention(28, num_heads=2, rope_fraction=0.5).rotary.dims == 6  # of 14: 7, less one
    assert motet.SoftmaxAttention(24, num_heads=2, rope_fraction=0.5).rotary.dims == 6


def test_parts_without_positions_stand_at_the_end_of_their_keys():
    module = motet.SoftmaxAttention(16, position_bias="alibi", rope_fraction=0.0, dtype=torch.float64)
    x = torch.randn(2, 7, 16, dtype=torch.float64)
    last = module.finish(module.attend(module.queries(x[:, 5:]), module.keys(x)))
    torch.testing.assert_close(last, module(x)[:, 5:])


@pytest.mark.parametrize("bias", ["alibi", "relative"])
def test_none_says_nothing_of_what_is_seen(bias):
    module = motet.SoftmaxAttention(16, position_bias=bias, rope_fraction=0.0, dtype=torch.float64)
    if bias == "relative":
        torch.nn.init.normal_(module.relative_bias)
    x = torch.randn(1, 9, 16, dtype=torch.float64)
    torch.testing.assert_close(module(x, bias=None, documents=None), module(x))


def test_a_layer_prints_its_options():
    said = repr(motet.DCMHA(16, num_heads=2, layer=3, causal=False, where="post"))
    assert "hidden_size=16, layer=3, causal=False, num_heads=2, where='post'" in said and "rank" not in said
    assert "memory_size=8" in repr(motet.SoftmaxAttention(16, causal=False, memory_size=8))


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("cls", [motet.SoftmaxAttention, motet.DCMHA, motet.DifferentialAttention, motet.CocaAttention])
def test_a_trace_serves_other_lengths(cls):
    layer = cls(16, num_heads=4)
    traced = torch.jit.trace(layer, torch.randn(2, 5, 16))
    x = torch.randn(3, 8, 16)
    torch.testing.assert_close(traced(x), layer(x))


# ---- what FlopCounterMode counts


def counted(function):
    with flop_counter.FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


def test_plain_attention_counts_as_pytorchs_own():
    q, k, v = (torch.randn(2, count, 4, 8, requires_grad=True) for count in (5, 7, 7))
    heads = [(2, 4, count, 8) for count in (5, 7, 7)]
    out = motet.composed_attention(q, k, v)
    assert counted(lambda: motet.composed_attention(q, k, v, causal=True)) == flop_counter.sdpa_flop_count(*heads)
    assert counted(out.sum().backward) == flop_counter.sdpa_backward_flop_count(heads[0], *heads)


def test_each_part_of_a_mix_counts():
    q, k, v = torch.randn(2, 5, 4, 8), torch.randn(2, 7, 4, 8), torch.randn(2, 7, 1, 3)
    down, up, gate = torch.randn(2, 5, 3, 4), torch.randn(2, 5, 3, 4), torch.randn(2, 7, 4)
    mixes = dict(pre_identity=True, pre_query_down=down, pre_query_up=up, pre_key_gate=gate, post_weight=torch.randn(4, 6))
    have = counted(lambda: motet.composed_attention(q, k, v, **mixes))
    assert have == 2 * 2 * 5 * 7 * (4 * 8 + 6 * 3 + 2 * 3 * 4 + 4 + 4 * 6)
    pairs = counted(lambda: motet.composed_attention(q, k, v, pair_lambda=torch.tensor(0.5)))
    assert pairs == 2 * 2 * 5 * 7 * (4 * 8 + 2 * 3 + 2)


REFUSED = {
    "rope_pairing is 'interleaved', want 'half'": lambda: motet.CocaAttention(16, rope_pairing="interleaved"),
    "head_dim is 3, want an even width": lambda: motet.CocaAttention(16, head_dim=3),
    "softmax_heads is 6, want score_heads 4": lambda: motet.TalkingHeadsAttention(16, mixes="post", softmax_heads=6),
    "value_heads is 2, want softmax_heads 4": lambda: motet.TalkingHeadsAttention(16, mixes="pre", value_heads=2),
    "residual is True, want False": lambda: motet.TalkingHeadsAttention(16, residual=True, softmax_heads=6),
    "num_kv_heads is 1, want an even number": lambda: motet.DifferentialAttention(16, num_kv_heads=1),
    "rope_high_freq_factor is 2.0, want more": lambda: motet.SoftmaxAttention(
        16, rope_scaling="llama3", rope_trained_length=8, rope_low_freq_factor=2.0, rope_high_freq_factor=2.0
    ),
}


@pytest.mark.parametrize("words, call", REFUSED.items(), ids=range(len(REFUSED)))
def test_settings_that_do_not_go_together_are_refused(words, call):
    with pytest.raises(ValueError, match=words):
        call()


# ---- the attention function of transformers


def attended(module=None, mask=None, **given):
    """Its output [B,T,H,E] on the same numbers, and those numbers for the operator."""
    generator = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(2, heads, 5, 8, generator=generator, dtype=torch.float64) for heads in (4, 2, 2))
    module = torch.nn.Module() if module is None else module
    out, weights = attention_interface.attention_forward(module, q, k, v, mask, **given)
    assert weights is None
    return out, [x.transpose(1, 2) for x in (q, k, v)]


def test_scale_causality_and_window_are_the_layers():
    for given, wanted in [
        (dict(), dict(causal=True)),
        (dict(scaling=0.3), dict(causal=True, scale=0.3)),
        (dict(is_causal=False), dict()),
        (dict(sliding_window=2), dict(causal=True, window=2)),
        (dict(sliding_window=2, is_causal=False), dict()),
    ]:
        out, qkv = attended(**given)
        assert torch.equal(out, motet.composed_attention(*qkv, **wanted)), given
    windows = torch.tensor([[0, 2, 2, 2, 2], [2] * 5], dtype=torch.int32)  # a copy, of which no attribute is left
    out, qkv = attended(mask=windows, is_causal=False)
    bounds = dict(key_begin=torch.tensor([1, 0]), key_end=torch.tensor([5, 5]))
    assert torch.equal(out, motet.composed_attention(*qkv, causal=True, window=2, **bounds))
    both_ways = windows.clamp_max(1) * attention_interface._BOTH_WAYS
    out, qkv = attended(mask=both_ways, is_causal=True)
    assert torch.equal(out, motet.composed_attention(*qkv, **bounds))
    layer = torch.nn.Module()
    layer.is_causal = False
    out, qkv = attended(layer)
    assert torch.equal(out, motet.composed_attention(*qkv))


def test_masks_and_biases_add_up():
    bias = torch.randn(1, 4, 5, 5, dtype=torch.float64)
    out, qkv = attended(position_bias=bias)
    assert torch.equal(out, motet.composed_attention(*qkv, causal=True, bias=bias))
    seen = torch.rand(2, 1, 5, 5) < 0.7
    hidden = torch.zeros(2, 1, 5, 5, dtype=torch.float64).masked_fill(~seen, -torch.inf)
    for mask in (seen, hidden, hidden.float()):
        assert torch.equal(attended(mask=mask)[0], motet.composed_attention(*qkv, bias=hidden))
        both = attended(mask=mask, position_bias=bias)[0]
        assert torch.equal(both, motet.composed_attention(*qkv, bias=hidden + bias))
        of_all = hidden[:, :, :1].expand(-1, -1, 5, -1)
        assert torch.equal(attended(mask=mask[:, :, :1])[0], motet.composed_attention(*qkv, bias=of_all))


def test_a_padded_sequence_without_tokens_sees_nothing():
    mask = torch.tensor([[False] * 5, [False, True, True, True, False]])
    out, qkv = attended(mask=mask, is_causal=False)
    bounds = dict(key_begin=torch.tensor([0, 1]), key_end=torch.tensor([0, 4]))
    assert torch.equal(out, motet.composed_attention(*qkv, **bounds)) and (out[0] == 0).all()


UNKNOWN = ["softcap", "s_aux", "sinks", "head_mask", "cache", "indices", "block_indices", "anything"]


@pytest.mark.parametrize("argument", UNKNOWN)
def test_what_changes_the_result_and_is_not_there_is_refused(argument):
    with pytest.raises(ValueError, match=f"{argument} is set, want None"):
        attended(**{argument: torch.ones(4)})
    attended(**{argument: None})


def test_what_changes_nothing_is_passed_over():
    given = dict(position_ids=torch.arange(5), use_cache=True, num_items_in_batch=torch.tensor(3), max_length_q=5)
    assert torch.equal(attended(**given)[0], attended()[0])
