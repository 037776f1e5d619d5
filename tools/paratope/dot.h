// SPDX-License-Identifier: Apache-2.0
//
// A step program as a Graphviz graph: compute ops as boxes, collectives as ellipses, values as edges, a frame
// around the parts of each kernel.
#pragma once

#include <string>

#include "compiler/step/dialect.h"

namespace paratope {

std::string to_dot(mlir::ModuleOp module);

} // namespace paratope
