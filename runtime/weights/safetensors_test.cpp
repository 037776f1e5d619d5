// SPDX-License-Identifier: Apache-2.0
#include "runtime/weights/safetensors.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace paratope {
namespace {

namespace fs = std::filesystem;

std::string file_of(const std::string &header, const std::string &data) {
  uint64_t size = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &size, 8);
  return text + header + data;
}

std::vector<StoredTensor> parsed(const std::string &file) {
  return parse_safetensors(std::as_bytes(std::span(file)), "f");
}

std::string refusal(const std::string &file) {
  try {
    parsed(file);
  } catch (const WeightError &error) {
    return error.what();
  }
  return "accepted";
}

struct Folder {
  fs::path path = fs::temp_directory_path() / fmt::format("paratope-safetensors-{}", ::getpid());
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  std::string operator/(const std::string &name) const { return (path / name).string(); }
};

void write(const std::string &path, const std::string &text) {
  std::ofstream(path, std::ios::binary) << text;
}

const std::string two_tensors = file_of(
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
    R"("a":{"data_offsets":[8,10],"dtype":"BF16","shape":[1,1]},"none":{"dtype":"I64","shape":[0,3],"data_offsets":[3,3]}})",
    std::string(10, 'x'));

TEST(Safetensors, TensorsAreFoundByNameWithTheirPlace) {
  const std::vector<StoredTensor> tensors = parsed(two_tensors);
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[0].dtype, "BF16");
  EXPECT_EQ(tensors[0].shape, (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(tensors[0].begin, static_cast<int64_t>(two_tensors.size()) - 2);
  EXPECT_EQ(tensors[1].elements, 2);
  EXPECT_EQ(tensors[2].elements, 0);
  EXPECT_TRUE(parsed(file_of("{}", "")).empty());
}

TEST(Safetensors, HostileFilesAreRefusedWithAReason) {
  auto one = [](const std::string &description, const std::string &data = std::string(8, '\0')) {
    return file_of("{\"t\":" + description + "}", data);
  };
  auto huge = [](uint64_t size) {
    std::string text(16, ' ');
    std::memcpy(text.data(), &size, 8);
    return text;
  };
  struct Case {
    std::string file, expected;
  };
  const Case cases[] = {
      {"1234567", "f: got 7 bytes, expected at least the 8"},
      {huge(9), "got a header of 9 bytes in a file of 16, expected at most 8"},
      {huge(std::numeric_limits<uint64_t>::max()), "got a header of 18446744073709551615 bytes"},
      {huge(0), "does not begin with '{'"},
      {file_of("[1]", ""), "does not begin with '{'"},
      {file_of("{\"t\":", ""), "the header is no JSON: stopped at its byte"},
      {file_of("{} {}", ""), "the header is no JSON"},
      {file_of("{\"t\":3}", ""), "tensor 't': got 3 for '', expected a list or a string"},
      {file_of("{\"__metadata__\":3}", ""), "tensor '__metadata__': got 3 for ''"},
      {file_of("{\"__metadata__\":{\"a\":3}}", ""), "tensor '__metadata__': got 3 for ''"},
      {one("[1]"), "got a list in the header"},
      {one("\"x\""), "got the string \"x\""},
      {one("null"), "got null"},
      {one("true"), "got a boolean"},
      {one("{\"dtype\":\"F32\",\"shape\":[2]}"), "without all of dtype, shape and two data_offsets"},
      {one("{\"dtype\":\"F32\",\"data_offsets\":[0,8]}"), "without all of dtype, shape and two data_offsets"},
      {one("{\"shape\":[2],\"data_offsets\":[0,8]}"), "without all of dtype, shape and two data_offsets"},
      {one("{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}"), "without all of dtype, shape"},
      {one("{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,9]}"), "more than two data_offsets"},
      {one("{\"dtype\":\"F33\",\"shape\":[2],\"data_offsets\":[0,8]}"), "got dtype 'F33', which is unknown"},
      {one("{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}"),
       "got 8 bytes, expected 12 for F32 of shape [3]"},
      {one("{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,16]}"),
       "got bytes 0 to 16, expected a range of the 8"},
      {one("{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}"), "got bytes 8 to 0"},
      {one("{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}"), "got -2 in the header"},
      {one("{\"dtype\":\"F32\",\"shape\":[2.5],\"data_offsets\":[0,8]}"), "got 2.5 in the header"},
      {one("{\"dtype\":\"F32\",\"shape\":[18446744073709551615],\"data_offsets\":[0,8]}"),
       "at most 2^63 - 1"},
      {one("{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}", ""),
       "overflows 64 bits"},
      {one("{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]}"),
       "more than 16 dims"},
      {one("{\"dtype\":\"F32\",\"shape\":[[2]],\"data_offsets\":[0,8]}"), "got a list in the header"},
      {one("{\"dtype\":\"F32\",\"shape\":[{}],\"data_offsets\":[0,8]}"), "got an object inside"},
      {one("{\"dtype\":\"F32\",\"shape\":[\"2\"],\"data_offsets\":[0,8]}"), "got the string \"2\""},
      {one("{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}"), "got the key 'x'"},
      {one("{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"), "got dtype twice"},
      {one("{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}"),
       "got 8 bytes of data, expected the 4"},
      {one("{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}"),
       "got data from byte 4, expected 0: bytes are of no tensor"},
      {file_of(
           R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"t":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
           std::string(8, '\0')),
       "got the name 't' twice"},
      {file_of(
           R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"u":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
           std::string(8, '\0')),
       "tensor 'u': got data from byte 4, expected 8: tensors overlap"},
      {file_of("{\"__metadata__\":{\"a\":" + std::string(100000, '{') + "}}", ""), "got an object inside"},
      {file_of(std::string(100000, '['), ""), "does not begin with '{'"},
      {one("{\"dtype\":" + std::string(100000, '[') + "}"), "got a list in the header"},
  };
  for (const Case &each : cases) {
    const std::string got = refusal(each.file);
    EXPECT_NE(got.find(each.expected), std::string::npos) << each.expected << "\n" << got;
    EXPECT_EQ(got.find("f: "), 0u) << got;
  }
}

// Each prefix and each byte flipped: accepted or refused, and nothing else (the sanitizers watch).
TEST(Safetensors, DamageIsRefusedOrRead) {
  int accepted = 0;
  for (size_t size = 0; size < two_tensors.size(); ++size)
    EXPECT_NE(refusal(two_tensors.substr(0, size)), "accepted");
  for (size_t i = 0; i < two_tensors.size(); ++i)
    for (unsigned flip : {1u, 2u, 4u, 8u, 16u, 32u, 64u, 128u, 255u}) {
      std::string damaged = two_tensors;
      damaged[i] = static_cast<char>(static_cast<unsigned char>(damaged[i]) ^ flip);
      accepted += refusal(damaged) == "accepted";
    }
  EXPECT_GT(accepted, 0); // a damaged value or name is still a file
}

TEST(Safetensors, WhatIsWrittenIsReadBack) {
  Folder folder;
  const std::vector<float> floats = {1, -2.5f, 3e-39f, std::numeric_limits<float>::infinity()};
  const std::vector<int32_t> ints = {1, -2, 3};
  const std::vector<int64_t> longs = {std::numeric_limits<int64_t>::min()};
  std::vector<float> many(200000);
  for (size_t i = 0; i < many.size(); ++i)
    many[i] = static_cast<float>(i);
  write_safetensors(folder / "a.safetensors",
                    {tensor_to_write("f", {2, 2}, std::span(floats)),
                     tensor_to_write("i", {3}, std::span(ints)), tensor_to_write("l", {}, std::span(longs)),
                     tensor_to_write("m", {200000}, std::span(many)),
                     tensor_to_write("e", {0, 7}, std::span<const float>())});
  const SafetensorsFile file(folder / "a.safetensors");
  ASSERT_EQ(file.tensors().size(), 5u);
  for (const StoredTensor &tensor : file.tensors())
    EXPECT_EQ(tensor.begin % (tensor.dtype == "I64" ? 8 : 4), 0) << tensor.name;
  std::vector<float> got(4);
  file.read(file.tensors()[1], 0, 4, got.data());
  EXPECT_EQ(got, floats);
  got.resize(2);
  file.read(file.tensors()[4], 131071, 2, got.data());
  EXPECT_EQ(got, (std::vector<float>{131071, 131072}));
  EXPECT_THROW(file.read(file.tensors()[1], 3, 2, got.data()), WeightError);
  EXPECT_THROW(file.read(file.tensors()[1], -1, 1, got.data()), WeightError);
  EXPECT_THROW(file.read(file.tensors()[2], 0, 1, got.data()), WeightError); // I32
  for (const fs::directory_entry &entry : fs::directory_iterator(folder.path))
    EXPECT_EQ(entry.path().filename(), "a.safetensors"); // no temporary is left
}

TEST(Safetensors, HalvesBecomeFloats) {
  Folder folder;
  // F16: 1, -2, the largest, the smallest subnormal, -0, infinity, NaN; BF16: 1, -2
  const uint16_t halves[] = {0x3C00, 0xC000, 0x7BFF, 0x0001, 0x8000, 0x7C00, 0x7E00, 0x3F80, 0xC000};
  write(
      folder / "h.safetensors",
      file_of(
          R"({"b":{"dtype":"BF16","shape":[2],"data_offsets":[14,18]},"h":{"dtype":"F16","shape":[7],"data_offsets":[0,14]}})",
          std::string(reinterpret_cast<const char *>(halves), sizeof halves)));
  const SafetensorsFile file(folder / "h.safetensors");
  float values[7];
  file.read(file.tensors()[1], 0, 7, values);
  EXPECT_EQ(values[0], 1);
  EXPECT_EQ(values[1], -2);
  EXPECT_EQ(values[2], 65504);
  EXPECT_EQ(values[3], 0x1p-24f);
  EXPECT_TRUE(values[4] == 0 && std::signbit(values[4]));
  EXPECT_TRUE(std::isinf(values[5]));
  EXPECT_TRUE(std::isnan(values[6]));
  file.read(file.tensors()[0], 0, 2, values);
  EXPECT_EQ(values[0], 1);
  EXPECT_EQ(values[1], -2);
}

TEST(Safetensors, PlacesThatCannotBeUsedAreNamed) {
  Folder folder;
  auto said = [](const std::function<void()> &action) {
    try {
      action();
    } catch (const WeightError &error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  EXPECT_NE(said([&] { SafetensorsFile(folder / "missing"); }).find("missing: cannot be read: No such file"),
            std::string::npos);
  EXPECT_NE(said([&] { SafetensorsFile(folder.path.string()); }).find("no regular file"), std::string::npos);
  write(folder / "empty", "");
  EXPECT_NE(said([&] { SafetensorsFile(folder / "empty"); }).find("got 0 bytes"), std::string::npos);
  EXPECT_NE(
      said([&] { write_safetensors(folder / "no/such/folder", {}); }).find("cannot be written: No such file"),
      std::string::npos);
  EXPECT_NE(said([&] { write_whole_file("/dev/full/x", ""); }).find("cannot be written"), std::string::npos);
  const std::vector<float> one = {1};
  EXPECT_NE(said([&] {
              write_safetensors(folder / "twice", {tensor_to_write("a", {1}, std::span(one)),
                                                   tensor_to_write("a", {1}, std::span(one))});
            }).find("got the name 'a' twice"),
            std::string::npos);
  EXPECT_NE(said([&] {
              write_safetensors(folder / "big",
                                {tensor_to_write("a", {int64_t{1} << 40, int64_t{1} << 40}, std::span(one))});
            }).find("overflows 64 bits"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(folder / "twice"));
}

} // namespace
} // namespace paratope
