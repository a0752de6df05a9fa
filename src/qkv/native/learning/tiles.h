// Small products whose numbers stay in a core's nearest caches.
#pragma once

#include "../lanes.h"

namespace qkv {

#ifdef __AVX512F__
constexpr long TALL = 8;  // rows whose sums stay in registers
#else
constexpr long TALL = 3;
#endif

// A matrix of which the number in row r and column i is at r·row + i·column.
struct Grid {
    const float* numbers;
    long row, column;

    Grid from(long r, long i) const { return {numbers + r * row + i * column, row, column}; }
};

// c (rows, lanes·16) = a (rows, count) · b (count, lanes·16), or that added; rows of b and c lie in
// one piece, each so many numbers behind the one before.
template <long rows, long lanes>
inline void tile(const Grid& a, const float* b, long b_row, long count, float* c, long c_row, bool add) {
    Lanes sum[rows][lanes];
#pragma GCC unroll 8
    for (long r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (long l = 0; l < lanes; l++) sum[r][l] = add ? load(c + r * c_row + l * LANES) : Lanes{};
    }
    for (long i = 0; i < count; i++) {
        Lanes next[lanes];
#pragma GCC unroll 4
        for (long l = 0; l < lanes; l++) next[l] = load(b + i * b_row + l * LANES);
#pragma GCC unroll 8
        for (long r = 0; r < rows; r++) {
            const Lanes number = Lanes{} + a.numbers[r * a.row + i * a.column];
#pragma GCC unroll 4
            for (long l = 0; l < lanes; l++) sum[r][l] += number * next[l];
        }
    }
#pragma GCC unroll 8
    for (long r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (long l = 0; l < lanes; l++) store(sum[r][l], c + r * c_row + l * LANES);
    }
}

// A strip of at most `most` rows, two lanes at a time.
template <long most>
inline void strip(const Grid& a, long rows, const float* b, long b_row, long count, float* c, long c_row,
                  long columns, bool add) {
    if constexpr (most > 1) {
        if (rows < most) return strip<most - 1>(a, rows, b, b_row, count, c, c_row, columns, add);
    }
    long i = 0;
    for (; i + 2 * LANES <= columns; i += 2 * LANES) tile<most, 2>(a, b + i, b_row, count, c + i, c_row, add);
    if (i < columns) tile<most, 1>(a, b + i, b_row, count, c + i, c_row, add);
}

// c (rows, columns) = a (rows, count) · b (count, columns); columns are whole lanes. `from` and `to`
// say for the rows of a strip, first to last, between which columns of a there is something but 0.
template <class Bounds>
inline void multiply(const Grid& a, long rows, const float* b, long b_row, float* c, long c_row, long columns,
                     bool add, Bounds bounds) {
    for (long r = 0; r < rows; r += TALL) {
        const long some = rows - r < TALL ? rows - r : TALL;
        const auto [from, to] = bounds(r, r + some);
        strip<TALL>(a.from(r, from), some, b + from * b_row, b_row, to > from ? to - from : 0, c + r * c_row, c_row,
                    columns, add);
    }
}

}  // namespace qkv
