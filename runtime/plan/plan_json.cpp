// SPDX-License-Identifier: Apache-2.0
//
// Both directions walk the structs through plan_fields.h. The reader keeps its place as a chain of path nodes
// on the stack, which cost nothing until there is a problem to locate.
#include "runtime/plan/plan_json.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "runtime/plan/check.h"
#include "runtime/plan/plan_fields.h"

namespace paratope::plan {
namespace {

using Json = nlohmann::json;

template <class T> struct is_vector : std::false_type {};
template <class T> struct is_vector<std::vector<T>> : std::true_type {};
template <class T> struct is_map : std::false_type {};
template <class T> struct is_map<std::map<std::string, T>> : std::true_type {};
template <class T>
concept Described = requires(const T *t) { describe(t, [](auto...) {}); };

// ---- writing ----

constexpr double exact_limit = 9007199254740992.0; // 2⁵³

void write(std::string &out, int64_t value) { fmt::format_to(std::back_inserter(out), "{}", value); }
void write(std::string &out, bool value) { out += value ? "true" : "false"; }

void write(std::string &out, double value) {
  if (value == std::floor(value) && std::fabs(value) <= exact_limit && !(value == 0 && std::signbit(value)))
    return write(out, static_cast<int64_t>(value));
  out += Json(value).dump(); // the shortest text that reads back as the same double
}

void write(std::string &out, const std::string &value) {
  bool plain = true;
  for (unsigned char c : value)
    plain &= c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
  if (!plain) {
    out += Json(value).dump(-1, ' ', false, Json::error_handler_t::replace);
    return;
  }
  out += '"';
  out += value;
  out += '"';
}

template <Described T> void write(std::string &out, const T &value);

template <class T> void write(std::string &out, const std::map<std::string, T> &map) {
  out += '{';
  const char *separator = "";
  for (const auto &[key, value] : map) {
    out += separator;
    write(out, key);
    out += ':';
    write(out, value);
    separator = ",";
  }
  out += '}';
}

template <class T> void write(std::string &out, const std::vector<T> &list) {
  out += '[';
  const char *separator = "";
  for (const T &value : list) {
    out += separator;
    write(out, value);
    separator = ",";
  }
  out += ']';
}

template <Described T> void write(std::string &out, const T &value) {
  static const T defaults;
  out += '{';
  const char *separator = "\"";
  describe(&value, [&](const char *key, auto member, bool required) {
    if (!required && value.*member == defaults.*member)
      return;
    out += separator;
    out += key;
    out += "\":";
    write(out, value.*member);
    separator = ",\"";
  });
  out += '}';
}

// A list of structs of the plan itself: one element a line.
template <class T> void write_lines(std::string &out, const std::vector<T> &list) {
  out += '[';
  const char *separator = "\n    ";
  for (const T &value : list) {
    out += separator;
    write(out, value);
    separator = ",\n    ";
  }
  out += list.empty() ? "]" : "\n  ]";
}

// ---- reading ----

struct Path {
  const Path *parent = nullptr;
  std::string_view key;
  size_t idx = 0;
  bool is_idx = false;

  std::string text() const {
    if (!parent)
      return "";
    std::string head = parent->text() + "/";
    if (is_idx)
      return head + std::to_string(idx);
    for (char c : key) {
      if (c == '~')
        head += "~0";
      else if (c == '/')
        head += "~1";
      else
        head += c;
    }
    return head;
  }
};

struct Reader {
  std::vector<Problem> problems;

  void report(const Path &path, std::string message) {
    if (problems.size() < max_problems)
      problems.push_back({path.text(), std::move(message)});
  }

  // What a value is, for messages: the value itself when it is short.
  static std::string shown(const Json &json) {
    if (json.is_object())
      return "an object";
    if (json.is_array())
      return "a list";
    std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
    return text.size() <= 60 ? text : text.substr(0, 57) + "...";
  }

  void expect(const Path &path, const Json &json, const char *what) {
    report(path, fmt::format("got {}, expected {}", shown(json), what));
  }

  void read(const Path &path, const Json &json, int64_t &value) {
    if (!json.is_number_integer() || (json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX))
      return expect(path, json, "a 64-bit integer");
    value = json.get<int64_t>();
  }

  void read(const Path &path, const Json &json, double &value) {
    if (!json.is_number())
      return expect(path, json, "a number");
    value = json.get<double>();
    const auto limit = static_cast<int64_t>(exact_limit);
    bool large = json.is_number_unsigned()  ? json.get<uint64_t>() > static_cast<uint64_t>(limit)
                 : json.is_number_integer() ? json.get<int64_t>() < -limit
                                            : false;
    if (large)
      expect(path, json, "an integer no larger than 2^53 (it must be exact as a double)");
  }

  void read(const Path &path, const Json &json, bool &value) {
    if (!json.is_boolean())
      return expect(path, json, "true or false");
    value = json.get<bool>();
  }

  void read(const Path &path, const Json &json, std::string &value) {
    if (!json.is_string())
      return expect(path, json, "a string");
    value = json.get_ref<const std::string &>();
  }

  template <class T> void read(const Path &path, const Json &json, std::vector<T> &list) {
    if (!json.is_array())
      return expect(path, json, "a list");
    list.resize(json.size());
    for (size_t i = 0; i < json.size(); ++i)
      read({&path, {}, i, true}, json[i], list[i]);
  }

