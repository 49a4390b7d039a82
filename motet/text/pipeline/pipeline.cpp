#include "motet/text/pipeline/pipeline.h"

#include <algorithm>

#include "motet/core/error.h"
#include "motet/core/utf8.h"

namespace motet {
namespace {

constexpr size_t kLongestText = INT32_MAX;

void check_length(std::string_view text) {
  if (text.size() > kLongestText) fail("encode: a text of ", text.size(), " bytes, want at most ", kLongestText);
}

// valid_utf8 of a text of bearable length.
std::string_view repaired(std::string_view text, std::string& storage) {
  check_length(text);
  const std::string_view valid = valid_utf8(text, storage);
  check_length(valid);
  return valid;
}

// Of each byte of a text that valid_utf8 repaired: its place in what was given.
std::vector<TextSpan> repaired_spans(std::string_view given) {
  std::vector<TextSpan> out;
  for (size_t at = 0; at < given.size();) {
    const Utf8Step step = utf8_step(given.substr(at));
    const size_t size = step.kind == Utf8Step::Kind::character ? step.size : 3;
    out.insert(out.end(), size, {at, at + step.size});
    at += step.size;
  }
  return out;
}

// White space at the ends of a token, in characters; `names` are in GPT-2's stand-ins.
size_t spaces(std::string_view name, bool leading) {
  size_t count = 0;
  while (!name.empty()) {
    const size_t at = leading ? 0 : character_before(name, name.size());
    const CodePoint c = code_point(name, at);
    if (c.value != 0x120 && !is_white_space(c.value)) break;
    leading ? name.remove_prefix(c.size) : name.remove_suffix(c.size);
    ++count;
  }
  return count;
}

// Takes so many characters away from both ends of a span, as far as it has them.
void trim(std::string_view text, TextSpan& span, size_t leading, size_t trailing) {
  for (; leading > 0 && span.begin < span.end; --leading) span.begin += code_point(text, span.begin).size;
  size_t end = span.end;
  for (; trailing > 0 && end > 0; --trailing) end = character_before(text, end);
  if (trailing == 0) span.end = std::max(end, span.begin);
}

}  // namespace

// Where pieces end up as tokens: ids alone, or with their places.
class PipelineTokenizer::Output : public PieceSink {
 public:
  struct TooMany {};  // is thrown where the ids come to be more than `most`

  Output(const PipelineParts& parts, bool tracked)
      : tracked(tracked), encoder_(parts.model), last_byte_(parts.sentence_piece != nullptr), model_(parts.model) {}

  const bool tracked;
  std::vector<int32_t> ids;
  std::vector<TextToken> tokens;
  size_t most = SIZE_MAX, longest_token = SIZE_MAX;

  void add(int32_t id, TextSpan span) {
    if (tracked) return tokens.push_back({id, span});
    ids.push_back(id);
    check_count(0);
  }

  void piece(const TextPiece& piece) override {
    if (!tracked) {
      if (ids.size() + piece.text.size() / longest_token > most)
        check_count(model_.known_bytes(piece.text) / longest_token);
      encoder_.encode(piece.text, ids);
      return check_count(0);
    }
    size_t at = 0;
    const auto& found = encoder_.tokens(piece.text);
    for (const BpeToken& token : found) {
      const TextSpan span{piece.origin[at].begin, piece.origin[at + token.size - 1].end};
      at += token.size;
      const bool shared = last_byte_ && at < piece.text.size() && model_.byte_fallback && token.size == 1 &&
                          continues_character(piece.text[at]);
      tokens.push_back({token.id, shared ? TextSpan{span.begin, span.begin} : span});
    }
  }

 private:
  void check_count(size_t more) const {
    if (ids.size() + more > most) throw TooMany();
  }

