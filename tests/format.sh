#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Every source file is as clang-format leaves it.
set -euo pipefail
cd "$2"
find . -path ./build -prune -o \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' \) -print0 | xargs -0 "$1" --dry-run --Werror
