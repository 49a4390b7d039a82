"""The option tables of the C++ mechanisms, in their words; a test compares each line with `motet train --options`."""
import difflib
import json
import operator
import typing


class Option(typing.NamedTuple):
    name: str
    default: typing.Any  # its type is the option's type
    allowed: tuple  # (lowest, highest) of a number, the choices of a word, () of a flag
    sentence: str
    where: tuple = ()  # (option, values): it has an effect where that one has one of these
    unless: tuple = ()  # likewise, where it has none of them

    def accepted(self):
        """What the option takes, in words."""
        if isinstance(self.default, bool):
            return "true or false"
        if isinstance(self.default, str):
            return "one of " + ", ".join(self.allowed)
        kind = "integer" if isinstance(self.default, int) else "number"
        return f"{kind}, {_short(self.allowed[0])} to {_short(self.allowed[1])}"

    def line(self):
        """As `motet train --options` prints it."""
        where = f"; of {self.condition()}" if self.where or self.unless else ""
        return f"{self.name} = {json.dumps(self.default)}  # {self.accepted()}; {self.sentence}{where}"

    def takes(self, value):
        if isinstance(self.default, bool):
            return isinstance(value, bool)
        if isinstance(self.default, str):
            return value in self.allowed
        numbers = (int,) if isinstance(self.default, int) else (int, float)
        lowest, highest = self.allowed
        return isinstance(value, numbers) and not isinstance(value, bool) and lowest <= value <= highest

    def condition(self):
        """Where it has an effect, in words."""
        other, values = self.where or self.unless
        words = " or ".join(value if isinstance(value, str) else json.dumps(value) for value in values)
        return f"{other}{' other than ' if self.unless else ' = '}{words}"

    def has_effect(self, options):
        other, values = self.where or self.unless or (None, ())
        return other is None or (options[other] in values) != bool(self.unless)


def _short(number):
    scientific = f"{number:.0e}"
    words = [f"{number:.17g}"] + ([scientific] if float(scientific) == number else [])
    return min(words, key=len)


MODEL = (  # [model] of the engine
    Option("hidden_size", 64, (1, 65536), "width of the residual stream"),
    Option("num_layers", 2, (1, 1024), "number of layers"),
    Option("embedding_size", 0, (0, 65536),
           "width of a token's embedding, which a matrix brings to hidden_size; 0 = hidden_size, without"),
    Option("embedding_norm", False, (),
           "a norm behind the embedding; the matrix of embedding_size then has a bias"),
    Option("positions", "rope", ("rope", "learned"),
           "rotary embedding of queries and keys, or a learned table of the context's length beside the embedding"),
    Option("first_position", 0, (0, 65536),
           "row of the first position in the learned table; 2 in RoBERTa, which counts its padding"),
    Option("token_types", 0, (0, 65536), "rows of a table of token types; 0 = none; a token is of type 0"),
    Option("intermediate_size", 0, (0, 1e6),
           "width of the feed-forward; 0 = 8/3 hidden_size (sequential) or 4 hidden_size (others)"),
    Option("block", "sequential", ("sequential", "parallel", "sequential_layer_norm"),
           "LLaMA's layer (RMS norm, SwiGLU), GPT-NeoX's (layer norm, GELU, parallel residual), "
           "or that with LLaMA's residual"),
    Option("norm_place", "pre", ("pre", "post"),
           "norms before attention and feed-forward and one at the end, or one behind each sum (BERT)"),
    Option("shared_layers", False, (), "one layer's parameters, used num_layers times (ALBERT)"),
    Option("activation", "default", ("default", "silu", "gelu", "gelu_tanh"),
           "of the feed-forward; default = silu with RMS norm, else gelu (erf)"),
    Option("causal", True, (), "each token sees only itself and those before it"),
    Option("norm_eps", 1e-5, (0, 1), "epsilon of the norms"),
    Option("tie_embeddings", False, (), "the output matrix is the embedding"),
    Option("head", "linear", ("linear", "masked"),
           "masked: BERT's, a dense layer, the activation and a norm before the output matrix, a bias behind it"),
    Option("initializer", "normal", ("normal", "kaiming", "xavier", "pythia"), "first values of the projections"),
    Option("initializer_range", 0.02, (0, 10),
           "standard deviation of the normal initialiser and of the embedding"),
)

# Of these the keys that the engine writes into config.json only where they are not at their default.
LEFT_OUT = ("embedding_size", "embedding_norm", "positions", "first_position", "token_types", "norm_place", "shared_layers",
            "head")

