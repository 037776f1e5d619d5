// SPDX-License-Identifier: Apache-2.0
//
// Events are collected as text and written in large pieces, the closing bracket after each. The format is the
// "JSON object format" of the Trace Event Format document (ph X complete, s/f flow, C counter, M metadata).
#include "runtime/trace/trace.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace paratope {
namespace {

constexpr std::string_view head = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
constexpr std::string_view closing = "\n]}\n";
// Of a plan (runtime/plan/plan.h), in the order of their tracks.
constexpr std::string_view streams[] = {"compute", "exchange", "prefetch", "control"};
constexpr size_t flush_bytes = 1 << 18;

std::string json_text(std::string_view text) {
  return nlohmann::json(std::string(text)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

} // namespace

int64_t trace_track(std::string_view stream) {
  return std::find(std::begin(streams), std::end(streams), stream) - std::begin(streams);
}

TraceWriter::~TraceWriter() { close(); }

std::string TraceWriter::open(const std::string &path) {
  file = std::fopen(path.c_str(), "wb");
  if (!file)
    return fmt::format("cannot write trace {}: {}", path, std::strerror(errno));
  failed = std::fwrite(head.data(), 1, head.size(), file) != head.size();
  tail = std::ftell(file);
  failed |= tail < 0;
  flush();
  if (failed) {
    std::fclose(file);
    file = nullptr;
    return fmt::format("cannot write trace {}: expected a regular file", path);
  }
  return "";
}

void TraceWriter::add(std::string_view event) {
  std::lock_guard lock(mutex);
  if (!file)
    return;
  buffer += first ? "\n" : ",\n";
  first = false;
  buffer += event;
  if (buffer.size() > flush_bytes)
    flush_locked();
}

void TraceWriter::flush_locked() {
  if (!file || failed)
    return;
  failed = std::fseek(file, tail, SEEK_SET) != 0;
  if (!failed)
    failed = std::fwrite(buffer.data(), 1, buffer.size(), file) != buffer.size();
  tail += static_cast<long>(buffer.size());
  buffer.clear();
  if (!failed)
    failed = std::fwrite(closing.data(), 1, closing.size(), file) != closing.size() || std::fflush(file) != 0;
}

void TraceWriter::flush() {
  std::lock_guard lock(mutex);
  flush_locked();
}

std::string TraceWriter::close() {
  std::lock_guard lock(mutex);
  if (!file)
    return "";
  flush_locked();
  failed |= std::fclose(file) != 0;
  file = nullptr;
  return failed ? "the trace is not complete: writing it failed" : "";
}

void TraceWriter::name_rank(int64_t rank, std::string_view topology) {
  add(fmt::format(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":{}}}}})", rank,
                  json_text(fmt::format("rank {}{}{}", rank, topology.empty() ? "" : " of ", topology))));
  add(fmt::format(R"({{"ph":"M","name":"process_sort_index","pid":{0},"args":{{"sort_index":{0}}}}})", rank));
  for (std::string_view stream : streams)
    add(fmt::format(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"{}"}}}})", rank,
                    trace_track(stream), stream));
}

void TraceWriter::span(const TraceSpan &s) {
  add(fmt::format(
      R"({{"ph":"X","name":"{}","cat":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{"name":{},"instruction":{},"step":{},"where":{}{}}}}})",
      s.op, s.stream, s.rank, trace_track(s.stream), s.start_us, s.end_us - s.start_us, json_text(s.name),
      s.instruction, s.step, json_text(s.where),
      s.fusion.empty() ? "" : ",\"kernel\":" + json_text(s.fusion)));
}

void TraceWriter::flow(bool start, int64_t id, int64_t rank, double at_us) {
  add(fmt::format(R"({{"ph":"{}","name":"exchange","cat":"flow","id":{},"pid":{},"tid":{},"ts":{:.3f}{}}})",
                  start ? "s" : "f", id, rank, trace_track("exchange"), at_us, start ? "" : R"(,"bp":"e")"));
}

void TraceWriter::bytes_in_flight(double at_us, int64_t bytes) {
  add(fmt::format(R"({{"ph":"C","name":"bytes in flight","pid":0,"ts":{:.3f},"args":{{"bytes":{}}}}})", at_us,
                  bytes));
}

} // namespace paratope
