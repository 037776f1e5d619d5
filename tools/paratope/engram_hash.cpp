// SPDX-License-Identifier: Apache-2.0
//
// `engram-hash`: which table rows a sequence of tokens looks up, and which rank of the enp group owns each.
#include "kernels/engram/op.h"

#include <limits>
#include <numeric>

#include "fmt/format.h"
#include "fmt/ranges.h"

#include "kernels/error.h"
#include "runtime/weights/state.h"
#include "tools/paratope/numbers.h"
#include "tools/paratope/session.h"
#include "tools/paratope/table.h"

namespace paratope {

namespace {

struct Arguments {
  SourceOptions source;
  std::string ids;
  std::optional<int64_t> layer;
};

// What one layer looks up. rows [ids, (ngram−1)·heads], in the order of kernels/engram.
struct Lookup {
  EngramHash hash;
  std::vector<int64_t> rows;
  int64_t padded_rows = 0, rows_per_part = 0;

  int64_t owner(int64_t row) const { return row / rows_per_part; }
  int64_t width() const { return static_cast<int64_t>(hash.primes.size()); }
};

constexpr int64_t most_rows = int64_t{1} << 22;
constexpr int64_t shown_positions = 4, shown_heads = 64;

std::vector<EngramHash> hashes_of(const ModelSpec &model) {
  const EngramModel &engram = model.engram;
  return engram_hashes(*engram.layers, *engram.ngram, *engram.heads, *engram.vocab_per_head,
                       engram.multipliers->empty()
                           ? drawn_multipliers(*model.seed, static_cast<int64_t>(engram.layers->size()),
                                               *engram.ngram, *model.vocab)
                           : *engram.multipliers);
}

// The ids as one sequence from its start.
Lookup look_up(EngramHash hash, const std::vector<int32_t> &ids, int64_t parts) {
  Lookup lookup;
  lookup.hash = std::move(hash);
  lookup.rows.resize(ids.size() * lookup.hash.primes.size());
  std::vector<int32_t> positions(ids.size()), sequences(ids.size(), 0);
  std::iota(positions.begin(), positions.end(), 0);
  TokenHistory history(1, static_cast<int64_t>(ids.size()) + lookup.hash.ngram);
  engram_hash(lookup.hash, ids, positions, history, lookup.rows, sequences);
  lookup.padded_rows = engram_padded_rows(lookup.hash.rows, parts);
  lookup.rows_per_part = lookup.padded_rows / parts;
  return lookup;
}

nlohmann::ordered_json as_json(const Lookup &lookup, int64_t parts) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array(), owners = rows;
  for (size_t first = 0; first < lookup.rows.size(); first += static_cast<size_t>(lookup.width())) {
    std::vector<int64_t> of_position(lookup.rows.begin() + static_cast<std::ptrdiff_t>(first),
                                     lookup.rows.begin() + static_cast<std::ptrdiff_t>(first) +
                                         lookup.width());
    rows.push_back(of_position);
    for (int64_t &row : of_position)
      row = lookup.owner(row);
    owners.push_back(of_position);
  }
  return {{"layer", lookup.hash.layer},
          {"rows", rows},
          {"owners", owners},
          {"primes", lookup.hash.primes},
          {"offsets", lookup.hash.offsets},
          {"multipliers", lookup.hash.multipliers},
          {"table_rows", lookup.hash.rows},
          {"padded_rows", lookup.padded_rows},
          {"rows_per_part", lookup.rows_per_part},
          {"enp", parts}};
}

std::string as_text(const Lookup &lookup, const std::vector<int32_t> &ids, int64_t parts) {
  const auto num_ids = static_cast<int64_t>(ids.size());
  const int64_t shown = std::min(num_ids, shown_positions), lines = std::min(lookup.width(), shown_heads);
  std::string text = fmt::format("layer {}: {} rows, padded to {} = enp {} · {} rows a part\n"
                                 "  multipliers {}\n",
                                 lookup.hash.layer, lookup.hash.rows, lookup.padded_rows, parts,
                                 lookup.rows_per_part, fmt::join(lookup.hash.multipliers, " "));
  std::vector<std::string> headings{"n", "head", "prime", "offset"};
  for (int64_t t = 0; t < shown; ++t)
    headings.push_back(fmt::format("id {}", ids[static_cast<size_t>(t)]));
  Table table(headings);
  for (int64_t i = 0; i < lookup.width() && i < lines; ++i) {
    const auto at = static_cast<size_t>(i);
    std::vector<std::string> cells{
        fmt::format("{}", i / lookup.hash.heads + 2), fmt::format("{}", i % lookup.hash.heads),
        fmt::format("{}", lookup.hash.primes[at]), fmt::format("{}", lookup.hash.offsets[at])};
    for (int64_t t = 0; t < shown; ++t) {
      const int64_t row = lookup.rows[static_cast<size_t>(t * lookup.width() + i)];
      cells.push_back(fmt::format("{} @{}", row, lookup.owner(row)));
    }
    table.row(cells);
  }
  text += table.text();
  if (lookup.width() > lines)
    text += fmt::format("  … {} more heads (--json lists all)\n", lookup.width() - lines);
  if (num_ids > shown)
    text += fmt::format("  … {} more ids (--json lists all)\n", num_ids - shown);
  return text;
}

// Ids as the hash takes them; on one outside the vocabulary nothing, and `message` names it.
std::optional<std::vector<int32_t>> checked_ids(const std::string &text, int64_t vocab,
                                                std::string &message) {
  auto numbers = parse_numbers(text, "--ids", message);
  if (!numbers)
    return std::nullopt;
  const int64_t end = std::min(vocab, int64_t{std::numeric_limits<int32_t>::max()});
  std::vector<int32_t> ids;
  for (int64_t id : *numbers) {
    if (id < 0 || id >= end) {
      message = fmt::format("id {} of --ids is outside the vocabulary: expected 0 to {}, got {}", ids.size(),
                            end - 1, id);
      return std::nullopt;
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

int look_up_all(const Arguments &arguments) {
  const bool json = arguments.source.json;
  std::unique_ptr<Loaded> loaded = load(arguments.source, "group");
  if (!loaded)
    return exit_wrong_input;
  const ModelSpec &model = loaded->spec.model;
  const std::vector<int64_t> &layers = *model.engram.layers;
  if (layers.empty())
    return refuse(json, fmt::format("model '{}' has no Engram", *model.name),
                  "name a model with an [engram] section, such as deepseek-v4.1-flash");
  if (arguments.layer && std::find(layers.begin(), layers.end(), *arguments.layer) == layers.end())
    return refuse(json, fmt::format("layer has no Engram: expected {}, got {}", fmt::join(layers, " | "),
                                    *arguments.layer));
  std::string message;
  auto ids = checked_ids(arguments.ids, *model.vocab, message);
  if (!ids)
    return refuse(json, message);
  // Known before the primes are, which many heads make a long walk.
  int64_t values = (*model.engram.ngram - 1) * *model.engram.heads;
  if (__builtin_mul_overflow(values, static_cast<int64_t>(arguments.layer ? 1 : layers.size()), &values) ||
      __builtin_mul_overflow(values, static_cast<int64_t>(ids->size()), &values) || values > most_rows)
    return refuse(json, fmt::format("got {} ids of {} heads a layer, expected at most {} rows in all",
                                    ids->size(), (*model.engram.ngram - 1) * *model.engram.heads, most_rows));
  const int64_t parts = loaded->mesh.size_of("enp");
  std::vector<Lookup> lookups;
  try {
    std::vector<EngramHash> hashes = hashes_of(model);
    std::erase_if(hashes,
                  [&](const EngramHash &h) { return arguments.layer && h.layer != *arguments.layer; });
    for (EngramHash &hash : hashes)
      lookups.push_back(look_up(std::move(hash), *ids, parts));
  } catch (const KernelError &error) {
    return refuse(json, error.what());
  }
  if (json) {
    if (lookups.size() == 1) {
      print(as_json(lookups[0], parts));
      return exit_good;
    }
    nlohmann::ordered_json documents = nlohmann::ordered_json::array();
    for (const Lookup &lookup : lookups)
      documents.push_back(as_json(lookup, parts));
    print(nlohmann::ordered_json{{"layers", documents}});
    return exit_good;
  }
  std::string text = "under each id: table row @ the rank of its enp group that owns it\n";
  for (const Lookup &lookup : lookups)
    text += as_text(lookup, *ids, parts);
  print(text);
  return exit_good;
}

} // namespace

void register_engram_hash(CLI::App &app, int &exit_code) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App *command =
      app.add_subcommand("engram-hash", "the Engram table rows that token ids look up, and who owns them");
  add_source(*command, arguments->source);
  command->add_option("--ids", arguments->ids, "token ids of one sequence, from its start, as 1,2,3")
      ->required();
  command->add_option("--layer", arguments->layer, "one Engram layer; all of them when left out");
  command->footer(
      "Example:\n  paratope engram-hash topologies/deepinfer/decode-ep64.toml --ids 1,2,3 --layer 1");
  command->callback([arguments, &exit_code] { exit_code = look_up_all(*arguments); });
}

} // namespace paratope
