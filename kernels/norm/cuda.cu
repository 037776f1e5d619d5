// SPDX-License-Identifier: Apache-2.0
//
// RMS norm of bf16 rows. Bound by memory: 4 bytes an element (one read, one write) and the gains, which stay
// in L2; 60 rows of 5120 are 1.2 MB, 0.3 µs at 4.3 TB/s, so at decode sizes the launch is what is paid for,
// and the kernel's place in the end is inside its neighbours. One block a row: each thread keeps its 16-byte
// pieces in registers, so a row is read once.
#include "kernels/norm/cuda.h"

namespace paratope::cuda {
namespace {

constexpr int values_per_load = 8; // bf16 in 16 bytes
constexpr int max_loads = 4;       // of a thread: 1024 · 4 · 8 = 32768 values a row

union Piece {
  uint4 bits;
  __nv_bfloat162 pairs[4];
};

__device__ float block_sum(float value) {
  __shared__ float warps[32];
  for (int offset = 16; offset > 0; offset /= 2)
    value += __shfl_xor_sync(0xffffffffu, value, offset);
  if (threadIdx.x % 32 == 0)
    warps[threadIdx.x / 32] = value;
  __syncthreads();
  float total = threadIdx.x % 32 < blockDim.x / 32 ? warps[threadIdx.x % 32] : 0.0f;
  for (int offset = 16; offset > 0; offset /= 2)
    total += __shfl_xor_sync(0xffffffffu, total, offset);
  return total;
}

template <int Loads>
__global__ void __launch_bounds__(1024)
    rms_norm_kernel(const uint4 *x, const float *gain, float eps, int pieces, float inverse_size, uint4 *y) {
  const uint4 *row = x + static_cast<int64_t>(blockIdx.x) * pieces;
  Piece held[Loads];
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < Loads; ++i) {
    int piece = threadIdx.x + i * blockDim.x;
    held[i].bits = piece < pieces ? row[piece] : uint4{0, 0, 0, 0};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float2 pair = __bfloat1622float2(held[i].pairs[j]);
      squares += pair.x * pair.x + pair.y * pair.y;
    }
  }
  float scale = rsqrtf(block_sum(squares) * inverse_size + eps);
#pragma unroll
  for (int i = 0; i < Loads; ++i) {
    int piece = threadIdx.x + i * blockDim.x;
    if (piece >= pieces)
      continue;
    const float4 *gains = reinterpret_cast<const float4 *>(gain) + 2 * piece;
    float4 low = gains[0], high = gains[1];
    float by[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    Piece out;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float2 pair = __bfloat1622float2(held[i].pairs[j]);
      out.pairs[j] = __floats2bfloat162_rn(pair.x * scale * by[2 * j], pair.y * scale * by[2 * j + 1]);
    }
    y[static_cast<int64_t>(blockIdx.x) * pieces + piece] = out.bits;
  }
}

bool aligned(const void *pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

} // namespace

cudaError_t rms_norm(const __nv_bfloat16 *x, const float *gain, float eps, int64_t rows, int64_t row_size,
                     __nv_bfloat16 *y, cudaStream_t stream) {
  if (rows < 0 || rows > INT32_MAX || row_size < values_per_load || row_size % values_per_load != 0 ||
      row_size > 1024 * max_loads * values_per_load || !aligned(x) || !aligned(y) || !aligned(gain))
    return cudaErrorInvalidValue;
  if (rows == 0)
    return cudaSuccess;
  int pieces = static_cast<int>(row_size / values_per_load);
  int loads = (pieces + 1023) / 1024;
  int threads = ((pieces + loads - 1) / loads + 31) / 32 * 32;
  auto launch = loads == 1   ? rms_norm_kernel<1>
                : loads == 2 ? rms_norm_kernel<2>
                             : rms_norm_kernel<max_loads>;
  launch<<<static_cast<unsigned>(rows), threads, 0, stream>>>(reinterpret_cast<const uint4 *>(x), gain, eps,
                                                              pieces, 1.0f / static_cast<float>(row_size),
                                                              reinterpret_cast<uint4 *>(y));
  return cudaGetLastError();
}

} // namespace paratope::cuda