  BpeEncoder encoder_;
  bool last_byte_;  // of the bytes of one character only the last has its place, as SentencePiece has it
  const BpeModel& model_;
};

PipelineTokenizer::PipelineTokenizer(PipelineParts parts, const std::string& where)
    : parts_(std::move(parts)), names_(parts_.model.pieces), longest_token_(parts_.model.longest_token()) {
  constexpr size_t kMostIds = 1 << 24;
  for (const AddedToken& token : parts_.added) {
    const auto id = static_cast<size_t>(token.id);
    if (token.id < 0 || id >= kMostIds)
      fail(where, ": the added token ", quote(token.content), " has the id ", token.id, ", want 0 to ", kMostIds - 1);
    if (id >= names_.size()) names_.resize(id + 1);
    names_[id] = token.content;
    if (token.normalized && !parts_.normalizers.empty())
      changed_names_[token.id] = normalized(parts_.normalizers, token.content);
  }
  special_.resize(names_.size()), added_.resize(names_.size());
  for (const AddedToken& token : parts_.added) {
    special_[static_cast<size_t>(token.id)] = token.special;
    added_[static_cast<size_t>(token.id)] = true;
  }
  for (const auto* side : {&parts_.post_processor.before, &parts_.post_processor.after}) {
    for (const int32_t id : *side) {
      if (id >= vocabulary_size())
        fail(where, ": the post-processor's id ", id, " is outside of the vocabulary of ", names_.size());
    }
  }
  raw_ = AddedTokenSearch(parts_.added, false, parts_.normalizers);
  // SentencePiece's are written as they stand in the normalised text.
  normalized_ = AddedTokenSearch(parts_.added, true, parts_.sentence_piece ? Normalizers() : parts_.normalizers);
}

void PipelineTokenizer::run(std::string_view text, const EncodeOptions& options, Output& out) const {
  for (const auto& part : raw_.split(text, options.parse_special)) {
    if (part.token) {
      out.add(part.token->id, {part.begin, part.end});
      continue;
    }
    AlignedText aligned(text.substr(part.begin, part.end - part.begin), out.tracked, part.begin);
    for (const auto& normalizer : parts_.normalizers) normalizer->apply(aligned);
    const TextPiece whole{aligned.text(), aligned.origin(), part.begin == 0};
    if (whole.text.empty()) continue;
    for (const auto& inner : normalized_.split(whole.text, options.parse_special)) {
      const TextPiece piece = whole.part(inner.begin, inner.end);
      if (!inner.token) {
        pre_tokenize(parts_.pre_tokenizers, piece, out);
      } else {
        out.add(inner.token->id,
                out.tracked ? TextSpan{piece.origin[0].begin, piece.origin[piece.text.size() - 1].end} : TextSpan{});
      }
    }
  }
}

std::vector<int32_t> PipelineTokenizer::encode(std::string_view text) const { return *encode_at_most(text, SIZE_MAX); }

std::optional<std::vector<int32_t>> PipelineTokenizer::encode_at_most(std::string_view text, size_t most) const {
  std::string storage;
  Output out(parts_, false);
  out.most = most, out.longest_token = longest_token_;
  try {
    run(repaired(text, storage), {}, out);
  } catch (const Output::TooMany&) {
    return {};
  }
  return std::move(out.ids);
}

std::vector<std::vector<int32_t>> PipelineTokenizer::encode_all(std::span<const std::string_view> texts, int threads,
                                                                const EncodeOptions& options) const {
  std::vector<std::vector<int32_t>> all(texts.size());
  parallel_texts(texts.size(), threads, [&] {
    auto out = std::make_shared<Output>(parts_, false);
    return [&, out](size_t i) {
      std::string storage;
      const PostProcessor& around = parts_.post_processor;
      out->ids.clear();
      if (options.add_special) out->ids = around.before;
      run(repaired(texts[i], storage), options, *out);
      if (options.add_special) out->ids.insert(out->ids.end(), around.after.begin(), around.after.end());
      all[i] = out->ids;
    };
  });
  return all;
}

std::vector<TextToken> PipelineTokenizer::tokens(std::string_view text, const EncodeOptions& options) const {
  std::string storage;
  const std::string_view valid = repaired(text, storage);
  Output out(parts_, true);
  run(valid, options, out);
  const PostProcessor& rules = parts_.post_processor;
  for (size_t i = 0; rules.trim_offsets && i < out.tokens.size(); ++i) {
    auto& [id, span] = out.tokens[i];
    const auto at = static_cast<size_t>(id);  // what an added token took beside its name is its own
    const std::string_view name = added_[at] ? valid.substr(span.begin, span.end - span.begin) : names_[at];
    size_t leading = spaces(name, true);
    if ((i == 0 || span.begin == 0) && rules.prefix_space && leading == 1) leading = 0;
    trim(valid, span, leading, spaces(name, false));
  }
  if (valid.data() != text.data() && !valid.empty()) {
    const auto spans = repaired_spans(text);
    for (auto& [id, span] : out.tokens) {
      const bool empty = span.begin == span.end;
      const size_t begin = span.begin < spans.size() ? spans[span.begin].begin : text.size();
      span = {begin, empty ? begin : spans[span.end - 1].end};
    }
  }
  if (!options.add_special) return std::move(out.tokens);
  std::vector<TextToken> all;
  for (const int32_t id : rules.before) all.push_back({id, {}});
  all.insert(all.end(), out.tokens.begin(), out.tokens.end());
  for (const int32_t id : rules.after) all.push_back({id, {}});
  return all;
}

std::vector<std::string> PipelineTokenizer::pieces_of(std::span<const int32_t> ids, bool skip_special) const {
  std::vector<std::string> out;
  out.reserve(ids.size());
  for (const int32_t id : ids) {
    check_token_id(id, vocabulary_size());
    const auto i = static_cast<size_t>(id);
    if ((skip_special && special_[i]) || names_[i].empty()) continue;
    const auto changed = changed_names_.find(id);
    out.push_back(changed == changed_names_.end() ? names_[i] : changed->second);
  }
  return out;
}

std::string PipelineTokenizer::decode(std::span<const int32_t> ids) const {
  if (!decodes_one_by_one()) return text(ids, false);
  std::string out, bytes;
  for (const std::string& piece : pieces_of(ids, false)) out += bytes_of_characters(piece, bytes) ? bytes : piece;
  return out;
}

std::string PipelineTokenizer::text(std::span<const int32_t> ids, bool skip_special) const {
  if (parts_.sentence_piece) {
    for (const int32_t id : ids) check_token_id(id, vocabulary_size());
    return sentence_piece_text(*parts_.sentence_piece, ids, names_);
  }
  std::vector<std::string> pieces = pieces_of(ids, skip_special);
  for (const auto& decoder : parts_.decoders.steps) decoder->apply(pieces);
  std::string out;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (i > 0 && parts_.decoders.spaces) out += ' ';
    out += pieces[i];
  }
  return out;
}

std::string PipelineTokenizer::piece(int32_t id) const {
  check_token_id(id, vocabulary_size());
  return names_[static_cast<size_t>(id)];
}

bool PipelineTokenizer::special(int32_t id) const {
  return id >= 0 && id < vocabulary_size() && special_[static_cast<size_t>(id)];
}

}  // namespace motet
