// SPDX-License-Identifier: Apache-2.0
#include "runtime/exec/result.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace paratope {
namespace {

// The smallest value that at least `share` of the values do not exceed (nearest rank); 0 without values.
double quantile(std::vector<double> values, double share) {
  if (values.empty())
    return 0;
  std::sort(values.begin(), values.end());
  auto place = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
  return values[std::max<size_t>(place, 1) - 1];
}

double rounded(double value, double unit) { return std::round(value / unit) * unit; }

std::string bytes_text(int64_t bytes) {
  const char *units[] = {"B", "kB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1000 && unit < 4; ++unit)
    value /= 1000;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

std::string time_text(double us) {
  if (us >= 1e6)
    return fmt::format("{:.2f} s", us / 1e6);
  return us >= 1e3 ? fmt::format("{:.2f} ms", us / 1e3) : fmt::format("{:.1f} us", us);
}

} // namespace

double RunResult::median_us() const { return quantile(step_times_us, 0.5); }
double RunResult::p90_us() const { return quantile(step_times_us, 0.9); }
double RunResult::tokens_per_s() const {
  double median = median_us();
  return median > 0 ? static_cast<double>(tokens_per_step) / median * 1e6 : 0;
}

std::string result_json(const RunResult &r) {
  nlohmann::ordered_json json;
  json["backend"] = r.backend;
  json["topology"] = r.topology;
  json["world"] = r.world;
  json["steps"] = r.steps;
  json["step_us"] = {{"median", rounded(r.median_us(), 0.001)}, {"p90", rounded(r.p90_us(), 0.001)}};
  json["tokens_per_step"] = r.tokens_per_step;
  json["placeholders"] = r.placeholders;
  json["tokens_per_s"] = rounded(r.tokens_per_s(), 0.001);
  json["setup_s"] = rounded(r.setup_s, 1e-6);
  if (r.verify.done) {
    auto &verify = json["verify"];
    // JSON has no NaN; an error that is no number is null, and never ok.
    if (std::isfinite(r.verify.max_rel_error))
      verify["max_rel_error"] = r.verify.max_rel_error;
    else
      verify["max_rel_error"] = nullptr;
    verify["ok"] = r.verify.ok;
    verify["ties"] = r.verify.ties;
    verify["mismatches"] = r.verify.mismatches;
    verify["tokens"] = r.verify.tokens;
    verify["problems"] = r.verify.problems;
  } else {
    json["verify"] = nullptr;
  }
  json["collectives"] = {{"issued", r.collectives_issued}, {"expected", r.collectives_expected}};
  json["load"] = {{"issued", r.load_issued}, {"expected", r.load_expected}, {"kv_blocks", nullptr}};
  if (r.kv_blocks >= 0)
    json["load"]["kv_blocks"] = r.kv_blocks;
  json["conservation"] = {{"sent", r.sent},
                          {"received", r.received},
                          {"sent_bytes", r.sent_bytes},
                          {"received_bytes", r.received_bytes}};
  json["memory"] = {{"weights", r.weight_bytes}, {"arenas", r.arena_bytes}, {"kv", r.kv_bytes}};
  json["per_op"] = nlohmann::ordered_json::array();
  for (const OpTime &op : r.per_op)
    json["per_op"].push_back({{"op", op.op}, {"count", op.count}, {"us", rounded(op.us, 0.001)}});
  json["interrupted"] = r.interrupted;
  json["ok"] = r.ok();
  json["failures"] = r.failures;
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string result_text(const RunResult &r) {
  std::string text;
  auto line = [&](const char *name, const std::string &value) {
    text += fmt::format("{:<14} {}\n", name, value);
  };
  if (!r.topology.empty())
    line("topology", r.topology);
  line("world", fmt::format("{} ranks, backend {}", r.world, r.backend));
  line("steps", fmt::format("{} of {} tokens{}{}", r.steps, r.tokens_per_step,
                            r.placeholders ? fmt::format(" and {} placeholder{}", r.placeholders,
                                                         r.placeholders == 1 ? "" : "s")
                                           : "",
                            r.interrupted ? ", then interrupted" : ""));
  line("memory", fmt::format("weights {}, kv {}, arenas {}; set up in {:.2f} s", bytes_text(r.weight_bytes),
                             bytes_text(r.kv_bytes), bytes_text(r.arena_bytes), r.setup_s));
  if (r.steps > 0) {
    line("step time", fmt::format("median {}, p90 {}", time_text(r.median_us()), time_text(r.p90_us())));
    line("tokens", fmt::format("{:.1f} a second", r.tokens_per_s()));
  }
  line("collectives",
       r.collectives_issued == r.collectives_expected
           ? fmt::format("{} issued = expected, a rank", r.collectives_issued)
           : fmt::format("{} issued, {} expected, a rank", r.collectives_issued, r.collectives_expected));
  if (r.load_issued > 0 || r.load_expected > 0)
    line("load", fmt::format("{} issued, {} expected, a rank{}", r.load_issued, r.load_expected,
                             r.kv_blocks >= 0 ? fmt::format("; {} KV pages on every rank", r.kv_blocks)
                                              : std::string()));
  line("conservation", fmt::format("{} rows sent {} {} received, {} exchanged", r.sent,
                                   r.sent == r.received ? "=" : "but", r.received, bytes_text(r.sent_bytes)));
  if (r.verify.done)
    line("verify",
         r.verify.ok && r.verify.tokens == 0
             ? std::string("nothing to compare: every engine ran a placeholder")
             : fmt::format("{}: max relative error {:.2e} over {} outputs, {} ties, {} mismatches",
                           r.verify.ok ? "equal to the reference" : "NOT equal to the reference",
                           r.verify.max_rel_error, r.verify.tokens, r.verify.ties, r.verify.mismatches));
  for (const std::string &note : r.notes)
    line("note", note);
  for (const std::string &problem : r.verify.problems)
    line("", problem);
  for (size_t i = 0; i < std::min<size_t>(r.per_op.size(), 6); ++i)
    line(i == 0 ? "top ops" : "", fmt::format("{:<16} {:>6.6g} a step {:>12}", r.per_op[i].op,
                                              r.per_op[i].count, time_text(r.per_op[i].us)));
  return text;
}

} // namespace paratope
