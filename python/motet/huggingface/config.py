"""The configuration of a model: the keys of the config.json that the engine writes and reads."""
from transformers import PreTrainedConfig

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
_LATER = ("embedding_size", "embedding_norm", "positions", "first_position", "token_types", "norm_place", "shared_layers",
          "head")  # the engine writes them where they are not at their default
_SPELLED = {"silu": "silu", "gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh"}


class MotetConfig(PreTrainedConfig):
    """A model of Motet: LLaMA-like, GPT-NeoX-like or BERT-like layers around any mechanism.

        MotetConfig(vocab_size=32000, hidden_size=512, num_hidden_layers=8, attention_mechanism="dcmha",
                    attention_options={"num_heads": 8, "rank": 2})

    Keys are those of config.json as `motet train` writes it; what they mean, their defaults and ranges is said by
    `motet train --options` ([model]) and by help() of a mechanism (attention_options). num_attention_heads,
    num_key_value_heads, head_dim, attention_bias and rope_theta may be given in place of the options num_heads,
    num_kv_heads, head_dim, bias and rope_base. `autocast`, "bfloat16" or "float16": float32 parameters compute under
    it, as in the training that wrote the folder. Raises ValueError or TypeError in one line for what is unknown, out of
    range or said twice in two ways.
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
        return super().from_dict(config_dict, **kwargs)

    def __post_init__(self, **kwargs):
        if self.attention_mechanism not in options.MECHANISMS:
            names = ", ".join(sorted(options.MECHANISMS))
            self._refuse("attention_mechanism", self.attention_mechanism, f"one of {names}")
        for name in kwargs:
            if name in KEYS:
                raise TypeError(f"MotetConfig: unknown key {name!r}, want {KEYS[name]!r}")
            if name in {option.name for option in options.table(self.attention_mechanism)}:
                raise TypeError(f"MotetConfig: unknown key {name!r}, want attention_options={{{name!r}: ...}}")
        self._resolve_model()
        self._resolve_attention()
        self._check_form()
        super().__post_init__(**kwargs)

    def to_diff_dict(self):
        written = super().to_diff_dict()
        for key in (*_LATER, "autocast", "pad_token_id", "bos_token_id", "eos_token_id"):
            if key in written and written[key] == getattr(type(self), key):
                del written[key]
        return written

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
