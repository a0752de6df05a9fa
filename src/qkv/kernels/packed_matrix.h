// Products of several rows with a matrix that is packed into panels.
//
// A panel is as many outputs wide as a tile. All rows are multiplied with it, a tile at a time, while it
// stays in the cache; meanwhile parts of the next panel are prefetched.
#pragma once

#include "abi.h"
#include "gemm_tile.h"

namespace qkv {

constexpr long PREFETCH_DISTANCE = 8;  // inputs by which reading is ahead of computing

// out (rows, PANEL) += x (rows, inputs) · panel, for at most TILE_ROWS rows; next_panel is prefetched.
inline void multiply_panel(const float* x, long rows, const float* panel, const float* next_panel, long inputs,
                           float* out) {
    with_rows(rows, [=](auto tile_rows) {
        const auto prefetch = [=](long k) {
#pragma GCC unroll 4
            for (long i = 0; i < PANEL; i += CACHE_LINE) {
                __builtin_prefetch(panel + (k + PREFETCH_DISTANCE) * PANEL + i);
            }
            __builtin_prefetch(next_panel + k * CACHE_LINE, 0, 2);
        };
        gemm_tile<decltype(tile_rows)::value, TILE_VECTORS>({x, inputs, 1}, panel, PANEL, inputs, out, PANEL, true,
                                                            prefetch);
    });
}

// out (rows, outputs) = activation(x (rows, inputs)·Wᵀ + b), for the outputs of panels [begin, end);
// next_matrix is what this thread reads afterwards, or null.
template <class ActivationFunction>
void multiply_panels(const PackedMatrix& m, const float* x, long rows, float* out, long begin, long end,
                     ActivationFunction activation, const float* next_matrix) {
    for (long p = begin; p < end; p++) {
        const long first_output = p * PANEL;
        const long width = std::min(PANEL, m.outputs - first_output);
        const float* panel = m.data + first_output * m.inputs;
        const float* next = p + 1 == end && next_matrix ? next_matrix : panel + PANEL * m.inputs;
        alignas(sizeof(Vec)) float bias[PANEL] = {}, tile[TILE_ROWS * PANEL];
        if (m.bias) std::memcpy(bias, m.bias + first_output, width * sizeof(float));
        for (long first = 0; first < rows; first += TILE_ROWS) {
            const long count = std::min(TILE_ROWS, rows - first);
            // Each tile prefetches another line of every row of the next panel.
            const float* next_part = next + first / TILE_ROWS % (PANEL / CACHE_LINE) * CACHE_LINE * m.inputs;
            for (long r = 0; r < count; r++) std::memcpy(tile + r * PANEL, bias, sizeof bias);
            multiply_panel(x + first * m.inputs, count, panel, next_part, m.inputs, tile);
            for (long r = 0; r < count; r++) {
                float* out_row = out + (first + r) * m.outputs + first_output;
                for (long i = 0; i < width; i++) out_row[i] = activation(tile[r * PANEL + i]);
            }
        }
    }
}

}  // namespace qkv
