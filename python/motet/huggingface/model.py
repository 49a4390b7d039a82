"""Models of Motet as models of transformers."""
import contextlib
import inspect

import torch
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast, MaskedLMOutput
from transformers.utils import TransformersKwargs, can_return_tuple, logging

from motet.block import Block, Embedding, MaskedHead, norm
from motet.folder import settings_of
from motet.huggingface.cache import CACHE, MotetCache
from motet.huggingface.config import MotetConfig
from motet.huggingface.initialize import initialize
from motet.huggingface.seen import seen
from motet.options import nearest

_LOGGER = logging.get_logger(__name__)
_NOT_SCALED = (
    "motet: autocast is float16 in config.json and the loss is not scaled, training computes in float32, want fp16=True of "
    "Trainer, or torch.autocast and a GradScaler"
)
# What transformers and accelerate hand to any model, and what changes nothing in these. is_causal is the configuration's.
_HARMLESS = {*TransformersKwargs.__annotations__, "cache_position", "return_dict"} - {"is_causal"}


def _refuse_unknown(given):
    """TypeError for arguments of a forward that nobody knows; None says nothing."""
    for name in (name for name, value in given.items() if value is not None and name not in _HARMLESS):
        known = {*_HARMLESS, *inspect.signature(MotetForCausalLM.forward).parameters} - {"self", "more", name}
        raise TypeError(f"motet: unknown argument {name!r}{nearest(name, known)}")


class MotetLayer(GradientCheckpointingLayer, Block):
    """A layer that may be computed again in the backward pass."""

    def __init__(self, config, layer):
        super().__init__(config, layer)
        self.self_attn.o_proj.is_output = self.mlp.down_proj.is_output = True  # they may begin smaller: initialize.py


class MotetPreTrainedModel(PreTrainedModel):
    """What the models share: loading, saving, fresh parameters."""

    config_class = MotetConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["MotetLayer"]
    _skip_keys_device_placement = [CACHE]
    _can_compile_fullgraph = True

    def __init__(self, config, **unknown):
        """Raises TypeError for what from_pretrained was given and neither transformers nor the configuration took."""
        for name in unknown:
            known = list(inspect.signature(MotetConfig).parameters)
            raise TypeError(f"{type(self).__name__}: unknown argument {name!r}{nearest(name, known)}")
        super().__init__(config)

    def _init_weights(self, module):
        if not initialize(module, self.config):
            super()._init_weights(module)

    def _precision(self, x):
        """What the products of float32 parameters with x are computed in: what config.autocast says where the caller opened
        no autocast. In training it is not float16 then: gradients would be lost, for nobody scales the loss."""
        kind, wanted = x.device.type, self.config.autocast
        if wanted is None or self.dtype != torch.float32 or kind == "meta" or torch.is_autocast_enabled(kind):
            return contextlib.nullcontext()
        if wanted == "float16" and self.training and torch.is_grad_enabled():
            if not torch.compiler.is_compiling():
                _LOGGER.warning_once(_NOT_SCALED)
            return contextlib.nullcontext()
        return torch.autocast(kind, dtype=getattr(torch, self.config.autocast))


