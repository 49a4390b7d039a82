#!/usr/bin/env python3
"""Writes the seeds of fuzz/corpus: small good files and crafted bad ones. Run from the repository's root."""
import json
import pathlib
import struct

ROOT = pathlib.Path("fuzz/corpus")


def put(folder, name, data):
    path = ROOT / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def safetensors(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def write_safetensors():
    good = {"__metadata__": {"format": "pt"}, "a": entry("F32", [2, 2], 0, 16), "b": entry("BF16", [3], 16, 22)}
    put("safetensors", "good", safetensors(good, bytes(range(22))))
    put("safetensors", "empty", safetensors({}))
    put("safetensors", "overlap", safetensors({"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 2, 6)}, bytes(6)))
    put("safetensors", "hole", safetensors({"a": entry("U8", [4], 2, 6)}, bytes(6)))
    put("safetensors", "wraps", safetensors({"a": entry("F64", [2**61, 8, 2], 0, 0)}))
    put("safetensors", "length", safetensors({}, length=2**63))
    put("safetensors", "deep", safetensors(b'{"a":' + b"[" * 200 + b"]" * 200 + b"}"))
    put("safetensors", "twice", safetensors(b'{"a":{},"a":{}}'))


def word(text):
    return struct.pack("<Q", len(text)) + text


def gguf(metadata, tensors, data=b"", version=3):
    body = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata)) + b"".join(metadata + tensors)
    return body + bytes(-len(body) % 32) + data


def tensor(name, axes, code, offset):
    return word(name) + struct.pack(f"<I{len(axes)}QIQ", len(axes), *axes, code, offset)


def write_gguf():
    values = {0: b"\1", 1: b"\xff", 2: b"\1\0", 3: b"\1\0", 4: bytes(4), 5: bytes(4), 6: struct.pack("<f", 0.5), 7: b"\1",
              8: word(b"llama"), 10: bytes(8), 11: bytes(8), 12: struct.pack("<d", 0.5)}
    metadata = [word(b"k%d" % code) + struct.pack("<I", code) + value for code, value in values.items()]
    metadata += [word(b"a%d" % code) + struct.pack("<IIQ", 9, code, 2) + 2 * value for code, value in values.items()]
    blocks = {0: (4, 16), 1: (4, 8), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 12: (256, 144),
              13: (256, 176), 14: (256, 210), 30: (4, 8)}
    tensors, data = [], b""
    for code, (numbers, size) in blocks.items():
        tensors.append(tensor(b"t%d" % code, [numbers], code, len(data)))
        data += bytes(i % 251 for i in range(size)) + bytes(-size % 32)
    put("gguf", "good", gguf(metadata, tensors, data))
    put("gguf", "version2", gguf([], [tensor(b"a", [2, 3], 0, 0)], bytes(24), 2))
    put("gguf", "wraps", gguf([], [tensor(b"a", [2**62, 8], 0, 0)], bytes(32)))
    put("gguf", "overlap", gguf([], [tensor(b"a", [16], 0, 0), tensor(b"b", [16], 0, 32)], bytes(96)))
    put("gguf", "count", b"GGUF" + struct.pack("<IQQ", 3, 2**63, 2**63))
    put("gguf", "array", gguf([word(b"k") + struct.pack("<IIQ", 9, 12, 2**61)], []))
    put("gguf", "alignment", gguf([word(b"general.alignment") + struct.pack("<II", 4, 0)], []))


def write_llama2c():
    def file(*header):
        dim, hidden, layers, heads, kv_heads, vocabulary, context = header
        kv = dim // heads * kv_heads
        numbers = abs(vocabulary) * dim * (2 if vocabulary < 0 else 1) + dim + context * (dim // heads // 2) * 2
        numbers += layers * (2 * dim + 2 * dim * dim + 2 * kv * dim + 3 * dim * hidden)
        return struct.pack("<7i", *header) + bytes(4 * numbers)

    put("llama2c", "good", file(4, 3, 2, 2, 1, 5, 2))
    put("llama2c", "own_output", file(2, 2, 1, 1, 1, -2, 1))
    put("llama2c", "large", struct.pack("<7i", *[2**24] * 2, 1024, 1024, 1024, 2**24, 2**24))
    put("llama2c", "magic", struct.pack("<7i", 0x616B3432, 1, 0, 0, 0, 0, 0))


def write_json():
    config = {"model_type": "llama", "hidden_size": 48, "rope_parameters": {"rope_type": "llama3", "factor": 8.0},
              "rope_scaling": None, "architectures": ["LlamaForCausalLM"], "rms_norm_eps": 1e-05, "name": "\u00e4\U0001f600"}
    put("json", "config", json.dumps(config, indent=2).encode())
    put("json", "deep", b'[{"a":' * 40 + b"1" + b"}]" * 40)
    put("json", "number", b'{"a": 1e999}')
    put("json", "surrogate", b'"\\ud800"')
    put("json", "twice", b'{"a":1,"a":2}')


def write_token_shards():
    """Ours are made by `motet data prepare` and kept as they are: good, continued (begins inside a document)."""
    def llmc(magic, version, tokens, code, count=None):
        numbers = [magic, version, len(tokens) if count is None else count]
        return struct.pack("<256i", *numbers, *[0] * 253) + struct.pack(f"<{len(tokens)}{code}", *tokens)

    put("token_shard", "llmc", llmc(20240520, 1, [50256, 1, 2, 50256, 3], "H"))
    put("token_shard", "llmc_llama3", llmc(20240801, 7, [128000, 1, 128000], "I"))
    put("token_shard", "llmc_count", llmc(20240520, 1, [1, 2], "H", 2**31 - 1))


def write_manifests():
    def shard(file, tokens, documents):
        return {"file": file, "tokens": tokens, "documents": documents, "hash": "0123456789abcdef"}

    def split(*shards):
        return {"tokens": sum(s["tokens"] for s in shards), "documents": sum(s["documents"] for s in shards),
                "text_bytes": 12, "shards": list(shards)}

    good = {"format": "motet tokens", "version": 1, "document_token": 0,
            "tokenizer": {"file": "tokenizer.json", "hash": "fedcba9876543210", "vocabulary": 257},
            "inputs": [{"path": "a.txt", "bytes": 12, "hash": "0000000000000000"}],
            "splits": {"train": split(shard("a", 3, 1), shard("b", 2, 0)), "validation": split()}}
    put("data_manifest", "good", json.dumps(good).encode())
    wraps = split(shard("a", 2**63, 0), shard("b", 2**63, 0)) | {"tokens": 0}
    put("data_manifest", "wraps", json.dumps(good | {"splits": {"train": wraps, "validation": split()}}).encode())
    put("data_manifest", "path", json.dumps(good).replace("tokenizer.json", "../x").encode())


def write_http():
    """The first byte is the size of the pieces in which the second parser gets the rest."""
    host = b"Host: localhost:8000\r\n"
    chunked = b"POST /v1/completions HTTP/1.1\r\n" + host + b"Transfer-Encoding: chunked\r\n"
    get = b"GET /%7Ea?q=%20 HTTP/1.1\r\n" + host + b"Accept: a\r\naccept: b\r\n\r\n"
    post = b"POST /a HTTP/1.1\r\n" + host + b"Expect: 100-continue\r\nContent-Length: 5\r\nConnection: a, close\r\n\r\n{\"a\"}"
    put("http_request", "pipelined", b"\7\r\n" + get + post + get + b"OPTIONS * HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    put("http_request", "absolute", b"\1GET http://localhost:8000/a?b HTTP/1.1\r\n" + host + b"\r\n")
    put("http_request", "chunks", b"\3" + chunked + b'\r\n4;a="b\\"c"\r\nabcd\r\nA ; x\r\n0123456789\r\n00\r\nT: 1\r\n\r\n' + get)
    put("http_request", "chunk_wraps", b"\4" + chunked + b"\r\nfffffffffffffffff\r\n")
    put("http_request", "both", b"\5" + chunked + b"Content-Length: 4\r\n\r\n0\r\n\r\n")
    put("http_request", "twice", b"\6POST / HTTP/1.1\r\n" + host + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\na")
    put("http_request", "folded", b"\2GET / HTTP/1.1\r\n" + host + b"A: b\r\n c\r\n\r\n")
    put("http_request", "escape", b"\1GET /%00%zz HTTP/1.1\r\n" + host + b"\r\n")


def write_completions():
    """The first byte is t for a completion, c for a chat."""
    numbers = {"n": 2, "seed": -5, "temperature": 0.5, "top_p": 0.9, "top_k": -1, "min_p": 0.1, "typical_p": 0.5, "max_tokens": 0,
               "repetition_penalty": 1.1, "frequency_penalty": -2, "presence_penalty": 2, "logprobs": 20, "echo": True,
               "stream": True, "stream_options": {"include_usage": True}, "stop": ["a", ""], "logit_bias": {"299": -100}}
    put("completion_request", "text", b"t" + json.dumps({"prompt": "a", "model": "m"} | numbers).encode())
    put("completion_request", "ids", b"t" + json.dumps({"prompt": [[1, 299], [0]], "best_of": 1, "x": None}).encode())
    put("completion_request", "large", b't{"prompt": [1e300, 9223372036854775808], "n": 1e6, "max_tokens": -1}')
    chat = {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}], "logprobs": True, "top_logprobs": 3,
            "max_completion_tokens": 7, "tools": [], "response_format": {"type": "text"}}
    put("completion_request", "chat", b"c" + json.dumps(chat).encode())


if __name__ == "__main__":
    write_safetensors()
    write_gguf()
    write_llama2c()
    write_json()
    write_token_shards()
    write_manifests()
    write_http()
    write_completions()
