// The products that everything is made of: a few rows, whose sums stay in registers.
#include "tiles.h"

namespace qkv {

namespace {

// c (rows, lanes·16) = a (rows, count) · b (count, lanes·16), or that added; rows of b and c lie in
// one piece, each so many numbers behind the one before.
template <long rows, long lanes>
void tile(const Grid& a, const float* b, long b_row, long count, float* c, long c_row, bool add) {
    Lanes sum[rows][lanes];
#pragma GCC unroll 8
    for (long r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (long l = 0; l < lanes; l++) __builtin_prefetch(c + r * c_row + l * LANES, 1);
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

// A strip of so many rows, at most so many lanes at a time.
template <long rows, long lanes>
void strip_in(const Grid& a, const float* b, long b_row, long count, float* c, long c_row, long columns, bool add) {
    long i = 0;
    for (; i + lanes * LANES <= columns; i += lanes * LANES) tile<rows, lanes>(a, b + i, b_row, count, c + i, c_row, add);
    if constexpr (lanes > 1) {
        if (i < columns) strip_in<rows, lanes / 2>(a, b + i, b_row, count, c + i, c_row, columns - i, add);
    }
}

// A strip of at most `most` rows.
template <long most>
void strip_of(const Grid& a, long rows, const float* b, long b_row, long count, float* c, long c_row,
                  long columns, bool add) {
    if constexpr (most > 1) {
        if (rows < most) return strip_of<most - 1>(a, rows, b, b_row, count, c, c_row, columns, add);
    }
    strip_in<most, WIDE>(a, b, b_row, count, c, c_row, columns, add);
}

}  // namespace

void strip(const Grid& a, long rows, const float* b, long b_row, long count, float* c, long c_row, long columns,
           bool add) {
    strip_of<TALL>(a, rows, b, b_row, count, c, c_row, columns, add);
}

}  // namespace qkv
