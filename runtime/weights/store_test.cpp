// SPDX-License-Identifier: Apache-2.0
#include "runtime/weights/store.h"

#include <filesystem>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "runtime/weights/model_weights.h"
#include "runtime/weights/safetensors.h"
#include "runtime/weights/shard.h"

namespace paratope {
namespace {

namespace fs = std::filesystem;

plan::Model small_model() {
  plan::Model m;
  m.hidden = 8;
  m.layers = 1;
  m.vocab = 16;
  m.attention = "gqa";
  m.heads = 2;
  m.kv_heads = 1;
  m.head_dim = 4;
  m.routed = 4;
  m.top_k = 2;
  m.expert_width = 6;
  m.score = "softmax";
  m.seed = 3;
  return m;
}

class Store : public ::testing::Test {
protected:
  fs::path folder = fs::temp_directory_path() / fmt::format("paratope-store-{}", ::getpid());
  plan::Model model = small_model();

  void SetUp() override { fs::create_directories(folder / "w"); }
  void TearDown() override { fs::remove_all(folder); }

  // Values of the file differ from the drawn ones: element i of a tensor is i.
  static TensorToWrite counted(const plan::Weight &weight) {
    return {weight.name, "F32", weight.shape, [](int64_t first, int64_t count, void *dst) {
              for (int64_t i = 0; i < count; ++i)
                static_cast<float *>(dst)[i] = static_cast<float>(first + i);
            }};
  }
  std::vector<TensorToWrite> all_tensors() const {
    std::vector<TensorToWrite> tensors;
    for (const plan::Weight &weight : model_weights(model))
      tensors.push_back(counted(weight));
    return tensors;
  }
  std::string opened() const {
    try {
      open_weights(model, folder.string());
    } catch (const WeightError &error) {
      return error.what();
    }
    return "opened";
  }
};

TEST_F(Store, SyntheticIsDrawnByName) {
  std::vector<float> drawn(5), expected(5);
  open_weights(model, "").fill("embed", {0, 1}, 3, 5, drawn.data());
  fill_run(tensor_key(3, "embed"), 3, 5, {0, 1}, expected.data());
  EXPECT_EQ(drawn, expected);
}

TEST_F(Store, ADirectoryOfSeveralFilesIsOneModel) {
  std::vector<TensorToWrite> tensors = all_tensors();
  std::vector<TensorToWrite> second(tensors.begin() + 3, tensors.end());
  tensors.resize(3);
  write_safetensors((folder / "w/model-1.safetensors").string(), tensors);
  write_safetensors((folder / "w/model-2.safetensors").string(), second);
  write_whole_file((folder / "w/model.safetensors.index.json").string(), "not read");
  model.weights = "safetensors:w";
  const WeightStore store = open_weights(model, folder.string());
  std::vector<float> values(3);
  store.fill("embed", {0, 1}, 2, 3, values.data());
  EXPECT_EQ(values, (std::vector<float>{2, 3, 4}));
  store.fill("norm", {0, 1}, 7, 3, values.data());
  EXPECT_EQ(values, (std::vector<float>{7, 0, 0})); // behind the end is padding
  EXPECT_THROW(store.fill("nrom", {0, 1}, 0, 1, values.data()), WeightError);

  // A rank's part, by slots: experts 3 and 0 of [4, 2, 6, 8].
  plan::Weight weight{0, "layers.0.moe.w13", {4, 2, 6, 8}, "normal", 8, {{0, "ep", true}}};
  plan::Experts experts{4, 4, 2, {1, 2, 3, 0}};
  std::vector<float> part(2 * 96);
  fill_shard(weight, store, {{"ep", {1, 2}}}, experts, part.data());
  EXPECT_EQ(part[0], 3 * 96);
  EXPECT_EQ(part[96], 0);
  EXPECT_EQ(part[191], 95);

  model.weights = "safetensors:" + (folder / "w").string(); // an absolute one is not below anything
  EXPECT_NO_THROW(open_weights(model, "/nowhere"));
}

TEST_F(Store, EverythingWrongIsSaidAtOnce) {
  std::vector<TensorToWrite> tensors = all_tensors();
  const std::vector<int32_t> ints(8);
  std::erase_if(tensors,
                [](const TensorToWrite &tensor) { return tensor.name == "head" || tensor.name == "norm"; });
  for (TensorToWrite &tensor : tensors)
    if (tensor.name == "embed")
      tensor.shape = {8, 16};
  tensors.push_back(tensor_to_write("norm", {8}, std::span(ints)));
  tensors.push_back(tensor_to_write("more", {8}, std::span(ints)));
  write_safetensors((folder / "w/a.safetensors").string(), tensors);
  tensors.erase(tensors.begin(), tensors.end() - 1);
  write_safetensors((folder / "w/b.safetensors").string(), tensors);
  model.weights = "safetensors:w";
  const std::string said = opened();
  for (const char *part :
       {"tensor 'embed': got shape [8, 16], expected [16, 8]", "tensor 'norm': got dtype I32, expected F32",
        "got no tensor 'head', expected one of shape [16, 8]",
        "got tensor 'more' [8], which the model does not have", "b.safetensors: got tensor 'more', which"})
    EXPECT_NE(said.find(part), std::string::npos) << part << "\n" << said;
}

TEST_F(Store, PlacesWithoutAModelAreNamed) {
  model.weights = "safetensors:w";
  EXPECT_NE(opened().find("got no file *.safetensors"), std::string::npos);
  model.weights = "safetensors:missing";
  EXPECT_NE(opened().find("missing:\n  cannot be read: No such file"), std::string::npos);
  model.weights = "safetensors:";
  EXPECT_NE(opened().find("got weights 'safetensors:', expected synthetic or safetensors:DIR"),
            std::string::npos);
  write_whole_file((folder / "w/a.safetensors").string(), "x");
  write_whole_file((folder / "w/b.safetensors").string(), "y");
  model.weights = "safetensors:w";
  const std::string said = opened();
  EXPECT_NE(said.find("a.safetensors: got 1 bytes"), std::string::npos) << said;
  EXPECT_NE(said.find("b.safetensors: got 1 bytes"), std::string::npos) << said;
}

TEST_F(Store, LongListsAreCut) {
  model.layers = 20;
  write_safetensors((folder / "w/a.safetensors").string(), {});
  model.weights = "safetensors:w";
  EXPECT_NE(opened().find("  and "), std::string::npos);
}

} // namespace
} // namespace paratope
