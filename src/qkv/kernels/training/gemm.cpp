// General matrix products.
#include <limits>

#include "../export.h"
#include "../openmp.h"
#include "gemm_blocked.h"

using namespace qkv;

namespace {

constexpr long SERIAL_FLOPS = 100000;  // below this, waking a thread costs more than it saves

}  // namespace

// How large the two shorter sides of a product may be, multiplied, for it to be faster here than torch's:
// never without AVX-512, where MKL is as fast even on AMD's CPUs; on Intel's, for which it is made, while
// a matrix stays in a core's cache.
QKV_EXPORT long qkv_gemm_max_area() {
#ifdef __AVX512F__
    __builtin_cpu_init();
    return __builtin_cpu_is("intel") ? 1L << 17 : std::numeric_limits<long>::max();
#else
    return 0;
#endif
}

// c (rows, columns) = a (rows, depth) · b (depth, columns), or `+=` with accumulate. a has any strides;
// a transposed b lies as (columns, depth).
QKV_EXPORT void qkv_gemm(const float* a, long a_row_stride, long a_column_stride, const float* b, long b_stride,
                         int transposed, float* c, long c_stride, long rows, long columns, long depth, int accumulate,
                         int threads) {
    if (!rows) return;
    if (rows * columns * depth < SERIAL_FLOPS) threads = 1;
    Workspace<> packed;
    PanelView panels = {b, PANEL, b_stride};
    if (transposed || columns % LANES || rows > 2 * depth) {  // else packing is not worth its copy
        packed = Workspace<>(packed_size(columns, depth));
#pragma omp parallel for schedule(static) num_threads(threads)
        for (long p = 0; p < panel_count(columns); p++) {
            pack_panel(b, b_stride, transposed, columns, depth, p, packed.get() + p * PANEL * depth);
        }
        panels = {packed.get(), PANEL * depth, PANEL};
    }
    const Strips blocks(rows, threads, BLOCK_ROWS);
    const bool gather = a_row_stride == 1 && a_column_stride > BLOCK_ROWS;
#pragma omp parallel num_threads(threads)
    {
        const Workspace<> workspace(gather ? BLOCK_ROWS * BLOCK_DEPTH : 0);
#pragma omp for schedule(static)
        for (long s = 0; s < blocks.count; s++) {
            const long r = blocks.start(s), count = blocks.start(s + 1) - r;
            const MatrixView block = {a + r * a_row_stride, a_row_stride, a_column_stride};
            if (gather) {
                gemm_block_transposed(block, count, panels, c + r * c_stride, c_stride, columns, depth, accumulate,
                                      workspace.get());
            } else {
                gemm_block(block, count, panels, c + r * c_stride, c_stride, columns, depth, accumulate);
            }
        }
    }
}