  template <class T> void read(const Path &path, const Json &json, std::map<std::string, T> &map) {
    if (!json.is_object())
      return expect(path, json, "an object");
    for (const auto &[key, value] : json.get_ref<const Json::object_t &>())
      read({&path, key}, value, map[key]);
  }

  template <Described T> void read(const Path &path, const Json &json, T &value) {
    if (!json.is_object())
      return expect(path, json, "an object");
    const auto &object = json.get_ref<const Json::object_t &>();
    size_t known = 0;
    describe(&value, [&](const char *key, auto member, bool required) {
      auto it = object.find(key);
      if (it != object.end()) {
        ++known;
        read({&path, key}, it->second, value.*member);
      } else if (required) {
        report(path, fmt::format("got no \"{}\", expected one", key));
      }
    });
    if (known != object.size())
      report_unknown(path, object, value);
  }

  template <Described T> void report_unknown(const Path &path, const Json::object_t &object, const T &value) {
    std::string keys;
    describe(&value, [&](const char *key, auto, bool) {
      keys += fmt::format("{}{}", keys.empty() ? "" : ", ", key);
    });
    for (const auto &[key, unused] : object) {
      bool found = false;
      describe(&value, [&, &name = key](const char *known, auto, bool) { found |= name == known; });
      if (!found)
        report({&path, key}, fmt::format("got an unknown key, expected one of {}", keys));
    }
  }
};

// Builds the document from the parser's events. nlohmann's own builder keeps the last of two equal keys; here
// the second is noted, since it is a mistake in a plan.
struct Builder : nlohmann::json_sax<Json> {
  Json root;
  std::vector<Json *> open; // objects and lists around the current place
  Json *member = nullptr;   // where the value of the last key goes
  std::string repeated, error;
  size_t error_byte = 0;

  template <class Value> bool add(Value &&value) {
    place(std::forward<Value>(value));
    return true;
  }
  template <class Value> Json *place(Value &&value) {
    if (open.empty())
      return &(root = std::forward<Value>(value));
    if (open.back()->is_array()) {
      auto &list = open.back()->get_ref<Json::array_t &>();
      return &list.emplace_back(std::forward<Value>(value));
    }
    return &(*member = std::forward<Value>(value));
  }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(Json::number_integer_t value) override { return add(value); }
  bool number_unsigned(Json::number_unsigned_t value) override { return add(value); }
  bool number_float(Json::number_float_t value, const std::string &) override { return add(value); }
  bool string(std::string &value) override { return add(std::move(value)); }
  bool binary(Json::binary_t &value) override { return add(std::move(value)); }
  bool start_object(size_t) override {
    open.push_back(place(Json::object()));
    return true;
  }
  bool start_array(size_t) override {
    open.push_back(place(Json::array()));
    return true;
  }
  bool end_object() override {
    open.pop_back();
    return true;
  }
  bool end_array() override { return end_object(); }
  bool key(std::string &name) override {
    auto [it, fresh] = open.back()->get_ref<Json::object_t &>().emplace(std::move(name), nullptr);
    if (!fresh && repeated.empty())
      repeated = it->first;
    member = &it->second;
    return true;
  }
  bool parse_error(size_t byte, const std::string &, const Json::exception &exception) override {
    error_byte = byte;
    error = exception.what(); // "[json.exception.parse_error.101] parse error at line …: …"
    return false;
  }
};

} // namespace

std::string write_json(const Plan &plan) {
  static const Plan defaults;
  std::string out;
  out.reserve(plan.instructions.size() * 400 + 65536);
  out += '{';
  const char *separator = "\n  \"";
  describe(&plan, [&](const char *key, auto member, bool required) {
    const auto &value = plan.*member;
    if (!required && value == defaults.*member)
      return;
    out += separator;
    out += key;
    out += "\": ";
    using Member = std::remove_cvref_t<decltype(value)>;
    if constexpr (is_vector<Member>::value)
      write_lines(out, value);
    else
      write(out, value);
    separator = ",\n  \"";
  });
  out += "\n}\n";
  return out;
}

ReadResult read_json(std::string_view text) {
  ReadResult result;
  Builder builder;
  if (!Json::sax_parse(text, &builder)) {
    size_t before = std::min(builder.error_byte, text.size());
    auto line =
        1 + std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(before ? before - 1 : 0), '\n');
    size_t start = builder.error.find("] ");
    result.problems.push_back(
        {"", fmt::format("not JSON, line {}: {}", line,
                         start == std::string::npos ? builder.error : builder.error.substr(start + 2))});
    return result;
  }
  const Json &json = builder.root;
  const std::string &repeated = builder.repeated;
  Reader reader;
  if (!repeated.empty())
    reader.report({}, fmt::format("got a key twice in one object: \"{}\"", repeated));
  if (json.is_object() && json.contains("version") && json["version"].is_number_integer() &&
      json["version"].get<int64_t>() != plan_version) {
    result.problems.push_back(
        {"/version",
         fmt::format(
             "got plan version {}, expected {} (compile the topology again with this version of the tool)",
             json["version"].get<int64_t>(), plan_version)});
    return result;
  }
  reader.read({}, json, result.plan);
  result.problems = std::move(reader.problems);
  if (result.ok())
    result.problems = check(result.plan);
  if (result.problems.size() > max_problems)
    result.problems.resize(max_problems);
  return result;
}

} // namespace paratope::plan
