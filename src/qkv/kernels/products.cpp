// Products of several rows with a matrix, and two of them with an activation between.
//
// Few rows: each core has panels of its own, so that the matrix is read once. Many: each core has rows
// of its own, strip by strip.
#include "panels.h"
#include "room.h"
#include "threads.h"

using namespace qkv;

namespace {

constexpr long STRIP = 8 * TALL;  // rows that stay in a core's cache from one product to the next
constexpr long NEAR = 1 << 18;    // numbers that a core keeps near while it reads a matrix

long share(long count, long t, long n) { return count * t / n; }

// The place of core t of n: what it reads of a matrix, where each has panels of its own.
struct Core {
    int t = omp_get_thread_num(), n = omp_get_num_threads();

    long first(const Panels& m) const { return share(panels_in(m.outputs), t, n); }
    long last(const Panels& m) const { return share(panels_in(m.outputs), t + 1, n); }
    const float* start(const Panels* m) const {
        return m ? m->numbers + first(*m) * PANEL * m->inputs : nullptr;
    }

    template <class Bend>
    void multiply(const Panels& m, const float* x, long rows, float* out, Bend bend, const Panels* after) const {
        multiply_panels(m, x, rows, out, first(m), last(m), bend, start(after));
    }
};

template <class Bend>
void multiply_strip(const Panels& m, const float* x, long rows, float* out, Bend bend) {
    multiply_panels(m, x, rows, out, 0, panels_in(m.outputs), bend, nullptr);
}

// What is applied to a product where no activation is.
struct Nothing {
    float operator()(float x) const { return x; }
};

template <class Loop>
void with_bend(int kind, Loop loop) {
    if (kind < 0) return loop(Nothing{});
    with_activation(kind, [&](auto known) {
        loop([](float x) { return activated<decltype(known)::value>(x); });
    });
}

}  // namespace

extern "C" {

long panel_width() { return PANEL; }

// The matrix (outputs, inputs) in panels; there is room for whole ones.
void pack_panels(const float* matrix, float* panels, long outputs, long inputs) {
    for (long p = 0; p < panels_in(outputs); p++) {
        float* panel = panels + p * PANEL * inputs;
        for (long c = 0; c < PANEL; c++) {
            const long row = p * PANEL + c;
            for (long k = 0; k < inputs; k++) {
                panel[k * PANEL + c] = row < outputs ? matrix[row * inputs + k] : 0.0f;
            }
        }
    }
}

// out (rows, outputs) = bend(x (rows, inputs)·Wᵀ + b)
void multiply_rows(const Panels* m, const float* x, long rows, float* out, int kind, int threads) {
    with_bend(kind, [=](auto bend) {
        if (rows * m->inputs <= NEAR) {
#pragma omp parallel num_threads(threads)
            Core().multiply(*m, x, rows, out, bend, m->after);
            return;
        }
        const Strips strips(rows, threads, STRIP);
#pragma omp parallel for num_threads(threads)
        for (long s = 0; s < strips.count; s++) {
            const long first = strips.start(s), count = strips.start(s + 1) - first;
            multiply_strip(*m, x + first * m->inputs, count, out + first * m->outputs, bend);
        }
    });
}

// out (rows, outputs of down) = bend(x·Upᵀ + b)·Downᵀ + c; what is wide never leaves the cache.
void multiply_twice(const Panels* up, const Panels* down, const float* x, long rows, float* out, int kind,
                    int threads) {
    with_bend(kind, [=](auto bend) {
        if (rows * up->outputs <= NEAR) {
            const Room room = room_for(rows * up->outputs);
            float* bent = room.get();
#pragma omp parallel num_threads(threads)
            {
                const Core core;
                core.multiply(*up, x, rows, bent, bend, down);
#pragma omp barrier
                core.multiply(*down, bent, rows, out, Nothing{}, down->after);
            }
            return;
        }
        const Strips strips(rows, threads, STRIP);
#pragma omp parallel num_threads(threads)
        {
            const Room room = room_for(STRIP * up->outputs);
#pragma omp for
            for (long s = 0; s < strips.count; s++) {
                const long first = strips.start(s), count = strips.start(s + 1) - first;
                multiply_strip(*up, x + first * up->inputs, count, room.get(), bend);
                multiply_strip(*down, room.get(), count, out + first * down->outputs, Nothing{});
            }
        }
    });
}

}  // extern "C"
