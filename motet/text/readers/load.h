// A tokenizer from files, whichever kind they are.
#pragma once

#include <memory>
#include <string>

#include "motet/text/tokenizer.h"

namespace motet {

// tokenizer.json, a SentencePiece .model, a .tiktoken (the encodings gpt2, cl100k and o200k, told by their sizes),
// GPT-2's vocab.bpe or encoder.json with the other beside it, vocab.json with merges.txt, llama2.c's .bin, a
// .gguf; or a folder with one of them. Added tokens in files of their own are read beside tokenizer.model and
// vocab.json. Throws Error in one line that names the file.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path);

// "bytes", "chars" (of the text), or load_tokenizer of what names a file, a folder or a kind of file. Throws UsageError
// for another name.
std::unique_ptr<Tokenizer> choose_tokenizer(const std::string& name, std::string_view text);

// A .tiktoken: lines of a token in base64 and its rank. `pattern` empty: by the number of tokens.
std::unique_ptr<Tokenizer> read_tiktoken(std::string_view text, const std::string& where,
                                         const std::string& pattern = "");

}  // namespace motet