COMMON = (
    Option("layers", "all", ("all", "last"),
           "last: the last layer alone has the mechanism and its window, the others plain softmax attention to all keys"),
    Option("num_heads", 4, (1, 1024), "heads of the plain Transformer; each mechanism derives its own counts from it"),
    Option("num_kv_heads", 0, (0, 1024), "key and value heads (grouped queries); 0 = num_heads"),
    Option("head_dim", 0, (0, 4096), "width of a head; 0 = hidden_size / num_heads"),
    Option("bias", False, (), "biases on the q, k, v and output projections"),
    Option("qk_norm", False, (), "RMS norm of queries and keys over the head width, before rotary embedding"),
    Option("qk_norm_eps", 1e-6, (0, 1), "epsilon of the QK norm", where=("qk_norm", (True,))),
    Option("output_gate", False, (),
           "each head's output is multiplied by the sigmoid of a projection of the layer's input"),
    Option("window", 0, (0, 1e9), "keys that a query of a local layer sees, itself included; 0 = all"),
    Option("window_pattern", "local", ("local", "LG", "LGLL", "LGL6"),
           "which layers are local (L) and which global (G), repeated over depth", unless=("window", (0,))),
    Option("window_mask", "exact", ("exact", "released"), "released: one key more, as the released DCFormer prefill", unless=("window", (0,))),
    Option("position_bias", "none", ("none", "alibi", "relative"),
           "bias on the logits: fixed slopes, or learned by distance (T5 buckets)"),
    Option("rope_base", 10000.0, (1, 1e12), "base of the rotary embedding"),
    Option("rope_fraction", 1.0, (0, 1), "part of the head width that rotates; 0 = no rotary embedding"),
    Option("rope_pairing", "half", ("half", "interleaved"),
           "which dimensions form a rotary pair: (j, j + r/2) or (2j, 2j + 1)"),
    Option("rope_scaling", "none", ("none", "linear", "ntk", "dynamic", "llama3"),
           "how positions are rescaled for longer contexts"),
    Option("rope_factor", 1.0, (1, 1e6), "factor of the scaling", unless=("rope_scaling", ("none",))),
    Option("rope_trained_length", 0, (0, 1e9),
           "length that dynamic and llama3 scaling extend; 0 = the model's context"),
    Option("rope_low_freq_factor", 1.0, (0, 1e6),
           "llama3: wavelengths above trained length / this are divided by the factor", where=("rope_scaling", ("llama3",))),
    Option("rope_high_freq_factor", 4.0, (0, 1e6), "llama3: wavelengths below trained length / this are kept", where=("rope_scaling", ("llama3",))),
)

