// Integer matrix products, for CPUs on which torch's are slow: those without AVX-512 VNNI.
#include <algorithm>
#include <cstdint>

#include "dot_products.h"
#include "export.h"
#include "gemm_tile.h"
#include "openmp.h"
#include "workspace.h"

using namespace qkv;

namespace {

constexpr long ROWS = 4, OUTPUTS = 2;      // whose sums stay in registers, eight of sixteen
constexpr long STRIP_ROWS = 16 * ROWS;     // rows that stay in a core's L2 while it reads the matrix
constexpr long CACHED_WEIGHTS = 1 << 14;   // weights that stay in its L1

// All rows of a strip with some outputs.
void multiply_block(const int16_t* x, long rows, const int8_t* w, long outputs, long inputs, int32_t* sums,
                    long stride) {
    for (long r = 0; r < rows; r += ROWS) {
        with_rows<ROWS>(std::min(ROWS, rows - r), [=](auto tile_rows) {
            long c = 0;
            for (; c + OUTPUTS <= outputs; c += OUTPUTS) {
                dot_products<tile_rows, OUTPUTS>(x + r * inputs, w + c * inputs, inputs, sums + r * stride + c, stride);
            }
            for (; c < outputs; c++) {
                dot_products<tile_rows, 1>(x + r * inputs, w + c * inputs, inputs, sums + r * stride + c, stride);
            }
        });
    }
}

}  // namespace

// sums (rows, outputs) = x (rows, inputs) · Wᵀ, exactly. The rows are widened to 16 bits on the way: x86
// multiplies and adds pairs of those in one instruction (pmaddwd).
QKV_EXPORT void qkv_gemm_int8(const int8_t* x, const int8_t* w, int32_t* sums, long rows, long outputs, long inputs,
                              int threads) {
    const long block = CACHED_WEIGHTS / inputs < OUTPUTS ? OUTPUTS : CACHED_WEIGHTS / inputs / OUTPUTS * OUTPUTS;
#pragma omp parallel num_threads(threads)
    {
        const Workspace<int16_t> strip(std::min(STRIP_ROWS, rows) * inputs);
        long strip_start = -1;  // which rows the workspace holds
#pragma omp for collapse(2) schedule(static)
        for (long first = 0; first < rows; first += STRIP_ROWS) {
            for (long c = 0; c < outputs; c += block) {
                const long count = std::min(STRIP_ROWS, rows - first);
                if (first != strip_start) std::copy_n(x + first * inputs, count * inputs, strip.get());
                strip_start = first;
                multiply_block(strip.get(), count, w + c * inputs, std::min(block, outputs - c), inputs,
                               sums + first * outputs + c, outputs);
            }
        }
    }
}
