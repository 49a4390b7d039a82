"""The configuration of a model: the keys of the config.json that the engine writes and reads."""
import dataclasses

from transformers import GenerationConfig, PreTrainedConfig

from motet import options
from motet.block import ACTIVATIONS
from motet.folder import refuse_8_bits
from motet.huggingface.cache import CACHE

# Option of [model] -> its key in config.json, where the two have other names.
KEYS = {
    "num_layers": "num_hidden_layers",
    "activation": "hidden_act",
    "norm_eps": "rms_norm_eps",
    "tie_embeddings": "tie_word_embeddings",
}
# What config.json says twice: the key -> the option of [model.attention].
TWICE = {
    "num_attention_heads": "num_heads",
    "num_key_value_heads": "num_kv_heads",
    "head_dim": "head_dim",
    "attention_bias": "bias",
    "rope_theta": "rope_base",
}
# What transformers reads of a configuration besides its fields, some of it in earlier releases alone: nothing of it changes
# what a model computes.
_THEIRS = (
    "model_type", "auto_map", "torch_dtype", "num_labels", "name_or_path", "_name_or_path", "_commit_hash",
    "output_attentions", "attn_implementation", "experts_implementation", "_attn_implementation_internal",
    "_experts_implementation_internal", "_attn_implementation_autoset", "quantization_config", "custom_pipelines", "tokenizer_class", "prefix",
    "task_specific_params", "finetuning_task", "is_decoder", "torchscript", "sep_token_id", "unk_token_id", "cls_token_id",
    "mask_token_id", "decoder_start_token_id",
    *GenerationConfig().to_dict(),
)
# Of that, what `motet` reads past. Quantized weights it does not read, and a file without the word would lie.
_READ_PAST = ("model_type", "auto_map", "transformers_version", "architectures", "dtype", "id2label", "label2id",
              "problem_type", "tokenizer_class", "prefix", "task_specific_params", "finetuning_task", "return_dict",
              "output_hidden_states", "output_attentions", "torchscript", "is_decoder", "is_encoder_decoder",
              "chunk_size_feed_forward", "sep_token_id", "unk_token_id", "cls_token_id", "mask_token_id",
              "decoder_start_token_id", "custom_pipelines", "quantization_config")
# What transformers' LlamaForCausalLM adds to a plain model of `motet train`, where it says nothing new.
_LLAMAS = {"attention_dropout": 0.0, "mlp_bias": False, "pretraining_tp": 1, "rope_scaling": None}
_SPELLED = {"silu": "silu", "gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh"}


def _without_llamas(config_dict):
    """A config.json without _LLAMAS and with its rope_parameters as rope_theta."""
    rotary = config_dict.get("rope_parameters") or {"rope_type": "default"}
    theta = rotary.get("rope_theta", config_dict.get("rope_theta"))
    says_more = rotary.keys() - {"rope_type", "rope_theta"} or config_dict.get("rope_theta", theta) != theta
    if config_dict.get("model_type") != "llama" or rotary.get("rope_type") != "default" or says_more:
        return config_dict
    kept = {key: value for key, value in config_dict.items() if not (key in _LLAMAS and value == _LLAMAS[key])}
    kept.pop("rope_parameters", None)
    return kept if theta is None else {**kept, "rope_theta": theta}


