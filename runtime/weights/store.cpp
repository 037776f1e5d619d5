// SPDX-License-Identifier: Apache-2.0
#include "runtime/weights/store.h"

#include "runtime/weights/model_weights.h"
#include "runtime/weights/safetensors.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace paratope {

struct WeightStore::Files {
  struct Place {
    const SafetensorsFile *file;
    const StoredTensor *tensor;
  };
  std::vector<std::unique_ptr<SafetensorsFile>> files;
  std::map<std::string, Place, std::less<>> tensors;
};

namespace {

constexpr size_t most_said = 20;

// What is wrong with a directory, in the order found.
class Problems {
public:
  explicit Problems(std::string directory) : directory(std::move(directory)) {}
  template <class... Args> void add(fmt::format_string<Args...> format, Args &&...args) {
    found.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  void throw_if_any() const {
    if (found.empty())
      return;
    std::string text = fmt::format("weights of {}:", directory);
    for (size_t i = 0; i < std::min(found.size(), most_said); ++i)
      text += "\n  " + found[i];
    if (found.size() > most_said)
      text += fmt::format("\n  and {} more", found.size() - most_said);
    throw WeightError(text);
  }

private:
  std::string directory;
  std::vector<std::string> found;
};

std::vector<std::string> safetensors_of(const std::filesystem::path &directory, Problems &problems) {
  std::vector<std::string> paths;
  std::error_code failed;
  for (std::filesystem::directory_iterator it(directory, failed), end; !failed && it != end;
       it.increment(failed))
    if (it->path().extension() == ".safetensors")
      paths.push_back(it->path().string());
  if (failed)
    problems.add("cannot be read: {}", failed.message());
  else if (paths.empty())
    problems.add("got no file *.safetensors, expected at least one");
  std::sort(paths.begin(), paths.end());
  return paths;
}

} // namespace

void WeightStore::fill(std::string_view name, Init init, int64_t first, int64_t count, float *dst) const {
  if (!files) {
    fill_run(tensor_key(seed, name), first, count, init, dst);
    return;
  }
  const auto place = files->tensors.find(name);
  if (place == files->tensors.end())
    throw WeightError(fmt::format("got no tensor '{}' in the model's files", name));
  const StoredTensor &tensor = *place->second.tensor;
  const int64_t there = std::clamp<int64_t>(tensor.elements - first, 0, count);
  if (there > 0)
    place->second.file->read(tensor, first, there, dst);
  std::fill(dst + there, dst + count, 0.0f);
}

WeightStore open_weights(const plan::Model &model, const std::string &base_dir) {
  WeightStore store(model.seed);
  constexpr std::string_view scheme = "safetensors:";
  if (model.weights == "synthetic")
    return store;
  if (!model.weights.starts_with(scheme) || model.weights.size() == scheme.size())
    throw WeightError(fmt::format("got weights '{}', expected synthetic or safetensors:DIR", model.weights));
  const std::filesystem::path directory =
      std::filesystem::path(base_dir) / model.weights.substr(scheme.size());
  Problems problems(directory.string());
  auto files = std::make_shared<WeightStore::Files>();
  for (const std::string &path : safetensors_of(directory, problems))
    try {
      files->files.push_back(std::make_unique<SafetensorsFile>(path));
    } catch (const WeightError &error) {
      problems.add("{}", error.what());
    }
  problems.throw_if_any(); // what a file that is not read has cannot be missed
  for (const auto &file : files->files)
    for (const StoredTensor &tensor : file->tensors()) {
      const auto [first, fresh] =
          files->tensors.emplace(tensor.name, WeightStore::Files::Place{file.get(), &tensor});
      if (!fresh)
        problems.add("{}: got tensor '{}', which {} has too", file->path(), tensor.name,
                     first->second.file->path());
    }
  std::map<std::string, const StoredTensor *> extra;
  for (const auto &[name, place] : files->tensors)
    extra[name] = place.tensor;
  for (const plan::Weight &weight : model_weights(model)) {
    const auto place = extra.find(weight.name);
    if (place == extra.end()) {
      problems.add("got no tensor '{}', expected one of shape [{}]", weight.name,
                   fmt::join(weight.shape, ", "));
      continue;
    }
    const StoredTensor &tensor = *place->second;
    if (tensor.shape != weight.shape)
      problems.add("tensor '{}': got shape [{}], expected [{}]", weight.name, fmt::join(tensor.shape, ", "),
                   fmt::join(weight.shape, ", "));
    if (!readable_as_float(tensor.dtype))
      problems.add("tensor '{}': got dtype {}, expected F32, BF16 or F16", weight.name, tensor.dtype);
    extra.erase(place);
  }
  for (const auto &[name, tensor] : extra)
    problems.add("got tensor '{}' [{}], which the model does not have", name, fmt::join(tensor->shape, ", "));
  problems.throw_if_any();
  store.files = std::move(files);
  return store;
}

} // namespace paratope
