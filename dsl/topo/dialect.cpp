// SPDX-License-Identifier: Apache-2.0
//
// Registration of the `topo` dialect.
#include "dsl/topo/dialect.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

#include "TopoDialect.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "TopoAttrs.cpp.inc"

#define GET_OP_CLASSES
#include "TopoOps.cpp.inc"

void paratope::topo::TopoDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "TopoAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "TopoOps.cpp.inc"
      >();
}
