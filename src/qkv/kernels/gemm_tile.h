// The micro-kernel of every matrix product: a tile of a few rows by a few vectors, whose sums stay in
// registers (Goto and van de Geijn 2008).
#pragma once

#include <algorithm>
#include <type_traits>

#include "simd.h"

namespace qkv {

// Rows and vectors of a tile: 24 of the 32 registers of AVX-512, or twelve of the sixteen of AVX2.
constexpr long TILE_ROWS = 6;
constexpr long TILE_VECTORS = VECTOR_BYTES == 32 ? 2 : 4;
constexpr long PANEL = TILE_VECTORS * LANES;  // columns of a tile

// How many panels cover so many columns; the last may be partly empty.
inline long panel_count(long columns) { return (columns + PANEL - 1) / PANEL; }

// Calls `loop` with the number of rows, from 1 to max_rows, as a compile-time constant.
template <long max_rows = TILE_ROWS, class Loop>
inline void with_rows(long rows, Loop loop) {
    if constexpr (max_rows > 1) {
        if (rows < max_rows) return with_rows<max_rows - 1>(rows, loop);
    }
    loop(std::integral_constant<long, max_rows>{});
}

// Rows divided into strips of about equal height, at most max_rows each: a multiple of the number of
// threads, and whole tiles in all but the last.
struct Strips {
    long rows, count;

    Strips(long rows, long threads, long max_rows)
        : rows(rows), count((rows + max_rows * threads - 1) / (max_rows * threads) * threads) {}

    long start(long strip) const {
        return strip == count ? rows : (rows + TILE_ROWS - 1) / TILE_ROWS * strip / count * TILE_ROWS;
    }
};

// A matrix with any strides: the number in row r and column i is at r·row_stride + i·column_stride.
struct MatrixView {
    const float* data;
    long row_stride, column_stride;

    MatrixView from(long r, long i) const {
        return {data + r * row_stride + i * column_stride, row_stride, column_stride};
    }
};

// c (rows, vectors·LANES) = a (rows, depth) · b (depth, vectors·LANES), or `+=` with accumulate; rows of
// b and c are contiguous. prefetch(i) is called before column i of a is used.
template <long rows, long vectors, class Prefetch>
inline void gemm_tile(MatrixView a, const float* b, long b_stride, long depth, float* c, long c_stride,
                      bool accumulate, Prefetch prefetch) {
    Vec sum[rows][vectors];
#pragma GCC unroll 8
    for (long r = 0; r < rows; r++) {
        if (!accumulate) {  // so that the lines of c have arrived when they are stored
#pragma GCC unroll 4
            for (long l = 0; l < vectors; l++) __builtin_prefetch(c + r * c_stride + l * LANES, 1);
        }
#pragma GCC unroll 4
        for (long l = 0; l < vectors; l++) sum[r][l] = accumulate ? load(c + r * c_stride + l * LANES) : Vec{};
    }
    for (long i = 0; i < depth; i++) {
        prefetch(i);
        Vec b_row[vectors];
#pragma GCC unroll 4
        for (long l = 0; l < vectors; l++) b_row[l] = load(b + i * b_stride + l * LANES);
#pragma GCC unroll 8
        for (long r = 0; r < rows; r++) {
            const Vec broadcast = Vec{} + a.data[r * a.row_stride + i * a.column_stride];
#pragma GCC unroll 4
            for (long l = 0; l < vectors; l++) sum[r][l] += broadcast * b_row[l];
        }
    }
#pragma GCC unroll 8
    for (long r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (long l = 0; l < vectors; l++) store(sum[r][l], c + r * c_stride + l * LANES);
    }
}

// The same for any number of columns that is a multiple of LANES, at most so many vectors at a time.
template <long rows, long vectors = TILE_VECTORS>
inline void gemm_strip(const MatrixView& a, const float* b, long b_stride, long depth, float* c, long c_stride,
                       long columns, bool accumulate) {
    long i = 0;
    for (; i + vectors * LANES <= columns; i += vectors * LANES) {
        gemm_tile<rows, vectors>(a, b + i, b_stride, depth, c + i, c_stride, accumulate, [](long) {});
    }
    if constexpr (vectors > 1) {
        if (i < columns) {
            gemm_strip<rows, vectors / 2>(a, b + i, b_stride, depth, c + i, c_stride, columns - i, accumulate);
        }
    }
}

}  // namespace qkv
