// A few rows times any number of columns: compiled once, as every tile shape is a template of its own.
#include "gemm_strip.h"

namespace qkv {

void gemm_strip(const MatrixView& a, long rows, const float* b, long b_stride, long depth, float* c, long c_stride,
                long columns, bool accumulate) {
    with_rows(rows, [&](auto tile_rows) {
        gemm_strip<decltype(tile_rows)::value>(a, b, b_stride, depth, c, c_stride, columns, accumulate);
    });
}

}  // namespace qkv
