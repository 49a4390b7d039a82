"""Layers of the engine's model folders."""
import json
import pathlib

from motet.coca import CocaAttention
from motet.dcmha import DCMHA
from motet.differential import DifferentialAttention
from motet.key_size import KeySizeAttention, SoftmaxAttention
from motet.talking_heads import TalkingHeadsAttention

from motet import options

_CLASSES = (CocaAttention, DCMHA, DifferentialAttention, KeySizeAttention, SoftmaxAttention, TalkingHeadsAttention)
MODULES = {cls.mechanism: cls for cls in _CLASSES}  # by the engine's names
_DEFAULTS = {option.name: option.default for option in options.MODEL if option.name in (*options.LEFT_OUT, "causal")}


def settings_of(config):
    """The keys of a config.json, those that it leaves out included: of its path or its folder's, a dictionary, or an object
    with these attributes."""
    if hasattr(config, "attention_mechanism"):
        return vars(config)
    settings = config if isinstance(config, dict) else _read(pathlib.Path(config))
    refuse_8_bits("attention_layer", settings)
    return {**_DEFAULTS, **settings}


def _read(path):
    """The config.json of a path to it or to its folder; ValueError for what is none."""
    if path.is_dir():
        run, path = path, path / "config.json"
        if not path.exists() and (run / "checkpoints").is_dir():
            raise ValueError(f"attention_layer: {run} is a run, want one of its checkpoints, {run / 'checkpoints'}/step_N")
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        settings = None
    if not isinstance(settings, dict):
        raise ValueError(f"attention_layer: {path} is no JSON object, want the config.json of a model that motet trained")
    return settings


def refuse_8_bits(where, settings):
    """Raises ValueError for the config.json of a folder that `motet convert --weights int8` wrote: its matrices are read by
    the engine alone, and loaded as they lie they would be other numbers."""
    said = settings.get("quantization_config") if isinstance(settings, dict) else None
    if isinstance(said, dict) and said.get("quant_method") == "motet":
        raise ValueError(
            f"{where}: config.json is of a folder whose weights are in 8 bits, want one with float32: "
            "`motet convert FOLDER --dtype float32 --out DIR` makes it"
        )


def attention_layer(config, layer, *, device=None, dtype=None):
    """The attention of layer number `layer`, from 0, of a model that the engine trained: its folder or `config.json`, as a
    path, as json.load gave it, or as a motet.huggingface.MotetConfig. The tensors `model.layers.N.self_attn.*` of the folder
    load with load_state_dict; N is `layer`, or 0 when layers are shared.

    With layers="last" only the last layer has the mechanism, the others are plain attention to all keys. Raises
    ValueError for a configuration that is not the engine's own, and a layer that it does not have.
    """
    config = settings_of(config)
    mechanism, given = layer_options(config, layer)
    sizes = {"causal": config["causal"], "max_position": config.get("max_position_embeddings", 0)}
    return MODULES[mechanism](config["hidden_size"], layer=layer, device=device, dtype=dtype, **sizes, **given)


def layer_options(config, layer):
    """The mechanism of a layer and its options, of a config.json as attention_layer takes it."""
    config = settings_of(config)
    for key in ("attention_mechanism", "attention_options", "hidden_size", "num_hidden_layers"):
        if key not in config:
            raise ValueError(f"attention_layer: the key {key} is missing, want the config.json of a model that motet trained")
    count, given = config["num_hidden_layers"], dict(config["attention_options"])
    if not isinstance(layer, int) or isinstance(layer, bool) or not 0 <= layer < count:
        raise ValueError(f"attention_layer: layer is {layer!r}, want 0 to {count - 1}")
    mechanism = config["attention_mechanism"]
    if mechanism not in MODULES:
        raise ValueError(f"attention_layer: attention_mechanism is {mechanism!r}, want one of {', '.join(sorted(MODULES))}")
    if given.get("layers") == "last" and layer + 1 < count:
        shared = {option.name: option.default for option in options.COMMON if option.name in given}
        mechanism, given = "softmax", {name: default if name.startswith("window") else given[name] for name, default in shared.items()}
    if config["positions"] == "learned":  # a table that is added to the embedding: nothing rotates
        given["rope_fraction"] = 0.0
    return mechanism, given
