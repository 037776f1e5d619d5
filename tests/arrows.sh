#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Includes that point the wrong way, as FOLDER: what it must not include.
set -uo pipefail
cd "$1" || exit 1
status=0
refuse() {
  local folders=$1 wrong=$2
  # shellcheck disable=SC2086
  if found=$(grep -rnE "#include [<\"](${wrong})" $folders --include='*.h' --include='*.cpp' --include='*.cu'); then
    printf '%s must not include %s:\n%s\n' "$folders" "$wrong" "$found"
    status=1
  fi
}
refuse "runtime kernels" 'mlir/|llvm/|toml\+\+|dsl/|compiler/|tools/'
refuse "kernels" 'runtime/'
refuse "dsl" 'compiler/|runtime/|kernels/|tools/|cuda'
refuse "compiler" 'runtime/(comm|exec|reference|trace|weights)|tools/|cuda'
refuse "dsl/diagnostic dsl/rearrange dsl/spec dsl/toml compiler/experts" 'mlir/|llvm/'
exit $status
