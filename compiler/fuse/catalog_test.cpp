// SPDX-License-Identifier: Apache-2.0
#include "compiler/fuse/catalog.h"

#include <gtest/gtest.h>

#include "dsl/spec/describe.h"

namespace paratope {
namespace {

TEST(Fusions, AreThoseOfTheLanguageInTheirOrder) {
  std::vector<std::string> names;
  for (const Fusion &fusion : fusions())
    names.push_back(fusion.name);
  EXPECT_EQ(names, fusion_names());
}

} // namespace
} // namespace paratope
