// SPDX-License-Identifier: Apache-2.0
//
// The GPU twin of op.h's rms_norm.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

namespace paratope::cuda {

// y = x · rsqrt(mean(x²) + eps) · gain, over whole rows. x, y [rows, row_size] bf16, 16-byte aligned; gain
// [row_size] f32; sums in f32. row_size is a multiple of 8, 8 to 32768. Launches on `stream` and returns
// without waiting; cudaErrorInvalidValue for sizes or pointers it does not take. rows 0 launches nothing. May
// run in place.
cudaError_t rms_norm(const __nv_bfloat16 *x, const float *gain, float eps, int64_t rows, int64_t row_size,
                     __nv_bfloat16 *y, cudaStream_t stream);

} // namespace paratope::cuda
