// SPDX-License-Identifier: Apache-2.0
//
// Section values ↔ dictionary attributes, by walking describe().
#include "dsl/topo/fields.h"

#include <set>

#include "fmt/format.h"
#include "mlir/IR/Builders.h"

#include "dsl/diagnostic/nearest.h"
#include "dsl/spec/describe.h"

using namespace mlir;

namespace paratope::topo {

//===--- values → attributes ----------------------------------------------------------------------------===//

namespace {

// Writes every key that holds anything. Whether a default is worth writing is decided by comparing with the
// attributes of a default section, so that the IR shows what matters.
class AttrWriter : public FieldVisitor {
public:
  explicit AttrWriter(MLIRContext *context) : builder(context) {}

  void integer(const char *key, Field<int64_t> &field, IntegerRange, Need, const char *) override {
    put(key, builder.getI64IntegerAttr(*field), field.where, field.written);
  }
  void number(const char *key, Field<double> &field, NumberRange, Need, const char *) override {
    put(key, builder.getF64FloatAttr(*field), field.where, field.written);
  }
  void boolean(const char *key, Field<bool> &field, Need, const char *) override {
    put(key, builder.getBoolAttr(*field), field.where, field.written);
  }
  void text(const char *key, Field<std::string> &field, Need, const char *) override {
    put(key, builder.getStringAttr(*field), field.where, field.written);
  }
  void choice(const char *key, Field<std::string> &field, std::vector<std::string>, Need,
              const char *) override {
    put(key, builder.getStringAttr(*field), field.where, field.written);
  }
  void integers(const char *key, Field<std::vector<int64_t>> &field, IntegerRange, Need,
                const char *) override {
    put(key, builder.getDenseI64ArrayAttr(*field), field.where, field.written);
  }
  void integer_or_list(const char *key, Field<std::vector<int64_t>> &field, IntegerRange, Need,
                       const char *) override {
    Attribute value = field->size() == 1 ? Attribute(builder.getI64IntegerAttr(field->front()))
                                         : Attribute(builder.getDenseI64ArrayAttr(*field));
    put(key, value, field.where, field.written);
  }
  void integer_rows(const char *key, Field<std::vector<std::vector<int64_t>>> &field, IntegerRange, Need,
                    const char *) override {
    SmallVector<Attribute> rows;
    for (const auto &row : *field)
      rows.push_back(builder.getDenseI64ArrayAttr(row));
    put(key, builder.getArrayAttr(rows), field.where, field.written);
  }
  void texts(const char *key, Field<std::vector<std::string>> &field, Need, const char *) override {
    put(key, strings(*field), field.where, field.written);
  }
  void text_rows(const char *key, Field<std::vector<std::vector<std::string>>> &field, Need,
                 const char *) override {
    SmallVector<Attribute> rows;
    for (const auto &row : *field)
      rows.push_back(strings(row));
    put(key, builder.getArrayAttr(rows), field.where, field.written);
  }
  void auto_or_choices(const char *key, Field<std::vector<std::string>> &field, std::vector<std::string>,
                       Need, const char *) override {
    put(key, strings(*field), field.where, field.written);
  }
  // Axes and groups have ops of their own (mesh, group).
  void axis_sizes(const char *, std::vector<NamedAxis> &, const char *) override {}
  void groups(const char *, std::vector<NamedGroup> &, const char *) override {}

  void table(const char *key, Need, const char *, const std::function<void(FieldVisitor &)> &body) override {
    NamedAttrList outer;
    std::swap(outer, entries);
    std::string outer_prefix = prefix;
    prefix += std::string(key) + ".";
    body(*this);
    std::swap(outer, entries);
    prefix = outer_prefix;
    entries.set(key, outer.getDictionary(builder.getContext()));
  }

  Builder builder;
  NamedAttrList entries;
  SmallVector<Attribute> written;
  KeyPlaces places;

private:
  ArrayAttr strings(const std::vector<std::string> &values) {
    SmallVector<Attribute> items;
    for (const std::string &value : values)
      items.push_back(builder.getStringAttr(value));
    return builder.getArrayAttr(items);
  }

