// Products of large matrices, block by block: the operands of a block stay in the cache.
#pragma once

#include "../workspace.h"
#include "gemm_strip.h"

namespace qkv {

constexpr long BLOCK_ROWS = 96;    // rows of a block of a and c
constexpr long BLOCK_DEPTH = 192;  // products that are summed at a time

static_assert(BLOCK_ROWS % TILE_ROWS == 0, "blocks end at whole tiles");

// A matrix whose panel p begins at p·panel_stride, and row k of it at k·row_stride.
struct PanelView {
    const float* data;
    long panel_stride, row_stride;
};

// How many floats a packed matrix has; the last panel is padded with zeros.
inline long packed_size(long columns, long depth) { return panel_count(columns) * PANEL * depth; }

// Panel p of b (depth, columns), or of a transposed b, which lies as (columns, depth).
inline void pack_panel(const float* b, long b_stride, bool transposed, long columns, long depth, long p,
                       float* panel) {
    const long width = std::min(PANEL, columns - p * PANEL);
    if (width < PANEL) std::memset(panel, 0, PANEL * depth * sizeof(float));
    if (transposed) {
        for (long c = 0; c < width; c++) {
            const float* column = b + (p * PANEL + c) * b_stride;
            for (long k = 0; k < depth; k++) panel[k * PANEL + c] = column[k];
        }
    } else {
        for (long k = 0; k < depth; k++) {
            std::memcpy(panel + k * PANEL, b + k * b_stride + p * PANEL, width * sizeof(float));
        }
    }
}

// A strip of rows with the last, narrower panel: computed at full width aside, then copied.
inline void gemm_last_panel(const MatrixView& a, long rows, const float* panel, long b_stride, long depth, float* c,
                            long c_stride, long width, bool accumulate) {
    alignas(sizeof(Vec)) float tile[TILE_ROWS * PANEL];
    gemm_strip(a, rows, panel, b_stride, depth, tile, PANEL, round_up(width), false);
    for (long r = 0; r < rows; r++) {
        float* row = c + r * c_stride;
        for (long i = 0; i < width; i++) row[i] = tile[r * PANEL + i] + (accumulate ? row[i] : 0.0f);
    }
}

// c (rows, columns) = a (rows, depth) · b (depth, columns), or `+=` with accumulate.
inline void gemm_block(MatrixView a, long rows, const PanelView& b, float* c, long c_stride, long columns,
                       long depth, bool accumulate) {
    if (!depth && !accumulate) {
        for (long r = 0; r < rows; r++) std::memset(c + r * c_stride, 0, columns * sizeof(float));
    }
    for (long p = 0; p * PANEL < columns; p++) {
        const long width = std::min(PANEL, columns - p * PANEL);
        for (long k = 0; k < depth; k += BLOCK_DEPTH) {
            const float* panel = b.data + p * b.panel_stride + k * b.row_stride;
            const long block_depth = std::min(BLOCK_DEPTH, depth - k);
            for (long r = 0; r < rows; r += TILE_ROWS) {
                const long count = std::min(TILE_ROWS, rows - r);
                float* out = c + r * c_stride + p * PANEL;
                if (width % LANES) {
                    gemm_last_panel(a.from(r, k), count, panel, b.row_stride, block_depth, out, c_stride, width,
                                    accumulate || k);
                } else {
                    gemm_strip(a.from(r, k), count, panel, b.row_stride, block_depth, out, c_stride, width,
                               accumulate || k);
                }
            }
        }
    }
}

// The same for a transposed a, whose rows are far apart in memory: its blocks are gathered first.
inline void gemm_block_transposed(MatrixView a, long rows, const PanelView& b, float* c, long c_stride, long columns,
                                  long depth, bool accumulate, float* workspace) {
    for (long k = 0; k < depth || !k; k += BLOCK_DEPTH) {
        const long block_depth = std::min(BLOCK_DEPTH, depth - k);
        for (long i = 0; i < block_depth; i++) {
            std::memcpy(workspace + i * BLOCK_ROWS, a.data + (k + i) * a.column_stride, rows * sizeof(float));
        }
        const PanelView part = {b.data + k * b.row_stride, b.panel_stride, b.row_stride};
        gemm_block({workspace, 1, BLOCK_ROWS}, rows, part, c, c_stride, columns, block_depth, accumulate || k);
    }
}

}  // namespace qkv
