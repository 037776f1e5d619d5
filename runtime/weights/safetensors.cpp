// SPDX-License-Identifier: Apache-2.0
#include "runtime/weights/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <set>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace paratope {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

constexpr int64_t most_header_bytes = 100'000'000; // the format's own limit
constexpr size_t most_dims = 16;

[[noreturn]] void fail(const std::string &file, const std::string &what) {
  throw WeightError(fmt::format("{}: {}", file, what));
}

int64_t bytes_of(std::string_view dtype) { // 0: unknown
  constexpr std::pair<std::string_view, int64_t> sizes[] = {
      {"F32", 4},  {"BF16", 2},    {"F16", 2},     {"I64", 8},    {"I32", 4}, {"F64", 8},
      {"U64", 8},  {"U32", 4},     {"I16", 2},     {"U16", 2},    {"I8", 1},  {"U8", 1},
      {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}};
  for (const auto &[name, size] : sizes)
    if (name == dtype)
      return size;
  return 0;
}

// The header's grammar, three levels deep, as the parser's events come: nothing is built that the format has
// no place for, so a hostile header costs its own length at most.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
public:
  explicit HeaderReader(std::string file) : file(std::move(file)) {}

  struct Described {
    StoredTensor tensor;
    int64_t end = 0;
    bool has_shape = false;
    int num_offsets = 0;
  };
  std::vector<Described> described;

  bool null() override { fail(file, "got null in the header, expected none"); }
  bool boolean(bool) override { fail(file, "got a boolean in the header, expected none"); }
  bool number_integer(number_integer_t value) override {
    fail(file, fmt::format("got {} in the header, expected an integer of at least 0", value));
  }
  bool number_float(number_float_t, const string_t &text) override {
    fail(file, fmt::format("got {} in the header, expected an integer", text));
  }
  bool binary(binary_t &) override { return false; }
  bool number_unsigned(number_unsigned_t value) override {
    if (list == List::none)
      fail(file,
           fmt::format("tensor '{}': got {} for '{}', expected a list or a string", name(), value, field));
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      fail(file, fmt::format("tensor '{}': got {} in {}, expected at most 2^63 - 1", name(), value, field));
    const auto number = static_cast<int64_t>(value);
    Described &last = described.back();
    if (list == List::shape) {
      if (last.tensor.shape.size() == most_dims)
        fail(file, fmt::format("tensor '{}': got more than {} dims", name(), most_dims));
      last.tensor.shape.push_back(number);
    } else {
      if (last.num_offsets == 2)
        fail(file,
             fmt::format("tensor '{}': got more than two data_offsets, expected begin and end", name()));
      (last.num_offsets++ == 0 ? last.tensor.begin : last.end) = number;
    }
    return true;
  }
  bool string(string_t &value) override {
    if (level == 2 && in_metadata)
      return true;
    if (level != 2 || field != "dtype" || list != List::none)
      fail(file, fmt::format("got the string \"{}\" in the header, expected one for dtype alone", value));
    described.back().tensor.dtype = value;
    return true;
  }
  bool start_object(size_t) override {
    if (level == 2 || list != List::none)
      fail(file, "got an object inside a tensor's description, expected dtype, shape and data_offsets");
    ++level;
    return true;
  }
  bool end_object() override {
    if (level-- == 2)
      in_metadata = false;
    return true;
  }
  bool key(string_t &value) override {
    if (level == 1) {
      if (!names.insert(value).second)
        fail(file, fmt::format("got the name '{}' twice", value));
      in_metadata = value == "__metadata__";
      current = value;
      field.clear();
      if (!in_metadata) {
        described.emplace_back().tensor.name = value;
        fields.clear();
      }
    } else if (!in_metadata) {
      if (value != "dtype" && value != "shape" && value != "data_offsets")
        fail(file, fmt::format("tensor '{}': got the key '{}', expected dtype, shape and data_offsets",
                               name(), value));
      if (!fields.insert(value).second)
        fail(file, fmt::format("tensor '{}': got {} twice", name(), value));
      field = value;
    }
    return true;
  }
  bool start_array(size_t) override {
    if (level != 2 || in_metadata || list != List::none || field == "dtype")
      fail(file, "got a list in the header, expected one for shape and data_offsets alone");
    list = field == "shape" ? List::shape : List::offsets;
    described.back().has_shape |= list == List::shape;
    return true;
  }
  bool end_array() override {
    list = List::none;
    return true;
  }
  bool parse_error(size_t position, const std::string &, const nlohmann::json::exception &) override {
    fail(file, fmt::format("the header is no JSON: stopped at its byte {}", position));
  }

private:
  const std::string &name() const { return current; }

  enum class List { none, shape, offsets };
  std::string file;
  int level = 0; // of objects: 1 in the header's, 2 in a tensor's
  bool in_metadata = false;
  List list = List::none;
  std::string current, field; // the keys this far
  std::set<std::string> names, fields;
};

float from_half(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16, exponent = half >> 10 & 0x1F,
                 mantissa = half & 0x3FF;
  if (exponent == 0) { // zero, or a subnormal: mantissa · 2⁻²⁴
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  const uint32_t wide = exponent == 31 ? 0xFF : exponent + 112; // infinities and NaNs stay what they are
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}

} // namespace