  void put(const char *key, Attribute value, const SourceRange &where, bool was_written) {
    entries.set(key, value);
    if (where.known())
      places[prefix + key] = where;
    if (was_written)
      written.push_back(builder.getStringAttr(prefix + key));
  }

  std::string prefix;
};

// What `values` holds beyond `defaults`, or was written.
DictionaryAttr without_defaults(DictionaryAttr values, DictionaryAttr defaults,
                                const std::set<std::string> &written, const std::string &prefix) {
  NamedAttrList kept;
  for (NamedAttribute item : values) {
    std::string path = prefix + item.getName().str();
    Attribute usual = defaults.get(item.getName());
    if (auto inner = dyn_cast<DictionaryAttr>(item.getValue())) {
      auto reduced = without_defaults(inner, cast<DictionaryAttr>(usual), written, path + ".");
      if (!reduced.empty())
        kept.set(item.getName(), reduced);
    } else if (item.getValue() != usual || written.count(path)) {
      kept.set(item.getName(), item.getValue());
    }
  }
  return kept.getDictionary(values.getContext());
}

//===--- attributes → values ----------------------------------------------------------------------------===//

class AttrReader : public FieldVisitor {
public:
  AttrReader(Operation *op, std::string section, DictionaryAttr fields, ArrayAttr written,
             Diagnostics &diagnostics)
      : op(op), section(std::move(section)), fields(fields), diagnostics(diagnostics) {
    if (written)
      for (Attribute key : written)
        if (auto name = dyn_cast<StringAttr>(key))
          written_keys.insert(name.str());
  }

  void integer(const char *key, Field<int64_t> &field, IntegerRange range, Need need, const char *) override {
    if (Attribute value = find(key, need))
      if (auto number = as<IntegerAttr>(key, value, "an integer");
          number && in_range(key, number.getInt(), range))
        set(key, field, number.getInt());
  }
  void number(const char *key, Field<double> &field, NumberRange range, Need need, const char *) override {
    Attribute value = find(key, need);
    if (!value)
      return;
    if (auto whole = dyn_cast<IntegerAttr>(value); whole && whole.getType().isSignlessInteger(64))
      value = FloatAttr::get(Float64Type::get(op->getContext()), static_cast<double>(whole.getInt()));
    if (auto real = as<FloatAttr>(key, value, "a number")) {
      double given = real.getValueAsDouble();
      if (!(given >= range.least && given <= range.most))
        complain("out-of-range", key,
                 fmt::format("'{}' = {} is out of range: expected {} to {}", path(key), given, range.least,
                             range.most));
      else
        set(key, field, given);
    }
  }
  void boolean(const char *key, Field<bool> &field, Need need, const char *) override {
    if (Attribute value = find(key, need))
      if (auto flag = as<BoolAttr>(key, value, "true or false"))
        set(key, field, flag.getValue());
  }
  void text(const char *key, Field<std::string> &field, Need need, const char *) override {
    if (Attribute value = find(key, need))
      if (auto string = as<StringAttr>(key, value, "a string"))
        set(key, field, string.str());
  }
  void choice(const char *key, Field<std::string> &field, std::vector<std::string> choices, Need need,
              const char *) override {
    Attribute value = find(key, need);
    if (!value)
      return;
    auto string = as<StringAttr>(key, value, "a string");
    if (!string)
      return;
    if (llvm::is_contained(choices, string.str())) {
      set(key, field, string.str());
      return;
    }
    auto &found = complain(
        "unknown-choice", key,
        fmt::format("got '{}' for '{}', expected {}", string.str(), path(key), fmt::join(choices, " | ")));
    if (auto near = nearest(string.str(), choices))
      found.fix = fmt::format("write \"{}\"", *near);
  }
  void integers(const char *key, Field<std::vector<int64_t>> &field, IntegerRange each, Need need,
                const char *) override {
    if (Attribute value = find(key, need))
      read_integers(key, value, field, each);
  }
  void integer_or_list(const char *key, Field<std::vector<int64_t>> &field, IntegerRange each, Need need,
                       const char *) override {
    Attribute value = find(key, need);
    if (!value)
      return;
    if (auto one = dyn_cast<IntegerAttr>(value); one && one.getType().isSignlessInteger(64))
      value = DenseI64ArrayAttr::get(op->getContext(), {one.getInt()});
    read_integers(key, value, field, each);
  }
  void integer_rows(const char *key, Field<std::vector<std::vector<int64_t>>> &field, IntegerRange each,
                    Need need, const char *) override {
    Attribute value = find(key, need);
    if (!value)
      return;
    auto rows = as<ArrayAttr>(key, value, "a list of lists of integers");
    if (!rows)
      return;
    std::vector<std::vector<int64_t>> values;
    for (Attribute row : rows) {
      auto numbers = as<DenseI64ArrayAttr>(key, row, "a list of integers");
      if (!numbers)
        return;
      for (int64_t number : numbers.asArrayRef())
        if (!in_range(key, number, each))
          return;
      values.emplace_back(numbers.asArrayRef().begin(), numbers.asArrayRef().end());
    }
    set(key, field, values);
  }
  void texts(const char *key, Field<std::vector<std::string>> &field, Need need, const char *) override {
    if (Attribute value = find(key, need)) {
      std::vector<std::string> values;
      if (read_strings(key, value, values))
        set(key, field, values);
    }
  }
  void text_rows(const char *key, Field<std::vector<std::vector<std::string>>> &field, Need need,
                 const char *) override {
    Attribute value = find(key, need);
    if (!value)
      return;
    auto rows = as<ArrayAttr>(key, value, "a list of lists of strings");
    if (!rows)
      return;
    std::vector<std::vector<std::string>> values;
    for (Attribute row : rows)
      if (!read_strings(key, row, values.emplace_back()))
        return;
    set(key, field, values);
  }
  void auto_or_choices(const char *key, Field<std::vector<std::string>> &field,
                       std::vector<std::string> choices, Need need, const char *) override {
    std::vector<std::string> values;
    Attribute value = find(key, need);
    if (!value || !read_strings(key, value, values))
      return;
    if (values != std::vector<std::string>{"auto"})
      for (size_t i = 0; i < values.size(); ++i)
        if (std::optional<std::string> problem = wrong_choice(values, i, choices)) {
          auto &found = complain("unknown-choice", key, fmt::format("'{}': {}", path(key), *problem));
          if (auto near = nearest(values[i], choices))
            found.fix = fmt::format("write \"{}\"", *near);
          return;
        }
    set(key, field, values);
  }
  void axis_sizes(const char *, std::vector<NamedAxis> &, const char *) override {}
  void groups(const char *, std::vector<NamedGroup> &, const char *) override {}