MECHANISMS = {
    "softmax": (
        Option("head_norm", "none", ("affine", "plain", "none"),
               "RMS norm of each head's output with a weight, without, or none"),
        Option("head_norm_eps", 1e-5, (0, 1), "epsilon of the head norm", unless=("head_norm", ("none",))),
    ),
    "key_size": (
        Option("key_dim", 0, (0, 4096), "width of queries and keys; 0 = twice head_dim"),
        Option("value_dim", 0, (0, 4096), "width of values; 0 = head_dim"),
    ),
    "talking_heads": (
        Option("score_heads", 0, (0, 1024), "key heads h_k; 0 = num_heads"),
        Option("softmax_heads", 0, (0, 1024), "softmax heads h; 0 = num_heads"),
        Option("value_heads", 0, (0, 1024), "value heads h_v; 0 = num_heads"),
        Option("key_dim", 0, (0, 4096), "width of queries and keys; 0 = head_dim"),
        Option("value_dim", 0, (0, 4096), "width of values; 0 = head_dim"),
        Option("mixes", "both", ("both", "pre", "post"), "mix the logits (pre), the weights (post) or both"),
        Option("static", True, (), "learned maps that are the same everywhere"),
        Option("start", "identity", ("identity", "random"),
               "first values of the static maps (square ones only can be the identity)", where=("static", (True,))),
        Option("dynamic", "none", ("none", "query", "key", "both"),
               "maps computed from the query's or key's hidden state"),
        Option("dynamic_logits", "same", ("same", "none", "query", "key", "both"),
               "dynamic maps of the logits alone; same: as dynamic"),
        Option("dynamic_weights", "same", ("same", "none", "query", "key", "both"),
               "dynamic maps of the weights alone; same: as dynamic"),
        Option("dynamic_std", 0.01, (0, 1), "first standard deviation of the dynamic maps, times 1/sqrt(width heads)"),
        Option("residual", False, (), "add the scores to their mix (x-transformers)"),
        Option("qk_scale", "default", ("default", "none"), "1/sqrt(key_dim), or 1 as in the authors' weights"),
        Option("collinear", "none", ("none", "exact", "slack", "strict"),
               "collinear queries and keys, as the form of coca"),
    ),
    "dcmha": (
        Option("rank", 2, (1, 64), "rank of the dynamic low-rank maps", where=("low_rank", (True,))),
        Option("sides", "both", ("both", "query", "key"),
               "maps from the query's hidden state, the key's, or both"),
        Option("where", "both", ("both", "pre", "post"), "compose before the softmax, after it, or both"),
        Option("low_rank", True, (), "dynamic low-rank maps"),
        Option("gates", True, (), "dynamic gates"),
        Option("static", False, (), "a learned map that is the same everywhere"),
        Option("groups", 1, (1, 256), "groups of heads; heads are composed inside their group"),
        Option("gelu", "erf", ("erf", "tanh"), "GELU of the generator", where=("low_rank", (True,))),
    ),
    "differential": (
        Option("version", "v1", ("v1", "v2"),
               "V1: half the heads in pairs, values of double width; V2: double query heads"),
        Option("lambda_start", "schedule", ("schedule", "constant"),
               "V1: lambda_init by depth, 0.8 - 0.6 exp(-0.3 depth), or lambda_init", where=("version", ("v1",))),
        Option("lambda_init", 0.8, (0, 1), "V1: lambda_init of every layer when lambda_start is constant", where=("lambda_start", ("constant",))),
        Option("lambda_std", 0.1, (0, 10), "V1: first standard deviation of the lambda vectors", where=("version", ("v1",))),
        Option("head_norm", "affine", ("affine", "plain", "none"),
               "V1: RMS norm per head with a weight, without, or none", where=("version", ("v1",))),
        Option("head_norm_eps", 1e-5, (0, 1), "epsilon of the head norm", unless=("head_norm", ("none",))),
        Option("compose", False, (), "V1: heads are composed between softmax and subtraction, as in DCMHA without gates", where=("version", ("v1",))),
        Option("compose_rank", 2, (1, 64), "rank of the dynamic maps of compose", where=("compose", (True,))),
        Option("lambda_form", "sigmoid", ("sigmoid", "raw", "none"),
               "V2: factor of the second map: sigmoid of a projection of the layer's input, that projection, or 1", where=("version", ("v2",))),
        Option("pairs", "within", ("within", "across"), "V2: heads of a pair read one stored head, or different ones", where=("version", ("v2",))),
    ),
    "coca": (
        Option("form", "exact", ("exact", "slack", "strict"),
               "exact: the paper's score, shift-invariant; slack: the released code; strict: queries tied too"),
    ),
}


def table(mechanism):
    """The options of a mechanism: the common ones and its own."""
    return COMMON + MECHANISMS[mechanism]


def as_integer(value):
    """The int that operator.index makes of `value`; None where it makes none, and of a bool."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def nearest(name, known):
    """The end of an error of an unknown name: the known one that looks most like it, if one does. A dictionary says how
    a known name is written."""
    found = difflib.get_close_matches(name, known, 1)
    written = known if isinstance(known, dict) else {}
    return "".join(f"; nearest is {written.get(near, repr(near))}" for near in found)


def resolve(owner, mechanism, given):
    """Every option of the mechanism: from `given`, checked, else its default. Errors begin with `owner`. The versions
    of differential attention may be written 1 and 2."""
    version = as_integer(given.get("version"))
    if version in (1, 2):
        given = {**given, "version": f"v{version}"}
    known = {option.name: option for option in table(mechanism)}
    for name, value in given.items():
        if name not in known:
            raise TypeError(f"{owner}: unknown option {name!r}{nearest(name, list(known))}")
        if not known[name].takes(value):
            raise ValueError(f"{owner}: {name} is {value!r}, want {known[name].accepted()}")
    options = {name: given.get(name, option.default) for name, option in known.items()}
    for name, option in known.items():
        if options[name] != option.default and not option.has_effect(options):
            raise ValueError(f"{owner}: {name} is {options[name]!r} and has no effect, want {option.condition()}")
    return options
