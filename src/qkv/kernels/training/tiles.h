// Small products whose numbers stay in a core's nearest caches.
#pragma once

#include "../tile.h"

namespace qkv {

// c (rows, columns) = a (rows, count) · b (count, columns), or that added, for at most TALL rows.
// Columns are whole lanes; rows of b and c lie in one piece, each so many numbers behind the one before.
void strip(const Grid& a, long rows, const float* b, long b_row, long count, float* c, long c_row, long columns,
           bool add);

// The same for any number of rows; `bounds` says of the rows of a strip, first to last, between which
// columns of a there is something but 0.
template <class Bounds>
inline void multiply(const Grid& a, long rows, const float* b, long b_row, float* c, long c_row, long columns,
                     bool add, Bounds bounds) {
    for (long r = 0; r < rows; r += TALL) {
        const long some = rows - r < TALL ? rows - r : TALL;
        const auto [from, to] = bounds(r, r + some);
        strip(a.from(r, from), some, b + from * b_row, b_row, to > from ? to - from : 0, c + r * c_row, c_row,
                    columns, add);
    }
}

}  // namespace qkv
