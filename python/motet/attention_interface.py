"""composed_attention as an attention function of Hugging Face transformers, for plain softmax attention models."""
import torch

from motet.composed import composed_attention

# What models hand on to attention functions that changes nothing here: what it says the mask says too, or it is for the
# layers around. All else may change the result, as the chosen keys of sparse attention (indices, block_indices) do.
_HARMLESS = frozenset((
    "position_ids", "cache_position", "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "seq_idx",
    "use_cache", "logits_to_keep", "labels", "num_items_in_batch", "token_type_ids", "special_tokens_mask", "return_dict",
    "output_attentions", "output_hidden_states", "output_router_logits", "deterministic", "position_embeddings",
    "image_sizes", "grid_thw", "max_seqlen",
))
_BOTH_WAYS = -1  # in place of a window: tokens see what comes before and behind


def register_hf(name="motet"):
    """Registers the operator under `name`, for `from_pretrained(..., attn_implementation=name)` and
    `model.set_attn_implementation(name)`. Returns the name; registering again is harmless.

    Served: MHA, GQA and MQA, causal or not, sliding windows, key-value caches, position biases, and padding. A 2-D
    padding mask whose real tokens lie together (left or right padding) becomes key_begin and key_end; any other mask
    (packed sequences, chunks, image blocks, holes, static caches, masks made under torch.compile, a 4-D mask of one's
    own) becomes a bias [B,1,T,S], -inf where it hides. Causality is what the mask says, then the call, then the layer. A
    query that sees nothing gives 0. No attention weights are returned.

    Raises ImportError where transformers is missing or has no AttentionInterface; the registered function raises
    ValueError for attention dropout, a 4-D mask of integers, and every argument that it does not know, such as softcap,
    sinks (s_aux, sinks), head masks and the chosen keys of sparse attention (indices, block_indices).
    """
    if not isinstance(name, str) or not name:
        raise ValueError(f"register_hf: name is {name!r}, want a name")
    try:
        from transformers import AttentionInterface
        from transformers.masking_utils import AttentionMaskInterface
    except ImportError as error:
        raise ImportError(
            f"register_hf: transformers with AttentionInterface is missing ({error}), want `pip install transformers`"
        ) from None
    AttentionInterface.register(name, attention_forward)
    AttentionMaskInterface.register(name, attention_mask)
    return name


def attention_forward(
    module,
    query,
    key,
    value,
    attention_mask,
    scaling=None,
    dropout=0.0,
    sliding_window=None,
    is_causal=None,
    position_bias=None,
    **more,
):
    """query [B,H,T,D], key [B,G,S,D], value [B,G,S,E] -> (out [B,T,H,E], None). attention_mask as the function of that
    name makes it: None, bool [B,S] (True = a token), int32 [B,S] (at tokens a window's keys, or _BOTH_WAYS) or [B,1,T,S]
    bool or additive; T may be 1, of a mask for all queries."""
    for argument, given in more.items():
        if given is not None and argument not in _HARMLESS:
            raise ValueError(f"motet attention: {argument} is set, want None or another attn_implementation")
    if dropout:
        raise ValueError(f"motet attention: dropout is {dropout}, want attention_dropout 0 in the configuration")
    seen = {"bias": position_bias}
    if attention_mask is not None and attention_mask.dim() == 2 and attention_mask.dtype == torch.int32:
        window = getattr(attention_mask, "window", None) or int(attention_mask.max())  # a copy's highest is 0: padding
        is_causal, sliding_window = window > 0, window
        attention_mask = attention_mask.bool()
    if attention_mask is None or attention_mask.dim() == 2:
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        seen["causal"] = bool(causal)
        seen["window"] = sliding_window or 0 if causal else 0
        if attention_mask is not None:
            seen["key_begin"], seen["key_end"] = bounds(attention_mask)
    else:
        bias = additive(attention_mask[:, :, :, : key.shape[2]], query.dtype)
        seen["bias"] = bias if position_bias is None else bias + position_bias
    if seen["bias"] is not None:
        seen["bias"] = seen["bias"].expand(-1, -1, query.shape[2], -1)
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    return composed_attention(q, k, v, scale=scaling, **seen), None


