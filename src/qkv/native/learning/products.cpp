// Products of matrices.
#include "../threads.h"
#include "blocks.h"

using namespace qkv;

extern "C" {

// Whether this machine has registers enough for these products to be worth it.
int quick_products() { return WIDE == 4; }

// c (rows, columns) = a (rows, count) · b (count, columns), or that added. The number of a in row r
// and column i is at r·a_row + i·a_column; with `turned`, b lies as (columns, count).
void multiply(const float* a, long a_row, long a_column, const float* b, long b_row, int turned, float* c,
              long c_row, long rows, long columns, long count, int add, int threads) {
    if (!rows) return;
    if (rows * columns * count < 100000) threads = 1;
    Room packed;
    Panels panels = {b, PANEL, b_row};
    if (turned || columns % LANES || rows > 2 * count) {
        packed.reset(new float[packed_size(columns, count)]);
#pragma omp parallel for schedule(static) num_threads(threads)
        for (long p = 0; p < (columns + PANEL - 1) / PANEL; p++) {
            pack(b, b_row, turned, columns, count, p, packed.get() + p * PANEL * count);
        }
        panels = {packed.get(), PANEL * count, PANEL};
    }
    const long blocks = (rows + HIGH * threads - 1) / (HIGH * threads) * threads;  // as many for each core
    const long high = ((rows + blocks - 1) / blocks + TALL - 1) / TALL * TALL;
    const bool apart = a_row == 1 && a_column > HIGH;
#pragma omp parallel num_threads(threads)
    {
        Room room(apart ? new float[HIGH * DEEP] : nullptr);
#pragma omp for schedule(static)
        for (long r = 0; r < rows; r += high) {
            const Grid own = {a + r * a_row, a_row, a_column};
            const long some = fewer(high, rows - r);
            if (apart) {
                block_of_columns(own, some, panels, c + r * c_row, c_row, columns, count, add, room.get());
            } else {
                block(own, some, panels, c + r * c_row, c_row, columns, count, add);
            }
        }
    }
}

}  // extern "C"
