// A few rows times any number of columns, tile by tile.
#include "tiles.h"

namespace qkv {

namespace {

// A strip of so many rows, at most so many lanes at a time.
template <long rows, long lanes>
void strip_in(const Grid& a, const float* b, long b_row, long count, float* c, long c_row, long columns, bool add) {
    long i = 0;
    for (; i + lanes * LANES <= columns; i += lanes * LANES) {
        tile<rows, lanes>(a, b + i, b_row, count, c + i, c_row, add, [](long) {});
    }
    if constexpr (lanes > 1) {
        if (i < columns) strip_in<rows, lanes / 2>(a, b + i, b_row, count, c + i, c_row, columns - i, add);
    }
}

}  // namespace

void strip(const Grid& a, long rows, const float* b, long b_row, long count, float* c, long c_row, long columns,
           bool add) {
    with_rows(rows, [&](auto known) {
        strip_in<decltype(known)::value, WIDE>(a, b, b_row, count, c, c_row, columns, add);
    });
}

}  // namespace qkv
