// SPDX-License-Identifier: Apache-2.0
//
// `cp-index`: how context parallelism cuts a batch of prompts, rank by rank.
#include "kernels/context/zigzag.h"

#include "fmt/format.h"
#include "fmt/ranges.h"

#include "kernels/error.h"
#include "tools/paratope/numbers.h"
#include "tools/paratope/session.h"
#include "tools/paratope/table.h"

namespace paratope {

namespace {

struct Arguments {
  int64_t cp = 1, ratio = 1;
  std::string queries;
  std::optional<std::string> keys;
  bool json = false;
};

struct RankTables {
  std::vector<int64_t> mirror_index;
  KeyRanges keys;
};

struct Tables {
  std::vector<int64_t> lengths, key_lengths;
  int64_t mirror_len = 0;
  std::vector<RankTables> ranks;
  std::vector<int64_t> reverse_index;
};

constexpr int64_t most_rows = int64_t{1} << 22; // of all ranks: tens of megabytes of text
constexpr int64_t shown_ranks = 8, shown_rows = 16, shown_sequences = 4, shown_place = 4;

// Tables are written out whole, so those too long for anyone are refused before they are made.
bool fit_a_page(int64_t rows_a_rank, size_t sequences, int64_t cp) {
  int64_t work = 0;
  return !__builtin_add_overflow(rows_a_rank, static_cast<int64_t>(sequences) + 1, &work) &&
         !__builtin_mul_overflow(work, cp, &work) && work <= most_rows;
}

nlohmann::ordered_json as_json(const Tables &tables) {
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const RankTables &rank : tables.ranks)
    ranks.push_back({{"mirror_index", rank.mirror_index}, {"ks", rank.keys.begin}, {"ke", rank.keys.end}});
  return {{"ranks", ranks}, {"reverse_index", tables.reverse_index}, {"mirror_len", tables.mirror_len}};
}

// The places of one block: "0 1 2", "9 · ·", "0…1023", "·×512".
std::string block_text(int64_t start, int64_t length, int64_t ps, int64_t block) {
  const int64_t first = std::min(ps * block, length), end = std::min(ps * (block + 1), length);
  const int64_t padding = ps - (end - first);
  std::string text;
  if (ps <= shown_place) {
    for (int64_t t = first; t < end; ++t)
      text += fmt::format("{} ", start + t);
    for (int64_t i = 0; i < padding; ++i)
      text += "· ";
  } else {
    if (first < end)
      text += fmt::format("{}…{} ", start + first, start + end - 1);
    if (padding > 0)
      text += fmt::format("·×{} ", padding);
  }
  text.pop_back();
  return text;
}

// A sequence as its blocks, and under each the rank that takes it.
std::string drawing(const Tables &tables, size_t sequence, int64_t start) {
  const auto cp = static_cast<int64_t>(tables.ranks.size());
  const int64_t length = tables.lengths[sequence], blocks = 2 * cp;
  const int64_t ps = length / blocks + (length % blocks != 0);
  std::string text = fmt::format("sequence {}: {} tokens, {} with those cached, {} blocks of {}\n", sequence,
                                 length, tables.key_lengths[sequence], blocks, ps);
  if (ps == 0)
    return text;
  std::vector<std::string> headings{"<block"}, places{"places"}, owners{"rank"};
  for (int64_t block = 0; block < blocks; ++block) {
    headings.push_back(fmt::format("<{}", block));
    places.push_back(block_text(start, length, ps, block));
    owners.push_back(fmt::format("{}", std::min(block, blocks - 1 - block)));
  }
  Table table(headings);
  table.row(places);
  table.row(owners);
  return text + table.text();
}

std::string rank_text(const RankTables &rank) {
  const size_t shown = std::min<size_t>(rank.mirror_index.size(), shown_rows);
  std::vector<std::string> headings(shown + 1);
  headings[0] = "<";
  Table table(headings);
  auto row = [&](const char *name, auto cell) {
    std::vector<std::string> cells{name};
    for (size_t i = 0; i < shown; ++i)
      cells.push_back(cell(i));
    table.row(cells);
  };
  row("place", [&](size_t i) {
    return rank.mirror_index[i] < 0 ? std::string("·") : fmt::format("{}", rank.mirror_index[i]);
  });
  row("ks", [&](size_t i) { return fmt::format("{}", rank.keys.begin[i]); });
  row("ke", [&](size_t i) { return fmt::format("{}", rank.keys.end[i]); });
  std::string text = table.text();
  text.erase(0, text.find('\n') + 1); // there are no headings
  if (rank.mirror_index.size() > shown)
    text += fmt::format("  … {} more rows (--json lists all)\n", rank.mirror_index.size() - shown);
  return text;
}

std::string as_text(const Tables &tables, int64_t ratio) {
  const auto cp = static_cast<int64_t>(tables.ranks.size());
  const auto tokens = static_cast<int64_t>(tables.reverse_index.size());
  std::string text =
      fmt::format("{} tokens over cp {}: {} rows a rank, {} of {} gathered rows are padding (·)\n", tokens,
                  cp, tables.mirror_len, cp * tables.mirror_len - tokens, cp * tables.mirror_len);
  if (cp > shown_ranks)
    text += fmt::format("of each sequence's {} blocks, rank r takes r and {}−r\n", 2 * cp, 2 * cp - 1);
  int64_t start = 0;
  for (size_t s = 0; s < tables.lengths.size() && cp <= shown_ranks; start += tables.lengths[s++]) {
    if (s == shown_sequences) {
      text += fmt::format("… {} more sequences\n", tables.lengths.size() - s);
      break;
    }
    text += drawing(tables, s, start);
  }
  text += fmt::format("each row's place in the batch, and the keys [ks, ke) it sees{}\n",
                      ratio > 1 ? fmt::format(" among keys packed {} to 1", ratio) : "");
  for (int64_t rank = 0; rank < cp; ++rank) {
    if (rank == shown_ranks) {
      text += fmt::format("… {} more ranks (--json lists all)\n", cp - rank);
      break;
    }
    text += fmt::format("rank {}\n", rank) + rank_text(tables.ranks[static_cast<size_t>(rank)]);
  }
  const auto shown = std::min<int64_t>(tokens, shown_rows);
  text += fmt::format("reverse_index, the gathered row of each token\n  {}{}\n",
                      fmt::join(tables.reverse_index.begin(), tables.reverse_index.begin() + shown, " "),
                      tokens > shown ? fmt::format(" … {} more (--json lists all)", tokens - shown) : "");
  return text;
}

int cp_index(const Arguments &arguments) {
  Tables tables;
  std::string message;
  auto queries = parse_numbers(arguments.queries, "--q", message);
  auto keys = queries && arguments.keys ? parse_numbers(*arguments.keys, "--k", message) : queries;
  if (!queries || !keys)
    return refuse_arguments(arguments.json, message);
  tables.lengths = *queries, tables.key_lengths = *keys;
  if (tables.key_lengths.size() != tables.lengths.size())
    return refuse_arguments(arguments.json,
                            fmt::format("got {} lengths in --k, expected {}, one for each of --q",
                                        tables.key_lengths.size(), tables.lengths.size()));
  try {
    const int64_t cp = arguments.cp;
    tables.mirror_len = mirror_length(tables.lengths, cp);
    if (!fit_a_page(tables.mirror_len, tables.lengths.size(), cp))
      return refuse_arguments(
          arguments.json, fmt::format("cp {} and {} rows a rank are more than the {} rows that are printed",
                                      cp, tables.mirror_len, most_rows));
    for (int64_t rank = 0; rank < cp; ++rank)
      tables.ranks.push_back({mirror_index(tables.lengths, cp, rank),
                              key_ranges(tables.lengths, tables.key_lengths, cp, rank, arguments.ratio)});
    tables.reverse_index = reverse_index(tables.lengths, cp);
  } catch (const KernelError &error) {
    return refuse_arguments(arguments.json, error.what());
  }
  if (arguments.json)
    print(as_json(tables));
  else
    print(as_text(tables, arguments.ratio));
  return exit_good;
}

} // namespace

void register_cp_index(CLI::App &app, int &exit_code) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App *command =
      app.add_subcommand("cp-index", "context parallelism's cut of prompts: the zigzag tables of every rank");
  command->add_option("--cp", arguments->cp, "ranks that share a prompt")->required()->check(from_one());
  command->add_option("--q", arguments->queries, "tokens of each sequence to prefill, as 10,7")->required();
  command->add_option("--k", arguments->keys,
                      "tokens of each sequence with those already cached; as --q when left out");
  command->add_option("--ratio", arguments->ratio, "tokens a packed key stands for")
      ->check(from_one())
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "one JSON document on stdout and nothing else");
  command->footer("Example:\n  paratope cp-index --cp 2 --q 10,7 --k 10,9 --ratio 2");
  command->callback([arguments, &exit_code] { exit_code = cp_index(*arguments); });
}

} // namespace paratope
