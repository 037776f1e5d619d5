#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Every source file is as clang-format leaves it.
set -euo pipefail
cd "$2"
git ls-files '*.h' '*.cpp' '*.cu' | xargs "$1" --dry-run --Werror
