#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Question: is the GPU's rms_norm right, clean, and as fast as memory allows?
# Usage: experiments/gpu/norm.sh DIR    DIR holds kernels_norm_cuda_test (and libfmt.so.9 where the node lacks it)
set -uo pipefail
dir=$(cd "${1:?the directory of the built test}" && pwd)
export LD_LIBRARY_PATH=$dir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
date -u +%F
nvidia-smi --query-gpu=name,driver_version,power.limit --format=csv,noheader
"$dir/kernels_norm_cuda_test"
status=$?
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck; do
    printf '%s: ' "$tool"
    compute-sanitizer --tool "$tool" --error-exitcode 9 "$dir/kernels_norm_cuda_test" --no-timing 2>&1 | grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' || status=1
  done
else
  echo "compute-sanitizer is not here: not run"
fi
exit $status