class MotetModel(MotetPreTrainedModel):
    """Token ids to hidden states behind the final norm: the trunk of both models, whose folders `motet` does not read."""

    def __init__(self, config, **unknown):
        super().__init__(config, **unknown)
        config.check()
        self.embedding = Embedding(self, config)
        blocks = 1 if config.shared_layers else config.num_hidden_layers
        self.layers = nn.ModuleList(MotetLayer(config, layer) for layer in range(blocks))
        if config.norm_place == "pre":
            self.norm = norm(settings_of(config), config.hidden_size)
        self.gradient_checkpointing = False
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        cache=None,
        inputs_embeds=None,
        use_cache=None,
        token_type_ids=None,
        documents=None,
        output_hidden_states=None,
        output_attentions=None,
        past_key_values=None,
        **more,
    ):
        """input_ids [B,T], or rows of the embedding inputs_embeds [B,T,E]; attention_mask, position_ids and documents as
        motet.huggingface.seen takes them; cache, a MotetCache, may be called past_key_values. hidden_states are the
        embedding and each layer's output, the last normed."""
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("motet: input_ids and inputs_embeds are both given or both missing, want one of them")
        _refuse_unknown(more)
        if self.config.output_attentions if output_attentions is None else output_attentions:
            raise ValueError("motet: output_attentions is set, want False: the operator keeps no attention maps")
        cache = self._cache(past_key_values if cache is None else cache, use_cache)
        with self._precision(input_ids if inputs_embeds is None else inputs_embeds):
            rows = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
            held = cache.tokens.held if cache is not None and cache.tokens.get_seq_length() else {}
            now = seen(rows, held, attention_mask, position_ids, documents, self.config.causal)
            if self.embedding.learned:
                self._check_table(now.positions, now.tokens["positions"].shape[1], position_ids)
            x = self.embedding(self, rows, now.positions, token_type_ids)
            wanted = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
            states = []
            for number in range(self.config.num_hidden_layers):
                states += [x] if wanted else []
                x = self._layer(number, x, now, cache)
            if cache is not None:  # what it keeps is its own: the caller may write to what was given
                cache.tokens.update({name: tensor.clone() for name, tensor in now.tokens.items()})
            if self.config.norm_place == "pre":
                x = self.norm(x)
        states = (*states, x) if wanted else None
        return BaseModelOutputWithPast(last_hidden_state=x, hidden_states=states, **{CACHE: cache})

    def _cache(self, given, use_cache):
        again = self.gradient_checkpointing and self.training and torch.is_grad_enabled()  # layers run twice
        if given is not None:
            self._check_cache(given)
            if again:
                raise ValueError(f"motet: {CACHE} is given beside gradient checkpointing, want None or torch.no_grad()")
        if again:
            return None
        if use_cache is None:
            use_cache = self.config.use_cache and self.config.causal and not self.training
        return MotetCache(self.config) if use_cache and given is None else given

    def _check_cache(self, given):
        """ValueError for what is no cache of these layers, which keep as many tokens as they see."""
        want = "a motet.huggingface.MotetCache(model.config)"
        if not isinstance(given, MotetCache):
            raise ValueError(f"motet: {CACHE} is a {type(given).__name__}, want {want}")
        windows = [layer.window for layer in given.layers]
        own = [self._block(number).self_attn.cached_window for number in range(self.config.num_hidden_layers)]
        if windows != own:
            alike = sorted(windows) == sorted(own)
            said, wanted = (f"{len(each)} layers with windows {each if alike else sorted(set(each))}" for each in (windows, own))
            raise ValueError(f"motet: {CACHE} is of {said}, want {wanted}: {want}")

    def _check_table(self, positions, total, given):
        """ValueError for positions behind the table's last. Where none were given, the `total` tokens bound them; else, and
        where padding is not counted, the numbers are looked at, but in a compiled graph: there the lookup itself fails."""
        last = self.config.max_position_embeddings - 1
        if given is None and (total - 1 <= last or positions.dim() == 1):
            largest = total - 1
        elif torch.compiler.is_compiling() or not positions.numel():
            return
        else:
            largest = int(positions.max())
        if largest > last:
            raise ValueError(f"motet: a token stands at position {largest}, want at most {last}, the last of the table")

    def _block(self, number):
        """The block that layer `number` is computed by."""
        return self.layers[0 if self.config.shared_layers else number]

    def _layer(self, number, x, now, cache):
        layer = self._block(number)
        if cache is None:
            return layer(x, now.positions, **now.hidden)
        kept = cache.layers[number]
        biased = layer.self_attn.options["position_bias"] != "none"
        past = {name: tensor for name, tensor in kept.held.items() if name != "positions"} or None
        given = now.behind(kept.begin)
        positions = now.positions.expand(x.shape[0], -1) if biased else now.positions
        if biased and past:
            given = {**given, "memory_positions": torch.cat((kept.held["positions"], positions), 1)}
        so_far = kept.get_seq_length() + x.shape[1]  # those included that a window dropped
        length = so_far if cache.length is None else cache.length
        x, keys = layer(x, positions, past=past, length=length, return_keys=True, **given)
        if biased:
            keys["positions"] = given.get("memory_positions", positions)
        kept.update(keys)
        return x


