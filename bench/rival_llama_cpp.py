"""llama.cpp on the CPU: a rival of `motet bench infer`. Writes the GGUF itself. Protocol: README.md."""

import json
import os
import struct
import sys
import tempfile
from pathlib import Path

# libgomp's own default, which the passive policy of the other rivals would make 0: llama.cpp is tuned with it.
os.environ.setdefault("GOMP_SPINCOUNT", "300000")

from rival import serve  # noqa: E402

REQUIRED = ("folder", "prompt", "generate", "depth", "vocab", "threads", "weights", "check", "seed")
BLOCK = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


GGML_TYPE = {"bfloat16": "BF16", "float16": "F16", "int8": "Q8_0"}  # of matrices; else all are F32


def float32_tensors(path, numpy):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
    data = numpy.memmap(path, numpy.uint8, "r", 8 + size)
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            bits = data[begin:end]
            if entry["dtype"] == "F32":
                numbers = bits.view(numpy.float32)
            elif entry["dtype"] == "F16":
                numbers = bits.view(numpy.float16).astype(numpy.float32)
            elif entry["dtype"] == "BF16":
                numbers = (bits.view(numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)
            else:
                raise ValueError(f"{path}: {name} is {entry['dtype']}, want F32, F16 or BF16")
            yield name, numbers.reshape(entry["shape"])


def gguf_name(name):
    stem = name.removesuffix(".weight")
    if stem in TOP:
        return TOP[stem] + ".weight"
    layer, _, part = stem.removeprefix("model.layers.").partition(".")
    return f"blk.{layer}.{BLOCK[part]}.weight"


def write_gguf(folder, path, weights, words=False):
    """Matrices in a type of ours. With `words` each token has a text, as a server wants it: its number."""
    import gguf
    import numpy

    config = json.loads((Path(folder) / "config.json").read_text())
    if config["model_type"] != "llama":
        raise ValueError(f"{folder}: model_type {config['model_type']}, want llama")
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(config["hidden_size"] // heads)
    writer.add_rope_freq_base(config.get("rope_theta") or config.get("rope_parameters", {}).get("rope_theta", 10000.0))
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("llama" if words else "none")
    if words:
        count = config["vocab_size"]
        writer.add_token_list([f"{i} " for i in range(count)])
        writer.add_token_scores([0.0] * count)
        writer.add_token_types([gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * (count - 3))
    for name, tensor in float32_tensors(Path(folder) / "model.safetensors", numpy):
        for part, count in (("q_proj", heads), ("k_proj", kv_heads)):  # llama.cpp pairs neighbours
            if part in name:
                rows, columns = tensor.shape
                tensor = tensor.reshape(count, 2, rows // count // 2, columns).swapaxes(1, 2).reshape(rows, columns)
        if weights in GGML_TYPE and tensor.ndim == 2:
            kind = gguf.GGMLQuantizationType[GGML_TYPE[weights]]
            writer.add_tensor(gguf_name(name), gguf.quants.quantize(tensor, kind), raw_dtype=kind)
        else:
            writer.add_tensor(gguf_name(name), numpy.ascontiguousarray(tensor))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def build(request):
    import ctypes

    import llama_cpp as lib

    quiet = lib.llama_log_callback(lambda level, text, data: None)
    lib.llama_log_set(quiet, ctypes.c_void_p(0))
    lib.llama_backend_init()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.gguf")
        write_gguf(request["folder"], path, request["weights"])
        model_options = lib.llama_model_default_params()
        model_options.use_mmap = False
        model = lib.llama_model_load_from_file(path.encode(), model_options)
    if not model:
        raise RuntimeError("llama.cpp cannot load the model that was written for it")
    options = lib.llama_context_default_params()
    options.n_ctx = request["depth"] + max(request["prompt"], request["generate"]) + 256
    options.n_batch = options.n_ubatch = 512
    options.n_threads = options.n_threads_batch = request["threads"]
    options.type_k = options.type_v = lib.GGML_TYPE_F32  # as our cache
    context = lib.llama_init_from_model(model, options)
    memory = lib.llama_get_memory(context)
    width = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))

    def decode(ids):
        array = (lib.llama_token * len(ids))(*ids)
        if lib.llama_decode(context, lib.llama_batch_get_one(array, len(ids))):
            raise RuntimeError("llama_decode failed")
        return lib.llama_get_logits_ith(context, -1)

    def logits_of(ids):
        lib.llama_memory_clear(memory, True)
        return [*decode(ids)[:width]]

    held = [0]

    def prepare(depth):
        if held[0] < depth or depth == 0:
            lib.llama_memory_clear(memory, True)
            for begin in range(0, depth, 512):
                decode([(begin + i) % width for i in range(min(512, depth - begin))])
        lib.llama_memory_seq_rm(memory, 0, depth, -1)
        held[0] = depth

    return {"logits": logits_of(request["check"]), "version": lib.__version__}, (prepare, decode)


if __name__ == "__main__":
    from rival_infer import cases

    sys.exit(serve(REQUIRED, {}, cases(build)))
