// SPDX-License-Identifier: Apache-2.0
#include "shrink.h"

#include <algorithm>
#include <chrono>

namespace paratope::random {

namespace {

// Smaller values of the same kind, the smallest first.
std::vector<Item> smaller(const Item &item) {
  std::vector<Item> found;
  if (item.kind == Item::Kind::integer) {
    for (int64_t value : {int64_t{1}, int64_t{0}, item.integer / 2, item.integer - 1})
      if (value < item.integer && value >= 0)
        found.push_back(Item::of(value));
  } else if (item.kind == Item::Kind::list) {
    for (size_t i = 0; i < item.items.size(); ++i) {
      Item shorter = item;
      shorter.items.erase(shorter.items.begin() + static_cast<std::ptrdiff_t>(i));
      found.push_back(std::move(shorter));
    }
    for (size_t i = 0; i < item.items.size(); ++i)
      for (Item &lower : smaller(item.items[i])) {
        Item changed = item;
        changed.items[i] = std::move(lower);
        found.push_back(std::move(changed));
      }
  }
  return found;
}

// One change each. Keys that a near-legal case is about stay where they are.
std::vector<Document> candidates(const Case &failing) {
  std::vector<Document> found;
  auto concerned = [&](const std::string &section, const std::string &key) {
    return std::any_of(failing.keys.begin(), failing.keys.end(), [&](const KeyName &name) {
      return name.first == section && (key.empty() || name.second == key);
    });
  };
  auto changed = [&](auto change) {
    Document document = failing.document;
    change(document);
    found.push_back(std::move(document));
  };
  for (const Table &table : failing.document.tables)
    if (!table.name.empty() && !concerned(table.name, ""))
      changed([&](Document &document) { document.erase(table.name); });
  for (const Table &table : failing.document.tables)
    for (const Entry &entry : table.entries)
      if (!concerned(table.name, entry.key) && !(table.name.empty() && entry.key == "topology"))
        changed([&](Document &document) { document.erase(table.name, entry.key); });
  for (const Table &table : failing.document.tables)
    for (const Entry &entry : table.entries)
      if (!concerned(table.name, entry.key) && entry.key != "topology")
        for (Item &item : smaller(entry.value))
          changed([&](Document &document) { document.set(table.name, entry.key, std::move(item)); });
  return found;
}

} // namespace

Shrunk shrink(const Case &failing, const Outcome &outcome, double seconds,
              const std::function<Outcome(const Case &)> &judge) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point start = Clock::now();
  auto in_time = [&] { return std::chrono::duration<double>(Clock::now() - start).count() < seconds; };
  Shrunk result{failing, outcome, 0};
  for (bool moved = true; moved && in_time();) {
    moved = false;
    for (size_t i = 0; in_time();) {
      std::vector<Document> all = candidates(result.smallest);
      if (i >= all.size())
        break;
      Case candidate = result.smallest;
      candidate.document = std::move(all[i]);
      Outcome judged = judge(candidate);
      ++result.tried;
      if (judged.kind != outcome.kind) {
        ++i;
        continue;
      }
      result.smallest = std::move(candidate);
      result.outcome = std::move(judged);
      moved = true;
    }
  }
  if (result.smallest.steps > 1) {
    Case candidate = result.smallest;
    candidate.steps = 1;
    if (Outcome judged = judge(candidate); judged.kind == outcome.kind) {
      result.smallest = std::move(candidate);
      result.outcome = std::move(judged);
    }
  }
  return result;
}

} // namespace paratope::random