class MotetConfig(PreTrainedConfig):
    """A model of Motet: LLaMA-like, GPT-NeoX-like or BERT-like layers around any mechanism.

        MotetConfig(vocab_size=32000, hidden_size=512, num_hidden_layers=8, attention_mechanism="dcmha",
                    attention_options={"num_heads": 8, "rank": 2})

    Keys are those of config.json as `motet train` writes it; what they mean, their defaults and ranges is said by
    `motet train --options` ([model]) and by help() of a mechanism (attention_options). num_attention_heads,
    num_key_value_heads, head_dim, attention_bias and rope_theta may be given in place of the options num_heads,
    num_kv_heads, head_dim, bias and rope_base. `autocast`, "bfloat16" or "float16": float32 parameters compute under
    it, as in the training that wrote the folder. Raises ValueError or TypeError in one line for what is unknown, out of
    range or said twice in two ways. from_pretrained(FOLDER, KEY=VALUE ...) changes keys of a folder; attention_options
    there are those that change.
    """

    model_type = "motet"
    keys_to_ignore_at_inference = [CACHE]

    vocab_size: int = 256
    max_position_embeddings: int = 2048
    attention_mechanism: str = "softmax"
    attention_options: dict | None = None
    hidden_size: int = 64
    num_hidden_layers: int = 2
    intermediate_size: int | None = None
    block: str = "sequential"
    hidden_act: str | None = None
    causal: bool = True
    rms_norm_eps: float = 1e-5
    tie_word_embeddings: bool = False
    initializer: str = "normal"
    initializer_range: float = 0.02
    embedding_size: int = 0
    embedding_norm: bool = False
    positions: str = "rope"
    first_position: int = 0
    token_types: int = 0
    norm_place: str = "pre"
    shared_layers: bool = False
    head: str = "linear"
    autocast: str | None = None
    num_attention_heads: int | None = None
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    attention_bias: bool | None = None
    rope_theta: float | None = None
    use_cache: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    @classmethod
    def from_dict(cls, config_dict, **kwargs):
        if "attention_mechanism" not in config_dict:
            kind = config_dict.get("model_type")
            raise ValueError(
                f"MotetConfig: config.json is of a model of type {kind!r}, want a folder in Motet's own layout: "
                "`motet convert FOLDER --to motet --out DIR` makes one of a published one"
            )
        refuse_8_bits("MotetConfig", config_dict)
        config_dict = _without_llamas(config_dict)
        named = (option.name for table in (options.COMMON, *options.MECHANISMS.values()) for option in table)
        ours = {*cls._own_keys(), *KEYS, *named}
        changed = {key: kwargs.pop(key) for key in list(kwargs) if key in ours}
        return super().from_dict(cls._changed(config_dict, changed) if changed else config_dict, **kwargs)

    @classmethod
    def _own_keys(cls):
        """The keys that are not those of every configuration of transformers."""
        theirs = {field.name for field in dataclasses.fields(PreTrainedConfig)}
        return [field.name for field in dataclasses.fields(cls) if field.name not in theirs]

    @classmethod
    def _changed(cls, config_dict, changed):
        """A config.json with changed keys, before anything is derived: attention_options is the one place of what it says
        twice, and what `changed` says of a few options leaves the others."""
        changed = {key: value for key, value in changed.items() if key not in TWICE or value is not None}
        given = dict(cls(**config_dict).attention_options)
        if changed.get("attention_mechanism", config_dict["attention_mechanism"]) != config_dict["attention_mechanism"]:
            given = {option.name: given[option.name] for option in options.COMMON}
        for key in TWICE.keys() & changed.keys():
            del given[TWICE[key]]
        given |= changed.pop("attention_options", None) or {}
        once = {key: value for key, value in config_dict.items() if key not in TWICE}
        return {**once, **changed, "attention_options": given}

    def __post_init__(self, **kwargs):
        if self.attention_mechanism not in options.MECHANISMS:
            names = ", ".join(sorted(options.MECHANISMS))
            self._refuse("attention_mechanism", self.attention_mechanism, f"one of {names}")
        self._refuse_unknown(kwargs)
        self.check()
        super().__post_init__(**kwargs)

    def check(self):
        """Derives what is not said; ValueError for what is wrong or no longer fits, as after a key was set alone."""
        self._resolve_model()
        self._resolve_attention()
        self._check_form()

    def save_pretrained(self, *arguments, **named):
        """As transformers does, of what check() lets pass."""
        self.check()
        super().save_pretrained(*arguments, **named)

    def to_diff_dict(self):
        """What save_pretrained writes: keys that `motet` reads, and no others."""
        kept = {*self._own_keys(), *_READ_PAST}
        written = {key: value for key, value in super().to_diff_dict().items() if key in kept}
        for key in (*options.LEFT_OUT, "autocast", "pad_token_id", "bos_token_id", "eos_token_id"):
            if key in written and written[key] == getattr(type(self), key):
                del written[key]
        return written

    def _refuse_unknown(self, names):
        elsewhere = {option.name: f"attention_options={{{option.name!r}: ...}}"
                     for option in options.table(self.attention_mechanism)}
        elsewhere |= {name: repr(key) for name, key in KEYS.items()}
        for name in names:
            if name in elsewhere:
                raise TypeError(f"MotetConfig: unknown key {name!r}, want {elsewhere[name]}")
            if name not in _THEIRS:
                known = {**elsewhere, **{key: repr(key) for key in (*self._own_keys(), *_THEIRS)}}
                raise TypeError(f"MotetConfig: unknown key {name!r}{options.nearest(name, known)}")

    def _resolve_model(self):
        gated = self.block == "sequential"
        if self.intermediate_size is None or self.intermediate_size == 0:
            self.intermediate_size = (8 * self.hidden_size + 2) // 3 if gated else 4 * self.hidden_size
        if self.hidden_act is None:
            self.hidden_act = "silu" if gated else "gelu"
        if self.hidden_act not in ACTIVATIONS:
            self._refuse("hidden_act", self.hidden_act, f"one of {', '.join(ACTIVATIONS)}")
        self.hidden_act = _SPELLED[ACTIVATIONS[self.hidden_act]]
        for option in options.MODEL:
            key = KEYS.get(option.name, option.name)
            if key != "hidden_act" and not option.takes(getattr(self, key)):
                self._refuse(key, getattr(self, key), option.accepted())
        for key in ("vocab_size", "max_position_embeddings"):
            if not isinstance(getattr(self, key), int) or not 1 <= getattr(self, key) <= 1e8:
                self._refuse(key, getattr(self, key), "integer, 1 to 1e+08")
        if self.autocast not in (None, "bfloat16", "float16"):
            self._refuse("autocast", self.autocast, "bfloat16, float16 or None")

    def _resolve_attention(self):
        given = dict(self.attention_options or {})
        for key, option in TWICE.items():
            if getattr(self, key) is not None:
                given.setdefault(option, getattr(self, key))
        self.attention_options = options.resolve("MotetConfig", self.attention_mechanism, given)
        o = self.attention_options
        heads = o["num_heads"]
        means = {**o, "num_kv_heads": o["num_kv_heads"] or heads, "head_dim": o["head_dim"] or self.hidden_size // heads}
        for key, option in TWICE.items():
            if getattr(self, key) not in (None, o[option], means[option]):
                self._refuse(key, getattr(self, key), f"{means[option]!r} as attention_options.{option} says")
            setattr(self, key, means[option])

    def _check_form(self):
        o = self.attention_options
        learned, form = self.positions == "learned", o.get("form", o.get("collinear"))
        refused = [
            (self.embedding_size and self.tie_word_embeddings and self.head != "masked", "tie_word_embeddings", True,
             "False with embedding_size, or head 'masked'"),
            (self.norm_place == "post" and self.block == "parallel", "norm_place", "post", "'pre' with block 'parallel'"),
            (self.first_position and not learned, "first_position", self.first_position, "0, or positions 'learned'"),
            (learned and o["rope_scaling"] != "none", "rope_scaling", o["rope_scaling"], "'none' with learned positions"),
            (learned and o["rope_base"] != 10000, "rope_base", o["rope_base"], "10000.0 with learned positions"),
            (learned and form in ("exact", "strict"), "positions", "learned", f"'rope' with the {form} form of coca"),
            (self.shared_layers and o["window"] and o["window_pattern"] != "local", "window_pattern",
             o["window_pattern"], "'local' with shared_layers"),
            (self.shared_layers and o["layers"] != "all", "layers", o["layers"], "'all' with shared_layers"),
        ]
        for wrong, key, value, want in refused:
            if wrong:
                self._refuse(key, value, want)

    @staticmethod
    def _refuse(key, value, want):
        raise ValueError(f"MotetConfig: {key} is {value!r}, want {want}")
