// What products of matrices are made of: a few rows by a few lanes, whose sums stay in registers.
#pragma once

#include <type_traits>

#include "lanes.h"

namespace qkv {

// Rows and lanes of a tile: 24 registers of 32, or twelve of the sixteen that AVX2 has.
constexpr long TALL = 6;
constexpr long WIDE = WIDTH == 32 ? 2 : 4;
constexpr long PANEL = WIDE * LANES;  // columns of a tile

inline long fewer(long a, long b) { return a < b ? a : b; }

// How many tiles side by side have so many columns; the last may be narrower.
inline long panels_in(long columns) { return (columns + PANEL - 1) / PANEL; }

// Calls what is given with the number of rows, from 1 to TALL, as a constant.
template <long most = TALL, class Loop>
inline void with_rows(long rows, Loop loop) {
    if constexpr (most > 1) {
        if (rows < most) return with_rows<most - 1>(rows, loop);
    }
    loop(std::integral_constant<long, most>{});
}

// Rows in parts that are about equally long and have at most `most`, a whole number of parts for each
// core, and whole tiles in all but the last.
struct Strips {
    long rows, count;

    Strips(long rows, long cores, long most) : rows(rows), count((rows + most * cores - 1) / (most * cores) * cores) {}

    long start(long strip) const {
        return strip == count ? rows : (rows + TALL - 1) / TALL * strip / count * TALL;
    }
};

// A matrix of which the number in row r and column i is at r·row + i·column.
struct Grid {
    const float* numbers;
    long row, column;

    Grid from(long r, long i) const { return {numbers + r * row + i * column, row, column}; }
};

// c (rows, so many lanes) = a (rows, count) · b (count, so many), or that added; rows of b and c lie in
// one piece, each so many numbers behind the one before. ahead(i) is called before column i of a is
// used, and may ask for what is read later.
template <long rows, long lanes, class Ahead>
inline void tile(Grid a, const float* b, long b_row, long count, float* c, long c_row, bool add,
                 Ahead ahead) {
    Lanes sum[rows][lanes];
#pragma GCC unroll 8
    for (long r = 0; r < rows; r++) {
        if (!add) {  // so that what is written last is near by then
#pragma GCC unroll 4
            for (long l = 0; l < lanes; l++) __builtin_prefetch(c + r * c_row + l * LANES, 1);
        }
#pragma GCC unroll 4
        for (long l = 0; l < lanes; l++) sum[r][l] = add ? load(c + r * c_row + l * LANES) : Lanes{};
    }
    for (long i = 0; i < count; i++) {
        ahead(i);
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

// The same for any number of whole lanes, at most so many at a time.
template <long rows, long lanes = WIDE>
inline void strip(const Grid& a, const float* b, long b_row, long count, float* c, long c_row, long columns, bool add) {
    long i = 0;
    for (; i + lanes * LANES <= columns; i += lanes * LANES) {
        tile<rows, lanes>(a, b + i, b_row, count, c + i, c_row, add, [](long) {});
    }
    if constexpr (lanes > 1) {
        if (i < columns) strip<rows, lanes / 2>(a, b + i, b_row, count, c + i, c_row, columns - i, add);
    }
}

}  // namespace qkv
