// SPDX-License-Identifier: Apache-2.0
#include "dsl/toml/merge.h"

#include <map>
#include <unordered_map>

#include <fmt/format.h>

namespace paratope {
namespace {

struct Leaf {
  const std::string *layer;
  const Value *value;
};

void collect(const Value &table, const std::string &prefix, const std::string &layer,
             std::map<std::string, Leaf> &leaves, const char *code, Diagnostics &diagnostics) {
  for (const Entry &entry : table.entries) {
    const std::string path = prefix.empty() ? entry.key : prefix + "." + entry.key;
    if (entry.value.kind == Value::Kind::table) {
      collect(entry.value, path, layer, leaves, code, diagnostics);
      continue;
    }
    auto [it, fresh] = leaves.try_emplace(path, Leaf{&layer, &entry.value});
    if (fresh || same_value(*it->second.value, entry.value))
      continue;
    Diagnostic &error = diagnostics.error(
        code, entry.value.where,
        fmt::format("{} and {} set {} to different values: got {} and {}", *it->second.layer, layer, path,
                    describe_value(*it->second.value), describe_value(entry.value)));
    error.notes.push_back({fmt::format("{} sets it here", *it->second.layer), it->second.value->where});
    error.fix = "leave one of them out";
  }
}

} // namespace

void lay_over(Value &base, const Value &over) {
  std::unordered_map<std::string, size_t> index; // of base's own entries; those of `over` are unique
  for (size_t i = 0; i < base.entries.size(); ++i)
    index.emplace(base.entries[i].key, i);
  for (const Entry &entry : over.entries) {
    auto under = index.find(entry.key);
    if (under == index.end()) {
      base.entries.push_back(entry);
      continue;
    }
    Entry &target = base.entries[under->second];
    if (target.value.kind == Value::Kind::table && entry.value.kind == Value::Kind::table)
      lay_over(target.value, entry.value);
    else
      target = entry;
  }
}

void check_conflicts(const std::vector<Layer> &layers, const char *code, Diagnostics &diagnostics) {
  std::map<std::string, Leaf> leaves;
  for (const Layer &layer : layers)
    collect(*layer.document, "", layer.name, leaves, code, diagnostics);
}

} // namespace paratope
