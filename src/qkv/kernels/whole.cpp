// Products of several rows of whole numbers, for CPUs on which torch's are slow: those without AVX-512 VNNI.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "dots.h"
#include "threads.h"
#include "tile.h"

using namespace qkv;

namespace {

constexpr long ROWS = 4, OUTPUTS = 2;  // whose sums stay in registers, eight of sixteen
constexpr long STRIP = 16 * ROWS;      // rows that stay in a core's cache while it reads the matrix
constexpr long NEAR = 1 << 14;         // numbers of a matrix that stay in its nearest one

// All rows of a strip with some outputs.
void multiply_block(const int16_t* x, long rows, const int8_t* w, long outputs, long inputs, int32_t* sums,
                    long apart) {
    for (long r = 0; r < rows; r += ROWS) {
        with_rows<ROWS>(fewer(ROWS, rows - r), [=](auto tall) {
            long c = 0;
            for (; c + OUTPUTS <= outputs; c += OUTPUTS) {
                dots<tall, OUTPUTS>(x + r * inputs, w + c * inputs, inputs, sums + r * apart + c, apart);
            }
            for (; c < outputs; c++) {
                dots<tall, 1>(x + r * inputs, w + c * inputs, inputs, sums + r * apart + c, apart);
            }
        });
    }
}

}  // namespace

extern "C" {

// sums (rows, outputs) = x (rows, inputs) · Wᵀ, exactly. The rows are kept in 16 bits on the way: a
// compiler has one instruction for sixteen such products.
void multiply_whole(const int8_t* x, const int8_t* w, int32_t* sums, long rows, long outputs, long inputs,
                    int threads) {
    const long block = NEAR / inputs < OUTPUTS ? OUTPUTS : NEAR / inputs / OUTPUTS * OUTPUTS;
#pragma omp parallel num_threads(threads)
    {
        std::vector<int16_t> wide(fewer(STRIP, rows) * inputs);
        long widened = -1;  // which strip that is
#pragma omp for collapse(2) schedule(static)
        for (long first = 0; first < rows; first += STRIP) {
            for (long c = 0; c < outputs; c += block) {
                const long some = fewer(STRIP, rows - first);
                if (first != widened) std::copy_n(x + first * inputs, some * inputs, wide.data());
                widened = first;
                multiply_block(wide.data(), some, w + c * inputs, fewer(block, outputs - c), inputs,
                               sums + first * outputs + c, outputs);
            }
        }
    }
}

}  // extern "C"