bool readable_as_float(const std::string &dtype) {
  return dtype == "F32" || dtype == "BF16" || dtype == "F16";
}

std::vector<StoredTensor> parse_safetensors(std::span<const std::byte> bytes, const std::string &file) {
  const auto size = static_cast<int64_t>(bytes.size());
  if (size < 8)
    fail(file, fmt::format("got {} bytes, expected at least the 8 of the header's length", size));
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), 8);
  if (header_bytes > static_cast<uint64_t>(std::min(size - 8, most_header_bytes)))
    fail(file, fmt::format("got a header of {} bytes in a file of {}, expected at most {}", header_bytes,
                           size, std::min(size - 8, most_header_bytes)));
  const char *header = reinterpret_cast<const char *>(bytes.data()) + 8;
  if (header_bytes == 0 || header[0] != '{')
    fail(file, "got a header that does not begin with '{'");
  HeaderReader reader(file);
  nlohmann::json::sax_parse(header, header + header_bytes, &reader);

  const int64_t data = 8 + static_cast<int64_t>(header_bytes), data_bytes = size - data;
  for (HeaderReader::Described &each : reader.described) {
    StoredTensor &tensor = each.tensor;
    auto refuse = [&](const std::string &what) {
      fail(file, fmt::format("tensor '{}': {}", tensor.name, what));
    };
    if (tensor.dtype.empty() || !each.has_shape || each.num_offsets != 2)
      refuse("got a description without all of dtype, shape and two data_offsets");
    const int64_t each_bytes = bytes_of(tensor.dtype);
    if (each_bytes == 0)
      refuse(fmt::format("got dtype '{}', which is unknown", tensor.dtype));
    tensor.elements = 1;
    int64_t wanted = 0;
    bool fits = true;
    for (int64_t extent : tensor.shape)
      fits &= !__builtin_mul_overflow(tensor.elements, extent, &tensor.elements);
    if (!fits || __builtin_mul_overflow(tensor.elements, each_bytes, &wanted))
      refuse(fmt::format("got shape [{}], whose size overflows 64 bits", fmt::join(tensor.shape, ", ")));
    if (tensor.begin > each.end || each.end > data_bytes)
      refuse(fmt::format("got bytes {} to {}, expected a range of the {} there are", tensor.begin, each.end,
                         data_bytes));
    if (each.end - tensor.begin != wanted)
      refuse(fmt::format("got {} bytes, expected {} for {} of shape [{}]", each.end - tensor.begin, wanted,
                         tensor.dtype, fmt::join(tensor.shape, ", ")));
  }
  // Every byte is of one tensor. Empty ones lie anywhere.
  std::sort(reader.described.begin(), reader.described.end(), [](const auto &a, const auto &b) {
    return std::pair(a.tensor.begin, a.end) < std::pair(b.tensor.begin, b.end);
  });
  int64_t covered = 0;
  for (const HeaderReader::Described &each : reader.described) {
    if (each.tensor.begin == each.end)
      continue;
    if (each.tensor.begin != covered)
      fail(file, fmt::format("tensor '{}': got data from byte {}, expected {}: {}", each.tensor.name,
                             each.tensor.begin, covered,
                             each.tensor.begin < covered ? "tensors overlap" : "bytes are of no tensor"));
    covered = each.end;
  }
  if (covered != data_bytes)
    fail(file, fmt::format("got {} bytes of data, expected the {} of its tensors", data_bytes, covered));

  std::vector<StoredTensor> tensors;
  for (HeaderReader::Described &each : reader.described) {
    each.tensor.begin += data;
    tensors.push_back(std::move(each.tensor));
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const StoredTensor &a, const StoredTensor &b) { return a.name < b.name; });
  return tensors;
}

