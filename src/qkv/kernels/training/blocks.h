// Products of large matrices, block by block: what a block needs stays near while it is computed.
#pragma once

#include "../room.h"
#include "tiles.h"

namespace qkv {

constexpr long HIGH = 96;   // rows of a block
constexpr long DEEP = 192;  // numbers of a row that are summed up at a time

static_assert(HIGH % TALL == 0, "blocks are cut at whole tiles");

// A matrix whose panel p begins at p·panel, and there row k at k·row.
struct Panels {
    const float* numbers;
    long panel, row;
};

// How many numbers a matrix in panels has; the last panel is filled up with zeros.
inline long packed_size(long columns, long count) { return panels_in(columns) * PANEL * count; }

// Panel p of b (count, columns), or with `turned` of a b that lies as (columns, count).
inline void pack(const float* b, long b_row, bool turned, long columns, long count, long p, float* panel) {
    const long wide = fewer(PANEL, columns - p * PANEL);
    if (wide < PANEL) std::memset(panel, 0, PANEL * count * sizeof(float));
    if (turned) {
        for (long c = 0; c < wide; c++) {
            const float* from = b + (p * PANEL + c) * b_row;
            for (long k = 0; k < count; k++) panel[k * PANEL + c] = from[k];
        }
    } else {
        for (long k = 0; k < count; k++) {
            std::memcpy(panel + k * PANEL, b + k * b_row + p * PANEL, wide * sizeof(float));
        }
    }
}

// A strip of rows with the last, narrower panel.
inline void last_panel(const Grid& a, long rows, const float* panel, long row, long count, float* c, long c_row,
                       long wide, bool add) {
    alignas(sizeof(Lanes)) float room[TALL * PANEL];
    strip(a, rows, panel, row, count, room, PANEL, filled(wide), false);
    for (long r = 0; r < rows; r++) {
        for (long i = 0; i < wide; i++) c[r * c_row + i] = room[r * PANEL + i] + (add ? c[r * c_row + i] : 0.0f);
    }
}

// c (rows, columns) = a (rows, count) · b (count, columns), or that added.
inline void block(Grid a, long rows, const Panels& b, float* c, long c_row, long columns, long count, bool add) {
    if (!count && !add) {
        for (long r = 0; r < rows; r++) std::memset(c + r * c_row, 0, columns * sizeof(float));
    }
    for (long p = 0; p * PANEL < columns; p++) {
        const long wide = fewer(PANEL, columns - p * PANEL);
        for (long deep = 0; deep < count; deep += DEEP) {
            const float* panel = b.numbers + p * b.panel + deep * b.row;
            const long some = fewer(DEEP, count - deep);
            for (long r = 0; r < rows; r += TALL) {
                const long high = fewer(TALL, rows - r);
                float* to = c + r * c_row + p * PANEL;
                if (wide % LANES) {
                    last_panel(a.from(r, deep), high, panel, b.row, some, to, c_row, wide, add || deep);
                } else {
                    strip(a.from(r, deep), high, panel, b.row, some, to, c_row, wide, add || deep);
                }
            }
        }
    }
}

// The same for an a whose rows lie side by side, far apart in memory: its blocks are drawn together.
inline void block_of_columns(Grid a, long rows, const Panels& b, float* c, long c_row, long columns, long count,
                             bool add, float* room) {
    for (long deep = 0; deep < count || !deep; deep += DEEP) {
        const long some = fewer(DEEP, count - deep);
        for (long k = 0; k < some; k++) {
            std::memcpy(room + k * HIGH, a.numbers + (deep + k) * a.column, rows * sizeof(float));
        }
        const Panels part = {b.numbers + deep * b.row, b.panel, b.row};
        block({room, 1, HIGH}, rows, part, c, c_row, columns, some, add || deep);
    }
}

}  // namespace qkv