  void table(const char *key, Need need, const char *,
             const std::function<void(FieldVisitor &)> &body) override {
    DictionaryAttr inner = DictionaryAttr::get(op->getContext(), {});
    if (Attribute value = find(key, need)) {
      auto given = as<DictionaryAttr>(key, value, "a dictionary");
      if (!given)
        return;
      inner = given;
    } else if (need == Need::required) {
      return;
    }
    DictionaryAttr outer = fields;
    std::string outer_prefix = prefix;
    std::vector<std::string> outer_known;
    std::swap(outer_known, known);
    fields = inner;
    prefix += std::string(key) + ".";
    bool outer_absent = absent;
    absent = inner.empty() && need == Need::optional;
    body(*this);
    finish();
    absent = outer_absent;
    fields = outer;
    prefix = outer_prefix;
    std::swap(outer_known, known);
  }

  // After the last key of a table: what is left is unknown.
  void finish() {
    for (NamedAttribute item : fields) {
      std::string name = item.getName().str();
      if (llvm::is_contained(known, name))
        continue;
      auto &found = complain("unknown-key", name.c_str(),
                             fmt::format("unknown key '{}' in topo.{}", prefix + name, section));
      if (auto near = nearest(name, known))
        found.fix = fmt::format("write {}", *near);
    }
  }

private:
  std::string path(const char *key) const { return prefix + key; }

  paratope::Diagnostic &complain(const char *code, const char *key, std::string message) {
    return diagnostics.error(code, to_range(location_of(op, path(key))), std::move(message));
  }

