// Products of several rows with a matrix, and two of them with an activation between.
#include <vector>

#include "panels.h"
#include "threads.h"

using namespace qkv;

namespace {

constexpr long STRIP = 8 * ROWS;  // rows that stay in a core's cache from one product to the next
constexpr long NEAR = 1 << 18;    // numbers that a core keeps near while it reads a matrix

long share(long count, long t, long n) { return count * t / n; }

// Rows in strips that are all about as long, a whole number of them for each thread.
struct Strips {
    long rows, count;

    Strips(long rows, int threads) : rows(rows), count((rows + STRIP * threads - 1) / (STRIP * threads) * threads) {}

    long start(long strip) const {
        return strip == count ? rows : share((rows + ROWS - 1) / ROWS, strip, count) * ROWS;
    }
};

// What is applied to a product where no activation is.
struct Nothing {
    float operator()(float x) const { return x; }
};

template <class Loop>
void with_bend(int kind, Loop loop) {
    if (kind < 0) return loop(Nothing{});
    with_activation(kind, [&](auto known) { loop([](float x) { return activated<decltype(known)::value>(x); }); });
}

}  // namespace

extern "C" {

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

// out (rows, outputs) = bend(x (rows, inputs)·Wᵀ + b). Few rows: each core has panels of its own, so
// that the matrix is read once; many: each core has rows of its own, strip by strip.
void multiply_rows(const Panels* m, const float* x, long rows, float* out, int kind, int threads) {
    const long panels = panels_in(m->outputs);
    with_bend(kind, [=](auto bend) {
        if (rows * m->inputs <= NEAR) {
#pragma omp parallel num_threads(threads)
            {
                const int t = omp_get_thread_num(), n = omp_get_num_threads();
                multiply_panels(*m, x, rows, out, share(panels, t, n), share(panels, t + 1, n), bend);
            }
        } else {
            const Strips strips(rows, threads);
#pragma omp parallel for num_threads(threads)
            for (long s = 0; s < strips.count; s++) {
                const long first = strips.start(s), count = strips.start(s + 1) - first;
                multiply_panels(*m, x + first * m->inputs, count, out + first * m->outputs, 0, panels, bend);
            }
        }
    });
}

// out (rows, outputs of down) = bend(x·Upᵀ + b)·Downᵀ + c; what is wide never leaves the cache.
void multiply_twice(const Panels* up, const Panels* down, const float* x, long rows, float* out, int kind,
                    int threads) {
    const long wide = panels_in(up->outputs), narrow = panels_in(down->outputs);
    with_bend(kind, [=](auto bend) {
        if (rows * up->outputs <= NEAR) {
            std::vector<float> room(rows * up->outputs);
            float* bent = room.data();
#pragma omp parallel num_threads(threads)
            {
                const int t = omp_get_thread_num(), n = omp_get_num_threads();
                multiply_panels(*up, x, rows, bent, share(wide, t, n), share(wide, t + 1, n), bend);
#pragma omp barrier
                multiply_panels(*down, bent, rows, out, share(narrow, t, n), share(narrow, t + 1, n), Nothing{});
            }
        } else {
            const Strips strips(rows, threads);
#pragma omp parallel num_threads(threads)
            {
                std::vector<float> room((STRIP + ROWS) * up->outputs);
                float* bent = room.data();
#pragma omp for
                for (long s = 0; s < strips.count; s++) {
                    const long first = strips.start(s), count = strips.start(s + 1) - first;
                    multiply_panels(*up, x + first * up->inputs, count, bent, 0, wide, bend);
                    multiply_panels(*down, bent, count, out + first * down->outputs, 0, narrow, Nothing{});
                }
            }
        }
    });
}

}  // extern "C"
