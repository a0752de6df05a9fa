// Sums of products of rows with rows, several at a time so that each number is read once for all.
#pragma once

namespace qkv {

// out[r·apart + c] = x[r]·W[c] for neighbouring rows of both; whole numbers are multiplied and added as
// such.
template <long rows, long count, class Number, class Wide, class Sum>
inline void dots(const Wide* x, const Number* w, long columns, Sum* out, long apart) {
    Sum sum[rows][count] = {};
    for (long i = 0; i < columns; i++) {
#pragma GCC unroll 8
        for (long c = 0; c < count; c++) {
            const Wide weight = w[c * columns + i];
#pragma GCC unroll 8
            for (long r = 0; r < rows; r++) sum[r][c] += weight * x[r * columns + i];
        }
    }
    for (long r = 0; r < rows; r++) {
        for (long c = 0; c < count; c++) out[r * apart + c] = sum[r][c];
    }
}

}  // namespace qkv