def attention_mask(
    batch_size, q_length, kv_length, q_offset=0, kv_offset=0, mask_function=None, attention_mask=None, **more
):
    """The mask that a model hands to attention_forward: where causality and bounds say it all, and the model lets them,
    None or bool [B,S]; where a window hides keys too, or tokens see both ways, int32 [B,S] of its size or _BOTH_WAYS at
    tokens, for not every layer tells that to attention_forward; else bool [B,1,T,S]."""
    from transformers import masking_utils

    masks = dict(q_offset=q_offset, kv_offset=kv_offset, attention_mask=attention_mask)
    function = masking_utils.causal_mask_function if mask_function is None else mask_function
    window = None if torch.compiler.is_compiling() else _window(function, masking_utils)
    if window is not None:
        anywhere = function is masking_utils.bidirectional_mask_function
        left = more.get("allow_is_bidirectional_skip", False) if anywhere else more.get("allow_is_causal_skip", True)
        fits, padding = _padding(kv_length, kv_offset, attention_mask)
        if left and fits and (anywhere or _aligned(q_length, kv_length, q_offset, kv_offset)):
            if not anywhere and not 0 < window < kv_length:
                return padding
            padding = torch.ones(batch_size, kv_length, device=more.get("device")) if padding is None else padding
            window = _BOTH_WAYS if anywhere else window
            seen = padding.int() * window
            seen.window = window  # spares a wait for the device; lost with a copy
            return seen
    more = {**more, "allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    return masking_utils.sdpa_mask(batch_size, q_length, kv_length, mask_function=function, **masks, **more)


def _window(function, masking_utils):
    """Of a mask that is causal, or nothing, 0; of a causal window its keys; None of any other."""
    if function in (masking_utils.causal_mask_function, masking_utils.bidirectional_mask_function):
        return 0
    window = masking_utils.sliding_window_causal_mask_function(1)
    if getattr(function, "__code__", None) is not window.__code__:
        return None
    overlay, causal, *rest = (*function.__closure__[0].cell_contents, None, None)
    own_overlay = masking_utils.sliding_window_overlay(1)
    if any(rest) or causal is not masking_utils.causal_mask_function or overlay.__code__ is not own_overlay.__code__:
        return None
    return overlay.__closure__[0].cell_contents


def _aligned(q_length, kv_length, q_offset, kv_offset):
    """Whether the last query stands at the last key, as the operator takes it; not so in a static cache."""
    return not isinstance(q_offset, torch.Tensor) and q_offset + q_length == kv_offset + kv_length


def _padding(kv_length, kv_offset, attention_mask):
    """(whether the tokens of each sequence lie together, the 2-D mask or None where all are tokens)."""
    if attention_mask is None:
        return True, None
    padding = attention_mask[:, kv_offset : kv_offset + kv_length].bool()
    if padding.shape[1] != kv_length:
        return False, None
    if padding.all():
        return True, None
    begin, end = bounds(padding)
    return bool((end - begin == padding.sum(1)).all()), padding


def bounds(padding):
    """First token, and one past the last, of each row of bool [B,S]; (0, 0) of a row without tokens."""
    count = padding.shape[1]
    some = padding.any(1)
    begin = padding.int().argmax(1)
    end = count - padding.int().flip(1).argmax(1)
    return torch.where(some, begin, 0), torch.where(some, end, 0)


def additive(mask, dtype):
    """bool (True = visible) as 0 and -inf, a float as it is; ValueError for integers, which may mean either."""
    if mask.is_floating_point():
        return mask.to(dtype)
    if mask.dtype != torch.bool:
        raise ValueError(f"motet: attention_mask is of dtype {mask.dtype}, want bool, or a float added to the logits")
    return torch.zeros((), dtype=dtype, device=mask.device).masked_fill(~mask, -torch.inf)
