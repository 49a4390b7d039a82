#include "motet/core/error.h"
#include "motet/mechanisms/coca/coca.h"
#include "motet/mechanisms/dcmha/dcmha.h"
#include "motet/mechanisms/differential/differential.h"
#include "motet/mechanisms/key_size/key_size.h"
#include "motet/mechanisms/mechanism.h"
#include "motet/mechanisms/softmax/softmax.h"
#include "motet/mechanisms/talking_heads/talking_heads.h"

namespace motet {

const std::vector<MechanismEntry>& mechanism_registry() {
  static const std::vector<MechanismEntry> all{
      softmax_entry(), key_size_entry(), talking_heads_entry(), dcmha_entry(), differential_entry(), coca_entry(),
  };
  return all;
}

std::vector<std::string> mechanism_names() {
  std::vector<std::string> names;
  for (const MechanismEntry& entry : mechanism_registry()) names.push_back(entry.name);
  return names;
}

const MechanismEntry& find_mechanism(const std::string& name) {
  for (const MechanismEntry& entry : mechanism_registry())
    if (entry.name == name) return entry;
  throw UsageError(unknown_name("mechanism", name, mechanism_names()));
}

OptionTable attention_options(const MechanismEntry& entry) {
  OptionTable table{{.name = "mechanism",
                     .type = OptionType::string,
                     .default_value = "softmax",
                     .choices = mechanism_names(),
                     .sentence = "the attention mechanism"}};
  for (const OptionTable* part : {&common_attention_options().table(), &entry.options})
    table.insert(table.end(), part->begin(), part->end());
  return table;
}

nlohmann::json resolve_attention(const nlohmann::json& given, const std::string& section) {
  std::string name = "softmax";
  if (given.is_object() && given.contains("mechanism")) {
    if (!given["mechanism"].is_string())
      fail_usage(section, ".mechanism: want a name, one of ", joined(mechanism_names()));
    name = given["mechanism"].get<std::string>();
  }
  return resolve(attention_options(find_mechanism(name)), given, section);
}

namespace {

// What a layer without the model's mechanism has: the options that plain attention shares, and no window.
nlohmann::json plain_attention(const nlohmann::json& resolved) {
  nlohmann::json plain{{"mechanism", "softmax"}};
  for (const Option& option : common_attention_options().table()) plain[option.name] = resolved.at(option.name);
  plain["window"] = 0;
  reset_idle(common_attention_options().table(), plain);
  return resolve_attention(plain, "model.attention");
}

}  // namespace

std::shared_ptr<Mechanism> make_mechanism(const Setting& setting) {
  if (setting.options.common.layers == MechanismLayers::last && setting.layer + 1 < setting.num_layers) {
    Setting plain = setting;
    plain.options = plain_attention(setting.options.all);
    return find_mechanism("softmax").make(plain);
  }
  return find_mechanism(setting.options.all.at("mechanism").get<std::string>()).make(setting);
}

}  // namespace motet
