// Dot products of a few rows with a few rows, so that each number is loaded once for all of them.
#pragma once

namespace qkv {

// out[r·out_stride + c] = x[r]·w[c] for neighbouring rows of both. Integers are summed exactly: Wide is
// what they are multiplied as, Sum what they are added up in.
template <long rows, long count, class Number, class Wide, class Sum>
inline void dot_products(const Wide* x, const Number* w, long columns, Sum* out, long out_stride) {
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
        for (long c = 0; c < count; c++) out[r * out_stride + c] = sum[r][c];
    }
}

}  // namespace qkv
