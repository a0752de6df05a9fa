// Products of several rows with a matrix that lies in panels.
//
// A panel is as many outputs wide as a tile. The rows of a tile meet it at a time, and it is read from
// the cache that held it for the rows before. Meanwhile a part of the next panel is asked for, so that
// it is near when the rows get there.
#pragma once

#include "numbers.h"
#include "tile.h"

namespace qkv {

constexpr long AHEAD = 8;  // inputs by which reading is ahead of computing

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

// out (rows, PANEL) += x (rows, inputs) · a panel, for at most TALL rows; `next` is read later.
inline void multiply_panel(const float* x, long rows, const float* panel, const float* next, long inputs, float* out) {
    with_rows(rows, [=](auto known) {
        tile<decltype(known)::value, WIDE>({x, inputs, 1}, panel, PANEL, inputs, out, PANEL, true, [=](long k) {
#pragma GCC unroll 4
            for (long i = 0; i < PANEL; i += LINE) __builtin_prefetch(panel + (k + AHEAD) * PANEL + i);
            __builtin_prefetch(next + k * LINE, 0, 2);
        });
    });
}

// out (rows, outputs) = bend(x (rows, inputs)·Wᵀ + b), for the outputs of some panels; `following` is
// what this core will read then, if that is known.
template <class Bend>
void multiply_panels(const Panels& m, const float* x, long rows, float* out, long from, long to, Bend bend,
                     const float* following) {
    for (long p = from; p < to; p++) {
        const long first_output = p * PANEL;
        const long width = fewer(PANEL, m.outputs - first_output);
        const float* panel = m.numbers + first_output * m.inputs;
        const float* next = p + 1 == to && following ? following : panel + PANEL * m.inputs;
        alignas(sizeof(Lanes)) float bias[PANEL] = {}, room[TALL * PANEL];
        if (m.bias) std::memcpy(bias, m.bias + first_output, width * sizeof(float));
        for (long first = 0; first < rows; first += TALL) {
            const long count = fewer(TALL, rows - first);
            const float* part = next + first / TALL % (PANEL / LINE) * LINE * m.inputs;
            for (long r = 0; r < count; r++) std::memcpy(room + r * PANEL, bias, sizeof bias);
            multiply_panel(x + first * m.inputs, count, panel, part, m.inputs, room);
            for (long r = 0; r < count; r++) {
                float* to_row = out + (first + r) * m.outputs + first_output;
                for (long i = 0; i < width; i++) to_row[i] = bend(room[r * PANEL + i]);
            }
        }
    }
}

}  // namespace qkv
