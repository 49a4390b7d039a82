// Jinja decides when it reads a template where a name is looked up: one that a scope sets before it reads it belongs to
// that scope from its begin, and is undefined until then, whatever variable has its name. Without macros the order of
// the text hides that; a macro, or a loop, may read a name before the scope around it sets it.
#include <set>

#include "motet/text/chat/nodes.h"

namespace motet {
namespace {

using Node = TemplateNode;
using Kind = TemplateNode::Kind;

class NamesOfScope {
 public:
  // parameters: names that have a value at the begin.
  NamesOfScope(const NamesOfScope* around, const std::vector<std::string>& parameters)
      : around_(around), known_(parameters.begin(), parameters.end()) {}

  void loads(const Node& expression) {
    if (expression.kind == Kind::name) known_.insert(expression.text);
    for (const auto& part : expression.parts) {
      if (part) loads(*part);
    }
  }

  void finish(Node& block) {
    reads(block, true);
    block.names.assign(unset_.begin(), unset_.end());
    descends(block);
  }

 private:
  bool knows(const std::string& name) const { return known_.contains(name) || (around_ && around_->knows(name)); }

  // always: not in a branch of an `if`.
  void stores(const std::string& name, bool always) {
    if (always && !knows(name)) unset_.insert(name);
    known_.insert(name);
  }

  void reads(const Node& node, bool always) {
    if (node.kind == Kind::block) {
      for (const auto& part : node.parts) reads(*part, always);
    } else if (node.kind == Kind::condition) {
      loads(*node.parts[0]);
      for (size_t i = 1; i < node.parts.size(); ++i) reads(*node.parts[i], false);
    } else if (node.kind == Kind::print || node.kind == Kind::loop) {
      loads(*node.parts[0]);
    } else if (node.kind == Kind::macro) {
      stores(node.text, always);
    } else if (node.kind == Kind::set) {
      if (node.parts.size() == 1) loads(*node.parts[0]);
      if (!node.text.empty()) known_.insert(node.names[0]);
      for (const std::string& name : node.names) stores(name, always);
    }
  }

  void descends(Node& node) {
    if (node.kind == Kind::block || node.kind == Kind::condition) {
      for (const auto& part : node.parts) {
        if (part->kind == Kind::scope)
          NamesOfScope(this, {}).finish(*part);
        else
          descends(*part);
      }
    } else if (node.kind == Kind::loop) {
      std::vector<std::string> names = node.names;
      if (node.counts) names.emplace_back("loop");
      NamesOfScope(this, names).finish(*node.parts[1]);
      if (node.parts[3]) NamesOfScope(this, {}).finish(*node.parts[3]);
    } else if (node.kind == Kind::macro) {
      NamesOfScope inside(this, node.names);
      for (size_t i = 1; i < node.parts.size(); ++i) {
        if (node.parts[i]) inside.loads(*node.parts[i]);
      }
      inside.finish(*node.parts[0]);
    } else if (node.kind == Kind::set && node.parts.size() > 1) {
      NamesOfScope(this, {}).finish(*node.parts[1]);
    }
  }

  const NamesOfScope* around_;
  std::set<std::string> known_, unset_;
};

}  // namespace

void find_unset_names(TemplateNode& root) { NamesOfScope(nullptr, {}).finish(root); }

}  // namespace motet
