// Linear layers of several rows, and two of them with an activation between.
//
// Few rows: each thread has panels of its own, so that the matrix is read once. Many rows: each thread
// has rows of its own, strip by strip.
#include "activations.h"
#include "export.h"
#include "openmp.h"
#include "packed_matrix.h"
#include "workspace.h"

using namespace qkv;

namespace {

constexpr long STRIP_ROWS = 8 * TILE_ROWS;   // rows that stay in a core's cache from one product to the next
constexpr long CACHED_FLOATS = 1 << 18;      // activations that a core keeps cached while it reads a matrix

long chunk_start(long count, long t, long n) { return count * t / n; }

// Thread t of n, and which panels of a matrix are its own.
struct Thread {
    int t = omp_get_thread_num(), n = omp_get_num_threads();

    long begin(const PackedMatrix& m) const { return chunk_start(panel_count(m.outputs), t, n); }
    long end(const PackedMatrix& m) const { return chunk_start(panel_count(m.outputs), t + 1, n); }
    const float* data(const PackedMatrix* m) const {
        return m ? m->data + begin(*m) * PANEL * m->inputs : nullptr;
    }

    template <class ActivationFunction>
    void multiply(const PackedMatrix& m, const float* x, long rows, float* out, ActivationFunction activation,
                  const PackedMatrix* next) const {
        multiply_panels(m, x, rows, out, begin(m), end(m), activation, data(next));
    }
};

template <class ActivationFunction>
void multiply_strip(const PackedMatrix& m, const float* x, long rows, float* out, ActivationFunction activation) {
    multiply_panels(m, x, rows, out, 0, panel_count(m.outputs), activation, nullptr);
}

struct Identity {
    float operator()(float x) const { return x; }
};

// A negative kind is no activation at all.
template <class Loop>
void with_optional_activation(int kind, Loop loop) {
    if (kind < 0) return loop(Identity{});
    with_activation(kind, [&](auto known) {
        loop([](float x) { return activate<decltype(known)::value>(x); });
    });
}

}  // namespace

QKV_EXPORT long qkv_panel_width() { return PANEL; }

// The matrix (outputs, inputs) as panels; `panels` has space for whole ones.
QKV_EXPORT void qkv_pack_panels(const float* matrix, float* panels, long outputs, long inputs) {
    for (long p = 0; p < panel_count(outputs); p++) {
        float* panel = panels + p * PANEL * inputs;
        for (long c = 0; c < PANEL; c++) {
            const long row = p * PANEL + c;
            for (long k = 0; k < inputs; k++) {
                panel[k * PANEL + c] = row < outputs ? matrix[row * inputs + k] : 0.0f;
            }
        }
    }
}

// out (rows, outputs) = activation(x (rows, inputs)·Wᵀ + b)
QKV_EXPORT void qkv_linear(const PackedMatrix* m, const float* x, long rows, float* out, int kind, int threads) {
    with_optional_activation(kind, [=](auto activation) {
        if (rows * m->inputs <= CACHED_FLOATS) {
#pragma omp parallel num_threads(threads)
            Thread().multiply(*m, x, rows, out, activation, m->next);
            return;
        }
        const Strips strips(rows, threads, STRIP_ROWS);
#pragma omp parallel for num_threads(threads)
        for (long s = 0; s < strips.count; s++) {
            const long first = strips.start(s), count = strips.start(s + 1) - first;
            multiply_strip(*m, x + first * m->inputs, count, out + first * m->outputs, activation);
        }
    });
}

// out (rows, outputs of down) = activation(x·Upᵀ + b)·Downᵀ + c; the hidden rows stay in the cache.
QKV_EXPORT void qkv_feed_forward(const PackedMatrix* up, const PackedMatrix* down, const float* x, long rows,
                                 float* out, int kind, int threads) {
    with_optional_activation(kind, [=](auto activation) {
        if (rows * up->outputs <= CACHED_FLOATS) {
            const Workspace<> workspace(rows * up->outputs);
            float* hidden = workspace.get();
#pragma omp parallel num_threads(threads)
            {
                const Thread thread;
                thread.multiply(*up, x, rows, hidden, activation, down);
#pragma omp barrier
                thread.multiply(*down, hidden, rows, out, Identity{}, down->next);
            }
            return;
        }
        const Strips strips(rows, threads, STRIP_ROWS);
#pragma omp parallel num_threads(threads)
        {
            const Workspace<> hidden(STRIP_ROWS * up->outputs);
#pragma omp for
            for (long s = 0; s < strips.count; s++) {
                const long first = strips.start(s), count = strips.start(s + 1) - first;
                multiply_strip(*up, x + first * up->inputs, count, hidden.get(), activation);
                multiply_strip(*down, hidden.get(), count, out + first * down->outputs, Identity{});
            }
        }
    });
}
