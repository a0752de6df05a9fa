// Products of matrices.
#include <limits>

#include "../threads.h"
#include "blocks.h"

using namespace qkv;

extern "C" {

// How large the two shorter sides of a product may be, multiplied, for it to be quicker here than
// torch's: never without AVX-512, where MKL is as quick even on AMD's CPUs; on Intel's, for which it is
// made, while a matrix stays in a core's cache.
long quick_products() {
#ifdef __AVX512F__
    __builtin_cpu_init();
    return __builtin_cpu_is("intel") ? 1L << 17 : std::numeric_limits<long>::max();
#else
    return 0;
#endif
}

// c (rows, columns) = a (rows, count) · b (count, columns), or that added. The number of a in row r
// and column i is at r·a_row + i·a_column; with `turned`, b lies as (columns, count).
void multiply(const float* a, long a_row, long a_column, const float* b, long b_row, int turned, float* c,
              long c_row, long rows, long columns, long count, int add, int threads) {
    if (!rows) return;
    if (rows * columns * count < 100000) threads = 1;
    Room packed;
    Panels panels = {b, PANEL, b_row};
    if (turned || columns % LANES || rows > 2 * count) {
        packed = room_for(packed_size(columns, count));
#pragma omp parallel for schedule(static) num_threads(threads)
        for (long p = 0; p < panels_in(columns); p++) {
            pack(b, b_row, turned, columns, count, p, packed.get() + p * PANEL * count);
        }
        panels = {packed.get(), PANEL * count, PANEL};
    }
    const Strips blocks(rows, threads, HIGH);
    const bool apart = a_row == 1 && a_column > HIGH;
#pragma omp parallel num_threads(threads)
    {
        Room room = room_for(apart ? HIGH * DEEP : 0);
#pragma omp for schedule(static)
        for (long s = 0; s < blocks.count; s++) {
            const long r = blocks.start(s), some = blocks.start(s + 1) - r;
            const Grid own = {a + r * a_row, a_row, a_column};
            if (apart) {
                block_of_columns(own, some, panels, c + r * c_row, c_row, columns, count, add, room.get());
            } else {
                block(own, some, panels, c + r * c_row, c_row, columns, count, add);
            }
        }
    }
}

}  // extern "C"
