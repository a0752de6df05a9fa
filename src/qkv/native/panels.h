// Products of several rows with a matrix that lies in panels.
//
// A panel is four lanes of outputs wide. Six rows meet it at a time: their 24 sums stay in registers
// while the panel is read, from the cache that held it for the rows before. Meanwhile a part of the
// next panel is asked for, so that it is near when the rows get there.
#pragma once

#include "lanes.h"
#include "numbers.h"

namespace qkv {

constexpr long PANEL = 4 * LANES;  // outputs
constexpr long ROWS = 6;           // that meet a panel at a time
constexpr long AHEAD = 8;          // inputs by which reading is ahead of computing

inline long panels_in(long outputs) { return (outputs + PANEL - 1) / PANEL; }

extern "C" {

// A matrix (outputs, inputs) as panels: the numbers of all outputs of a panel for input 0, then for
// input 1, and so on. The last panel is filled up with zeros.
struct Panels {
    const float* numbers;
    const float* bias;  // or null
    long outputs, inputs;
    const Panels* after;  // the matrix that is likely read next, or null
};

}  // extern "C"

// x (rows, inputs) with one panel -> out (rows, PANEL).
template <long rows>
void tile(const float* x, const float* panel, const float* next, long inputs, const float* bias, float* out) {
    Lanes sum[rows][4];
    for (long r = 0; r < rows; r++) {
        for (long c = 0; c < 4; c++) sum[r][c] = load(bias + c * LANES);
    }
    for (long k = 0; k < inputs; k++) {
        const float* at = panel + k * PANEL;
        for (long c = 0; c < 4; c++) __builtin_prefetch(at + AHEAD * PANEL + c * LANES);
        __builtin_prefetch(next + k * LANES, 0, 2);
        const Lanes a = load(at), b = load(at + LANES), c = load(at + 2 * LANES), d = load(at + 3 * LANES);
#pragma GCC unroll 6
        for (long r = 0; r < rows; r++) {
            const Lanes number = Lanes{} + x[r * inputs + k];
            sum[r][0] += number * a;
            sum[r][1] += number * b;
            sum[r][2] += number * c;
            sum[r][3] += number * d;
        }
    }
    for (long r = 0; r < rows; r++) {
        for (long c = 0; c < 4; c++) store(sum[r][c], out + r * PANEL + c * LANES);
    }
}

// `tile` with the number of rows as a constant, which is at most `most`.
template <long most>
void tile_of(long rows, const float* x, const float* panel, const float* next, long inputs, const float* bias,
             float* out) {
    if constexpr (most > 1) {
        if (rows < most) return tile_of<most - 1>(rows, x, panel, next, inputs, bias, out);
    }
    tile<most>(x, panel, next, inputs, bias, out);
}

// out (rows, outputs) = bend(x (rows, inputs)·Wᵀ + b), for the outputs of some panels; `following` is
// what this core will read then, if that is known.
template <class Bend>
void multiply_panels(const Panels& m, const float* x, long rows, float* out, long from, long to, Bend bend,
                     const float* following) {
    for (long p = from; p < to; p++) {
        const long first_output = p * PANEL;
        const long width = m.outputs - first_output < PANEL ? m.outputs - first_output : PANEL;
        const float* panel = m.numbers + first_output * m.inputs;
        const float* next = p + 1 == to && following ? following : panel + PANEL * m.inputs;
        float bias[PANEL] = {}, room[ROWS * PANEL];
        if (m.bias) std::memcpy(bias, m.bias + first_output, width * sizeof(float));
        for (long first = 0; first < rows; first += ROWS) {
            const long count = rows - first < ROWS ? rows - first : ROWS;
            const float* part = next + first / ROWS % 4 * LANES * m.inputs;  // a quarter at a time
            tile_of<ROWS>(count, x + first * m.inputs, panel, part, m.inputs, bias, room);
            for (long r = 0; r < count; r++) {
                float* to_row = out + (first + r) * m.outputs + first_output;
                for (long i = 0; i < width; i++) to_row[i] = bend(room[r * PANEL + i]);
            }
        }
    }
}

}  // namespace qkv