SafetensorsFile::SafetensorsFile(const std::string &path) : file(path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status{};
  if (descriptor < 0 || ::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    const std::string reason = descriptor < 0 || errno ? std::strerror(errno) : "";
    if (descriptor >= 0)
      ::close(descriptor);
    fail(path, fmt::format("cannot be read: {}", descriptor < 0 ? reason : "no regular file"));
  }
  size = static_cast<size_t>(status.st_size);
  if (size > 0) {
    void *mapped = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    const int error = errno;
    ::close(descriptor);
    if (mapped == MAP_FAILED)
      fail(path, fmt::format("cannot be mapped: {}", std::strerror(error)));
    data = static_cast<const std::byte *>(mapped);
  } else {
    ::close(descriptor);
  }
  try {
    list = parse_safetensors({data, size}, path);
  } catch (...) {
    if (data)
      ::munmap(const_cast<std::byte *>(data), size);
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() {
  if (data)
    ::munmap(const_cast<std::byte *>(data), size);
}

void SafetensorsFile::read(const StoredTensor &tensor, int64_t first, int64_t count, float *dst) const {
  if (first < 0 || count < 0 || first > tensor.elements - count)
    fail(file, fmt::format("tensor '{}': asked for {} elements from {}, expected a range of its {}",
                           tensor.name, count, first, tensor.elements));
  const std::byte *from = data + tensor.begin;
  if (tensor.dtype == "F32") {
    if (count > 0)
      std::memcpy(dst, from + first * 4, static_cast<size_t>(count) * 4);
    return;
  }
  if (!readable_as_float(tensor.dtype))
    fail(file,
         fmt::format("tensor '{}': got dtype {}, expected F32, BF16 or F16", tensor.name, tensor.dtype));
  const bool brain = tensor.dtype == "BF16";
  for (int64_t i = 0; i < count; ++i) {
    uint16_t half = 0;
    std::memcpy(&half, from + (first + i) * 2, 2);
    dst[i] = brain ? std::bit_cast<float>(uint32_t{half} << 16) : from_half(half);
  }
}

// ---- writing ------------------------------------------------------------------------------------------

namespace {

// A file under a temporary name, gone again unless it was kept.
class NewFile {
public:
  explicit NewFile(const std::string &path)
      : path(path), temporary(fmt::format("{}.{}.tmp", path, ::getpid())) {
    stream = std::fopen(temporary.c_str(), "wb");
    if (!stream)
      fail(path, fmt::format("cannot be written: {}", std::strerror(errno)));
  }
  ~NewFile() {
    if (!stream)
      return;
    std::fclose(stream);
    std::remove(temporary.c_str());
  }
  NewFile(const NewFile &) = delete;
  NewFile &operator=(const NewFile &) = delete;

  void write(const void *bytes, size_t count) {
    if (std::fwrite(bytes, 1, count, stream) != count)
      fail(path, fmt::format("cannot be written: {}", std::strerror(errno)));
  }
  void keep() {
    const bool closed = std::fclose(stream) == 0;
    stream = nullptr;
    if (closed && std::rename(temporary.c_str(), path.c_str()) == 0)
      return;
    const int error = errno;
    std::remove(temporary.c_str());
    fail(path, fmt::format("cannot be written: {}", std::strerror(error)));
  }

private:
  std::string path, temporary;
  std::FILE *stream = nullptr;
};

template <class T>
TensorToWrite tensor_of(std::string name, const char *dtype, std::vector<int64_t> shape,
                        std::span<const T> values) {
  return {std::move(name), dtype, std::move(shape), [values](int64_t first, int64_t count, void *dst) {
            if (count > 0)
              std::memcpy(dst, values.data() + first, static_cast<size_t>(count) * sizeof(T));
          }};
}

} // namespace

TensorToWrite tensor_to_write(std::string name, std::vector<int64_t> shape, std::span<const float> values) {
  return tensor_of(std::move(name), "F32", std::move(shape), values);
}
TensorToWrite tensor_to_write(std::string name, std::vector<int64_t> shape, std::span<const int32_t> values) {
  return tensor_of(std::move(name), "I32", std::move(shape), values);
}
TensorToWrite tensor_to_write(std::string name, std::vector<int64_t> shape, std::span<const int64_t> values) {
  return tensor_of(std::move(name), "I64", std::move(shape), values);
}

void write_safetensors(const std::string &path, std::vector<TensorToWrite> tensors) {
  // Wide elements first, so that each tensor is aligned to its own.
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorToWrite &a, const TensorToWrite &b) {
    return bytes_of(a.dtype) > bytes_of(b.dtype);
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::vector<int64_t> counts;
  int64_t end = 0;
  for (const TensorToWrite &tensor : tensors) {
    int64_t count = 1, bytes = 0;
    bool fits = true;
    for (int64_t extent : tensor.shape)
      fits &= extent >= 0 && !__builtin_mul_overflow(count, extent, &count);
    const int64_t begin = end;
    if (!fits || __builtin_mul_overflow(count, bytes_of(tensor.dtype), &bytes) ||
        __builtin_add_overflow(end, bytes, &end))
      fail(path, fmt::format("tensor '{}': got shape [{}], whose size overflows 64 bits", tensor.name,
                             fmt::join(tensor.shape, ", ")));
    if (!header
             .emplace(tensor.name, nlohmann::ordered_json{{"dtype", tensor.dtype},
                                                          {"shape", tensor.shape},
                                                          {"data_offsets", {begin, end}}})
             .second)
      fail(path, fmt::format("got the name '{}' twice", tensor.name));
    counts.push_back(count);
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' '); // data begin aligned
  NewFile file(path);
  const uint64_t header_bytes = text.size();
  file.write(&header_bytes, 8);
  file.write(text.data(), text.size());
  constexpr int64_t run = 1 << 16;
  std::vector<int64_t> block(run);
  for (size_t i = 0; i < tensors.size(); ++i)
    for (int64_t first = 0; first < counts[i]; first += run) {
      const int64_t count = std::min(run, counts[i] - first);
      tensors[i].fill(first, count, block.data());
      file.write(block.data(), static_cast<size_t>(count * bytes_of(tensors[i].dtype)));
    }
  file.keep();
}

void write_whole_file(const std::string &path, const std::string &text) {
  NewFile file(path);
  file.write(text.data(), text.size());
  file.keep();
}

} // namespace paratope