class _ForTokens(MotetPreTrainedModel):
    """A model with an output matrix: lm_head, or the embedding itself, behind a masked head if there is one."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config, **unknown):
        super().__init__(config, **unknown)
        if config.causal != self._causal:
            name = "MotetForCausalLM" if config.causal else "MotetForMaskedLM"
            raise ValueError(f"{type(self).__name__}: causal is {config.causal} in the configuration, want a {name}")
        self.model = MotetModel(config)
        width = config.hidden_size
        if config.head == "masked":
            self.masked_head = MaskedHead(config)
            width = config.embedding_size or width
        self.lm_head = nn.Linear(width, config.vocab_size, bias=False)
        self.post_init()

    def logits(self, hidden):
        """[...,V] of hidden states [...,C]."""
        with self._precision(hidden):
            if self.config.head != "masked":
                return self.lm_head(hidden)
            return self.masked_head(hidden, lambda x: self.lm_head(x))  # a module as argument would be moved by accelerate

    def resize_token_embeddings(self, *arguments, **named):
        """As transformers does; the bias of a masked head grows with zeros."""
        table = super().resize_token_embeddings(*arguments, **named)
        if self.config.head == "masked":
            bias, count = self.masked_head.bias, self.config.vocab_size
            wide = bias.new_zeros(count)
            wide[: bias.shape[0]] = bias.detach()[:count]
            self.masked_head.bias = nn.Parameter(wide)
        return table


class MotetForCausalLM(_ForTokens, GenerationMixin):
    """A model of the next token: from_pretrained of a folder that `motet train` wrote, save_pretrained for `motet`."""

    _causal = True

    @can_return_tuple
    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        cache=None,
        inputs_embeds=None,
        labels=None,
        use_cache=None,
        logits_to_keep=0,
        past_key_values=None,
        token_type_ids=None,
        documents=None,
        **more,
    ):
        """As MotetModel, with logits [B,T,V] and, of labels [B,T] (the ids themselves; -100: none), the mean loss.
        logits_to_keep: of so many last tokens, or of the places in a tensor; 0: of all."""
        of_loss = {name: more.pop(name) for name in ("num_items_in_batch", "shift_labels") if name in more}
        cache = past_key_values if cache is None else cache
        kinds = dict(token_type_ids=token_type_ids, documents=documents)
        made = self.model(
            input_ids, attention_mask, position_ids, cache, inputs_embeds, use_cache, return_dict=True, **kinds, **more
        )
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) and logits_to_keep else logits_to_keep
        hidden = made.last_hidden_state
        logits = self.logits(hidden if isinstance(kept, int) else hidden[:, kept])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **of_loss)
        return CausalLMOutputWithPast(
            loss=loss, logits=logits, hidden_states=made.hidden_states, **{CACHE: getattr(made, CACHE)}
        )

    def init_continuous_batching(self, *arguments, **named):
        """Of generate_batch, whose keys lie in pages."""
        raise ValueError("motet: continuous batching (generate_batch) is asked for, want generate(), or `motet serve`")

    def _prepare_cache_for_generation(self, generation_config, model_kwargs, *more, **named):
        wanted = generation_config.cache_implementation
        if wanted not in (None, "dynamic"):
            raise ValueError(f"motet: cache_implementation is {wanted!r}, want None: its keys are a MotetCache")
        if model_kwargs.get(CACHE) is None and generation_config.use_cache is not False:
            model_kwargs[CACHE] = MotetCache(self.config, length=generation_config.max_length)
            if generation_config.is_assistant:
                model_kwargs[CACHE].activate_past_recording()
            return None
        return super()._prepare_cache_for_generation(generation_config, model_kwargs, *more, **named)

    def _update_model_kwargs_for_generation(self, outputs, model_kwargs, is_encoder_decoder=False, num_new_tokens=1):
        kept = super()._update_model_kwargs_for_generation(outputs, model_kwargs, is_encoder_decoder, num_new_tokens)
        if (documents := kept.get("documents")) is not None:  # what is new goes on with the last one
            kept["documents"] = torch.cat([documents, documents[:, -1:].expand(-1, num_new_tokens)], 1)
        return kept


class MotetForMaskedLM(_ForTokens):
    """A model of hidden tokens, of a configuration with causal=False."""

    _causal = False

    @can_return_tuple
    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        token_type_ids=None,
        position_ids=None,
        inputs_embeds=None,
        labels=None,
        documents=None,
        **more,
    ):
        """As MotetModel, with logits [B,T,V] and, of labels [B,T] (what a hidden token is; -100: none), the mean loss. The
        first arguments stand in BERT's order."""
        of_loss = {name: more.pop(name) for name in ("num_items_in_batch",) if name in more}
        given = dict(inputs_embeds=inputs_embeds, token_type_ids=token_type_ids, documents=documents)
        made = self.model(input_ids, attention_mask, position_ids, return_dict=True, **given, **more)
        logits = self.logits(made.last_hidden_state)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **of_loss)
        return MaskedLMOutput(loss=loss, logits=logits, hidden_states=made.hidden_states)
