"""The keys of earlier tokens, as transformers holds them."""
from dataclasses import fields

from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.modeling_outputs import BaseModelOutputWithPast

from motet.folder import layer_options
from motet.mechanism import windows_of

# What generate() and outputs call it: cache since transformers 5.24, past_key_values before.
CACHE = next(field.name for field in fields(BaseModelOutputWithPast) if field.name in ("cache", "past_key_values"))


class MotetCacheLayer(CacheLayerMixin):
    """What one layer's mechanism keeps of its tokens: tensors by name, with the token as dimension 1. A layer with a
    window keeps fewer than twice as many tokens as it is wide, besides those of one call."""

    is_sliding = False
    is_croppable = True

    def __init__(self, window=0):
        self.held, self.begin, self.window, self.record_past = {}, 0, window, False
        super().__init__()

    @property
    def is_initialized(self):
        return bool(self.held)

    @is_initialized.setter
    def is_initialized(self, value):
        pass  # the base class begins with it

    def lazy_initialization(self, *states):
        """There is nothing to allocate before the first tokens."""

    def update(self, held):
        """Takes the tensors of all tokens that are held: those that were here, and new ones behind them."""
        self.held = held
        if self.window and not self.record_past:
            self._keep_window(2 * self.window)
        return held

    def get_seq_length(self):
        """Tokens so far, those included that a window dropped."""
        return self.begin + self._count()

    def get_max_length(self):
        return -1

    def get_mask_sizes(self, query_length):
        return self._count() + query_length, self.begin

    def activate_past_recording(self):
        """From now on a window drops tokens in crop alone."""
        self.record_past = True

    def crop(self, tokens_to_remove):
        """Forgets the last -tokens_to_remove tokens; a positive number is how many to keep. Raises ValueError where a
        window has dropped what the rest would need."""
        end = tokens_to_remove if tokens_to_remove > 0 else self.get_seq_length() + tokens_to_remove
        if end < self.get_seq_length():
            if self.begin and end - self.window + 1 < self.begin:
                raise ValueError(
                    f"MotetCache: crop to {end} tokens, want {self.begin + self.window - 1} or more: "
                    f"a window of {self.window} has dropped the first {self.begin}"
                )
            self._each(lambda tensor: tensor[:, : end - self.begin])
        if self.window and self.record_past:
            self._keep_window(self.window)

    def reset(self):
        self.held, self.begin = {}, 0

    def reorder_cache(self, beam_idx):
        self._each(lambda tensor: tensor.index_select(0, beam_idx.to(tensor.device)))

    def batch_repeat_interleave(self, repeats):
        self._each(lambda tensor: tensor.repeat_interleave(repeats, 0))

    def batch_select_indices(self, indices):
        self._each(lambda tensor: tensor[indices])

    def offload(self):
        raise NotImplementedError("MotetCache: offload is not supported, want a cache that stays on its device")

    prefetch = offload

    def _count(self):
        return next(iter(self.held.values())).shape[1] if self.held else 0

    def _each(self, change):
        self.held = {name: change(tensor) for name, tensor in self.held.items()}

    def _keep_window(self, limit):
        if self._count() >= limit:
            dropped = self._count() - self.window
            self._each(lambda tensor: tensor[:, dropped:].clone())
            self.begin += dropped


class MotetCache(Cache):
    """The keys of all layers of a model of `config` (MotetConfig), and beside them `tokens`: what is kept once of each token,
    its position and, where there are several, its document (motet.huggingface.seen).

    length: tokens that dynamic rotary scaling is based on, the planned length of a request, so that its base stays one
    from token to token; generate() sets it. Without, it is the number of tokens at each step.
    """

    def __init__(self, config, length=None):
        if not config.causal:
            raise ValueError("MotetCache: causal is False, want a model whose tokens see only those before them")
        layers = [0 if config.shared_layers else layer for layer in range(config.num_hidden_layers)]
        windows = [windows_of(layer_options(config, layer)[1], layer)[1] for layer in layers]
        super().__init__(layers=[MotetCacheLayer(window) for window in windows])
        self.length = length
        self.tokens = MotetCacheLayer()

    def crop(self, tokens_to_remove):
        super().crop(tokens_to_remove)
        self.tokens.crop(tokens_to_remove)

    def reset(self):
        super().reset()
        self.tokens.reset()

    def reorder_cache(self, beam_idx):
        super().reorder_cache(beam_idx)
        self.tokens.reorder_cache(beam_idx)

    def batch_repeat_interleave(self, repeats):
        super().batch_repeat_interleave(repeats)
        self.tokens.batch_repeat_interleave(repeats)

    def batch_select_indices(self, indices):
        super().batch_select_indices(indices)
        self.tokens.batch_select_indices(indices)
