// SPDX-License-Identifier: Apache-2.0
//
// The safetensors format: named tensors in one file, which may come from anywhere, so nothing in it is
// believed.
//
//     [ u64 n | JSON of n bytes, {"name": {"dtype", "shape", "data_offsets": [begin, end]}, …} | tensors … ]
//                                                                              └── from here ──┘
//
// A file that is opened is mapped into memory; reading a run of a tensor touches only its pages, which is
// what lets each rank read its part of a model that is larger than memory.
#pragma once

#include "runtime/weights/random_tensor.h"

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace paratope {

struct StoredTensor {
  std::string name;
  std::string dtype; // F32, BF16, … as the file has it
  std::vector<int64_t> shape;
  int64_t elements = 0;
  int64_t begin = 0; // byte of the file
};

// The tensors of a file of these bytes, sorted by name. `file` names it in errors. Throws WeightError on a
// length that the file does not have, a header that is no such JSON (nested deeper, a name twice, a number
// that is no offset), an unknown dtype, a shape whose size overflows or is not that of its bytes, and bytes
// that two tensors or none have.
std::vector<StoredTensor> parse_safetensors(std::span<const std::byte> bytes, const std::string &file);

class SafetensorsFile {
public:
  // Throws WeightError when it cannot be opened, and as parse_safetensors.
  explicit SafetensorsFile(const std::string &path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile &) = delete;
  SafetensorsFile &operator=(const SafetensorsFile &) = delete;

  const std::string &path() const { return file; }
  const std::vector<StoredTensor> &tensors() const { return list; }
  // dst[j] = element first + j as float32, of a tensor that `readable_as_float`. 0 <= first, first + count <=
  // elements. Throws WeightError on another range or dtype.
  void read(const StoredTensor &tensor, int64_t first, int64_t count, float *dst) const;

private:
  std::string file;
  const std::byte *data = nullptr;
  size_t size = 0;
  std::vector<StoredTensor> list;
};

// F32, BF16 and F16.
bool readable_as_float(const std::string &dtype);

// One tensor to be written: F32, I32 or I64, whose elements are asked for in runs, in order.
struct TensorToWrite {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::function<void(int64_t first, int64_t count, void *dst)> fill;
};
TensorToWrite tensor_to_write(std::string name, std::vector<int64_t> shape, std::span<const float> values);
TensorToWrite tensor_to_write(std::string name, std::vector<int64_t> shape, std::span<const int32_t> values);
TensorToWrite tensor_to_write(std::string name, std::vector<int64_t> shape, std::span<const int64_t> values);

// Writes a file under a temporary name beside `path`, and renames it when it is whole: who finds it finds all
// of it. Throws WeightError where the system does not let it be written.
void write_safetensors(const std::string &path, std::vector<TensorToWrite> tensors);

// The same for a text.
void write_whole_file(const std::string &path, const std::string &text);

} // namespace paratope
