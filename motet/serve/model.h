// What the server asks of a model; motet/commands/serve.cpp answers with a real one, the tests with a counted one.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace motet {

/// What a model keeps of one sequence.
class ServedSequence {
 public:
  virtual ~ServedSequence() = default;
  virtual int64_t size() const = 0;   // tokens
  virtual int64_t bytes() const = 0;  // of memory, now
};

/// The next tokens of a sequence, and whose logits of the next token are wanted.
struct ServedPiece {
  enum class Logits { none, last, all };
  ServedSequence* sequence;
  std::span<const int32_t> ids;
  Logits logits = Logits::none;
  bool prompt = false;  // not drawn
};

class ServedModel {
 public:
  virtual ~ServedModel() = default;
  virtual int64_t context() const = 0;
  /// What a sequence of so many tokens takes at most.
  virtual int64_t cache_bytes(int64_t tokens) const = 0;
  /// A new sequence of at most `planned` tokens.
  virtual std::unique_ptr<ServedSequence> begin(int64_t planned) = 0;
  /// Whether the first tokens of a sequence are held without those behind them.
  virtual bool can_end_at(const ServedSequence&, int64_t tokens) const = 0;
  /// Another that begins with the first tokens of this one; null where it cannot end there, or where they would be
  /// other numbers in a sequence of `planned` tokens.
  virtual std::unique_ptr<ServedSequence> copy(const ServedSequence&, int64_t tokens, int64_t planned) = 0;
  /// Logits [rows,V] of the tokens of a piece from its `first` on, some rows at a time.
  using OnLogits = std::function<void(size_t piece, int64_t first, std::span<const float> logits, int64_t rows)>;
  /// Pieces of one sequence stand in their order.
  virtual void step(std::span<const ServedPiece>, const OnLogits&) = 0;
  /// Where the first number that is not finite appears, for tokens whose logits are not: "layer 3".
  virtual std::string first_non_finite(std::span<const int32_t> ids) = 0;
  /// Nothing is to be computed for now: what the thread keeps for that may go.
  virtual void rest() {}
};

}  // namespace motet
