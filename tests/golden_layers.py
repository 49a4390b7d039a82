"""The layer files of tests/golden/op as modules of the Python package; the format stands in tests/golden/README.md."""
import json
import struct

import numpy as np
import torch

from motet.folder import MODULES

BRANCHES = ("pre_query", "pre_key", "post_query", "post_key")
_TYPES = {"F32": np.float32, "F64": np.float64, "I64": np.int64, "BOOL": np.bool_, "U8": np.uint8, "I32": np.int32}


def read_safetensors(path):
    """(tensors, metadata)."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        array = np.frombuffer(data[begin:end], _TYPES[entry["dtype"]]).reshape(entry["shape"])
        tensors[name] = torch.from_numpy(array.copy())
    return tensors, metadata


def write_safetensors(path, tensors):
    """Float32 tensors."""
    header, offset, parts = {}, 0, []
    for name, tensor in tensors.items():
        parts.append(tensor.float().contiguous().numpy().tobytes())
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [offset, offset + len(parts[-1])]}
        offset += len(parts[-1])
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def _heads_of(tensors, projection, part):
    """[heads, dim, in] of a weight, [heads, dim] of a bias."""
    if projection[part] is None:
        return None
    stored = tensors[projection[part]]
    if projection["layout"] == "IDH":
        return stored.permute(2, 1, 0)
    return torch.stack([stored[row : row + projection["dim"]] for row in projection["rows"]])


def _stored_order(own, wanted, stored):
    """The order of stored heads under which the module's table `own` reads what the file's table reads."""
    order = [0] * stored
    for ours, theirs in zip(own, wanted, strict=True):
        order[ours] = theirs
    assert [order[ours] for ours in own] == wanted
    return order


def _projections(spec, tensors, module):
    made, projections = {}, spec["projections"]
    own_key = module.attention(None, None).get("key_of")
    heads, outputs = module.query_heads, module.output_heads
    own_key = own_key or [h * module.key_heads // heads for h in range(heads)]
    own_value = [h * module.value_heads // outputs for h in range(outputs)]
    orders = {
        "q": spec["query_order"],
        "k": _stored_order(own_key, spec["key_of"], module.key_heads),
        "v": _stored_order(own_value, spec["value_of"], module.value_heads),
    }
    names = {"q": "q_proj", "k": module.key_name, "v": "v_proj"}
    for part in ("weight", "bias"):
        for side, name in names.items():
            parts = _heads_of(tensors, projections[side], part)
            if parts is None:
                continue
            if side == "v":
                parts = torch.stack([torch.cat([parts[h] for h in joined]) for joined in spec["value_heads"]])
            made[f"{name}.{part}"] = parts[orders[side]].flatten(0, 1)
    out = projections["out"]
    weight = tensors[out["weight"]]
    made["o_proj.weight"] = weight.permute(0, 2, 1).flatten(1) if out["layout"] == "ODH" else weight
    if out["bias"] is not None:
        made["o_proj.bias"] = tensors[out["bias"]]
    return made


def _static(tensors, entry):
    """[N,M] or, of dcmha, [G,N,M]."""
    tensor = tensors[entry["tensor"]]
    return tensor[:, :, 0, 0].T if entry["layout"] == "MN11" else tensor


def _branches(tensor, axis, dynamic):
    """The branches that are on, in our order."""
    places = [dynamic["branches"].index(name) for name in BRANCHES if name in dynamic["active"]]
    return tensor.index_select(axis, torch.tensor(places))


def _mixes(spec, tensors, module):
    made, dynamic = {}, spec["dynamic"]
    for place, name in (("pre", "logits_mix"), ("post", "weights_mix")):
        if spec["static"][place] is not None:
            own = f"compose_static_{place}" if spec["mechanism"] == "dcmha" else name
            made[own] = _static(tensors, spec["static"][place])
    if dynamic is None:
        return made
    if dynamic["type"] == "dcmha":
        made["compose_hidden"] = _branches(tensors[dynamic["hidden"]], 2, dynamic)
        made["compose_up"] = _branches(tensors[dynamic["up"]], 1, dynamic)
        gate = tensors[dynamic["gate"]].unflatten(-1, (len(dynamic["branches"]), -1))  # C, 1, branches, heads
        made["compose_gate"] = _branches(gate[:, 0], 1, dynamic)
        return made
    for part in dynamic["parts"]:
        place = {"pre": "logits", "post": "weights"}[part["mix"]]
        made[f"{part['side']}_{place}_mix"] = tensors[part["tensor"]]
    return made


def _norms(spec, tensors):
    made = {}
    if spec["qk_norm"]:
        made = {f"{side}_norm.weight": tensors[spec["qk_norm"][side]] for side in "qk"}
    if spec.get("head_norm") and spec["head_norm"]["weight"]:
        made["subln.weight"] = tensors[spec["head_norm"]["weight"]]
    lam = spec.get("lambda") or {"type": None}
    if lam["type"] == "sigmoid":
        made["lambda_proj.weight"] = tensors[lam["weight"]]
    if lam["type"] == "exp":
        made |= {f"lambda_{name}": tensors[lam[name]] for name in ("q1", "k1", "q2", "k2")}
    return made


def _rope_options(rope, head_dim):
    if rope is None:
        return {"rope_fraction": 0}
    dims = rope["rotary_dims"]
    made = {"rope_base": rope["base"], "rope_pairing": rope["pairing"]}
    made["rope_fraction"] = 1.0 if dims == head_dim else (dims + 0.5) / head_dim  # a fraction rounds down
    if rope["scaling"]:
        made |= {"rope_scaling": rope["scaling"]["type"], "rope_factor": rope["scaling"]["factor"]}
        if rope["scaling"]["type"] == "dynamic":
            made["rope_trained_length"] = rope["max_position"]
    return made


def _mix_options(spec):
    fixed, dynamic, mechanism = spec["static"], spec["dynamic"], spec["mechanism"]
    if mechanism == "dcmha":
        sides = {name.split("_")[1] for name in dynamic["active"]}
        made = {"static": bool(fixed["pre"]), "rank": dynamic["rank"], "gelu": dynamic["gelu"]}
        return made | {"sides": "both" if len(sides) == 2 else sides.pop()}
    if mechanism != "talking_heads":
        return {}
    made = {"mixes": "both" if fixed["pre"] and fixed["post"] else "pre" if fixed["pre"] else "post"}
    made["dynamic"] = "both" if dynamic else "none"  # the files have all four parts or none
    made["residual"] = bool(fixed["pre"]) and spec["identity"]["pre"]
    made["qk_scale"] = "none" if spec["scale"] == 1 else "default"
    return made


def _differential_options(spec):
    lam = spec.get("lambda")
    if not lam:
        return {}
    if lam["type"] == "sigmoid":
        return {"version": 2}
    norm = spec["head_norm"]
    made = {"version": 1, "lambda_start": "constant", "lambda_init": spec["lambda_init"]}
    return made | {"head_norm": "affine" if norm["weight"] else "plain", "head_norm_eps": norm["eps"]}


def _options(spec):
    heads, mechanism = spec["heads"], spec["mechanism"]
    made = {"head_dim": spec["head_dim"], "window": spec["window"], "window_mask": spec["window_mask"]}
    made |= _rope_options(spec["rope"], spec["head_dim"]) | _mix_options(spec) | _differential_options(spec)
    made["num_heads"] = heads["outputs"] if made.get("version") == 2 else heads["scores"]
    if mechanism == "talking_heads":
        counts = {"score_heads": "scores", "softmax_heads": "softmax", "value_heads": "outputs"}
        made |= {option: heads[stage] for option, stage in counts.items()}
    else:
        made["num_kv_heads"] = heads["keys"]
    if mechanism in ("talking_heads", "key_size"):
        made |= {"key_dim": spec["head_dim"], "value_dim": spec["value_dim"]}
    if mechanism == "coca":
        made["form"] = spec["form"]
    made["bias"] = any(projection["bias"] for projection in spec["projections"].values())
    if spec["qk_norm"]:
        made |= {"qk_norm": True, "qk_norm_eps": spec["qk_norm"]["eps"]}
    return made


class GoldenLayer:
    """module in float64 with the file's weights; `run()` its output and `want` the recorded one [B,T,C]."""

    def __init__(self, path):
        tensors, metadata = read_safetensors(path)
        self.spec = spec = json.loads(metadata["spec"])
        tensors = {name: t.double() for name, t in tensors.items()}
        self.x, self.memory = tensors[spec["query_from"]], tensors[spec["key_from"]]
        self.want = tensors["out"]
        self.cotangent, self.x_gradient = tensors["cotangent"], tensors[f"grad.{spec['query_from']}"]
        self.bias = tensors[spec["bias"]["tensor"]].unsqueeze(0) if spec["bias"] else None
        sizes = {"memory_size": self.memory.shape[-1], "causal": spec["causal"]}
        self.module = MODULES[spec["mechanism"]](self.x.shape[-1], dtype=torch.float64, **sizes, **_options(spec))
        weights = _projections(spec, tensors, self.module) | _mixes(spec, tensors, self.module) | _norms(spec, tensors)
        absent = {name: torch.zeros_like(p) for name, p in self.module.named_parameters() if name.endswith("bias")}
        self.module.load_state_dict({**absent, **weights})

    def run(self, x):
        memory = None if self.spec["query_from"] == self.spec["key_from"] else self.memory
        return self.module(x, memory=memory, bias=self.bias)


def is_layer(path):
    """Whether a golden file is a layer."""
    _, metadata = read_safetensors(path)
    return json.loads(metadata["spec"])["program"] == "layer"
