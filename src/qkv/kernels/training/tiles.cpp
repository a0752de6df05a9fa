// A few rows times any number of columns, tile by tile.
#include "tiles.h"

namespace qkv {

void strip(const Grid& a, long rows, const float* b, long b_row, long count, float* c, long c_row, long columns,
           bool add) {
    with_rows(rows, [&](auto known) {
        strip<decltype(known)::value>(a, b, b_row, count, c, c_row, columns, add);
    });
}

}  // namespace qkv