  Attribute find(const char *key, Need need) {
    known.push_back(key);
    Attribute value = fields.get(key);
    if (!value && need == Need::required && !absent)
      complain("missing-key", key, fmt::format("topo.{} lacks '{}'", section, path(key)));
    return value;
  }

  template <class Attr> Attr as(const char *key, Attribute value, const char *expected) {
    auto typed = dyn_cast<Attr>(value);
    if constexpr (std::is_same_v<Attr, IntegerAttr>)
      if (typed && !typed.getType().isSignlessInteger(64))
        typed = {};
    if (!typed) {
      std::string got;
      llvm::raw_string_ostream(got) << value;
      complain("wrong-type", key, fmt::format("got {} for '{}', expected {}", got, path(key), expected));
    }
    return typed;
  }

  bool in_range(const char *key, int64_t value, IntegerRange range) {
    if (value >= range.least && value <= range.most)
      return true;
    std::string bound = range.most == std::numeric_limits<int64_t>::max()
                            ? fmt::format("at least {}", range.least)
                            : fmt::format("{} to {}", range.least, range.most);
    complain("out-of-range", key,
             fmt::format("'{}' = {} is out of range: expected {}", path(key), value, bound));
    return false;
  }

  void read_integers(const char *key, Attribute value, Field<std::vector<int64_t>> &field,
                     IntegerRange each) {
    auto numbers = as<DenseI64ArrayAttr>(key, value, "a list of integers");
    if (!numbers)
      return;
    for (int64_t number : numbers.asArrayRef())
      if (!in_range(key, number, each))
        return;
    set(key, field, std::vector<int64_t>(numbers.asArrayRef().begin(), numbers.asArrayRef().end()));
  }

  bool read_strings(const char *key, Attribute value, std::vector<std::string> &out) {
    auto items = as<ArrayAttr>(key, value, "a list of strings");
    if (!items)
      return false;
    for (Attribute item : items) {
      auto string = as<StringAttr>(key, item, "a string");
      if (!string)
        return false;
      out.push_back(string.str());
    }
    return true;
  }

  template <class T> void set(const char *key, Field<T> &field, T value) {
    field.value = std::move(value);
    field.where = to_range(location_of(op, path(key)));
    field.written = written_keys.count(path(key)) > 0;
  }

  Operation *op;
  std::string section, prefix;
  DictionaryAttr fields;
  std::set<std::string> written_keys;
  std::vector<std::string> known;
  Diagnostics &diagnostics;
  bool absent = false; // inside an optional table that is not there
};

} // namespace

template <class Section> SectionAttrs to_attrs(MLIRContext *context, const Section &section) {
  AttrWriter values(context), defaults(context);
  Section copy = section, usual;
  describe(values, copy);
  describe(defaults, usual);
  std::set<std::string> written;
  for (Attribute key : values.written)
    written.insert(cast<StringAttr>(key).str());
  SectionAttrs attrs;
  attrs.fields = without_defaults(values.entries.getDictionary(context),
                                  defaults.entries.getDictionary(context), written, "");
  if (!values.written.empty())
    attrs.written = ArrayAttr::get(context, values.written);
  attrs.places = std::move(values.places);
  return attrs;
}

template <class Section>
void from_attrs(Operation *op, StringRef section_name, DictionaryAttr fields, ArrayAttr written,
                Section &section, Diagnostics &diagnostics) {
  AttrReader reader(op, section_name.str(), fields, written, diagnostics);
  describe(reader, section);
  reader.finish();
}

#define PARATOPE_SECTION(Section)                                                                            \
  template SectionAttrs to_attrs<Section>(MLIRContext *, const Section &);                                   \
  template void from_attrs<Section>(Operation *, StringRef, DictionaryAttr, ArrayAttr, Section &,            \
                                    Diagnostics &);
PARATOPE_SECTION(MachineSpec)
PARATOPE_SECTION(ModelSpec)
PARATOPE_SECTION(MoeSpec)
PARATOPE_SECTION(AttentionSpec)
PARATOPE_SECTION(EngramSpec)
PARATOPE_SECTION(WorkloadSpec)
PARATOPE_SECTION(EngineSpec)
PARATOPE_SECTION(ScheduleSpec)
#undef PARATOPE_SECTION

} // namespace paratope::topo
