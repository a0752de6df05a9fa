// Matrix products small enough for a core's own caches.
#pragma once

#include "../gemm_tile.h"

namespace qkv {

// c (rows, columns) = a (rows, depth) · b (depth, columns), or `+=` with accumulate, for at most
// TILE_ROWS rows. Columns are a multiple of LANES; rows of b and c are contiguous.
void gemm_strip(const MatrixView& a, long rows, const float* b, long b_stride, long depth, float* c, long c_stride,
                long columns, bool accumulate);

// The same for any number of rows, where a is partly 0: `bounds(first, last)` returns the range of columns
// in which rows [first, last) of a may be nonzero.
template <class Bounds>
inline void gemm_banded(const MatrixView& a, long rows, const float* b, long b_stride, float* c, long c_stride,
                        long columns, bool accumulate, Bounds bounds) {
    for (long r = 0; r < rows; r += TILE_ROWS) {
        const long count = std::min(TILE_ROWS, rows - r);
        const auto [begin, end] = bounds(r, r + count);
        gemm_strip(a.from(r, begin), count, b + begin * b_stride, b_stride, end > begin ? end - begin : 0,
                   c + r * c_stride, c_stride, columns, accumulate);
    }
}

}  // namespace qkv
