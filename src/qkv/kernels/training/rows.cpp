// Sums, norms and activations with their backward passes, each in one pass over memory.
#include <cmath>
#include <vector>

#include "../threads.h"
#include "bends.h"
#include "chance.h"

using namespace qkv;

namespace {

// A few rows are not worth waking a thread for.
int worth(long numbers, int threads) { return numbers < 16384 ? 1 : threads; }

}  // namespace

extern "C" {

// out = x + what is kept of y; x may be null for nothing.
void join(const float* x, const float* y, float* out, long count, uint64_t seed, uint32_t dropped, int threads) {
    with_chance({seed, dropped}, count, worth(count, threads), [=](long at, long some, auto drop) {
        Lanes sum = drop(load_some(y + at, some));
        if (x) sum += load_some(x + at, some);
        store_some(sum, out + at, some);
    });
}

// out = what is kept of the activation of x.
void bend(const float* x, float* out, long count, int kind, uint64_t seed, uint32_t dropped, int threads) {
    with_activation(kind, [=](auto known) {
        with_chance({seed, dropped}, count, worth(count, threads), [=](long at, long some, auto drop) {
            Lanes value, slope;
            bent<decltype(known)::value>(load_some(x + at, some), value, slope);
            store_some(drop(value), out + at, some);
        });
    });
}

// What a slope by `bend`'s result is by its x.
void bend_back(const float* x, const float* upstream, float* out, long count, int kind, uint64_t seed,
               uint32_t dropped, int threads) {
    with_activation(kind, [=](auto known) {
        with_chance({seed, dropped}, count, worth(count, threads), [=](long at, long some, auto drop) {
            Lanes value, slope;
            bent<decltype(known)::value>(load_some(x + at, some), value, slope);
            store_some(drop(load_some(upstream + at, some)) * slope, out + at, some);
        });
    });
}

// out = x centred and scaled to a variance of 1, times gain, plus shift (or null). The mean of each
// row and what it was multiplied with are kept in `sizes`.
void norm(const float* x, const float* gain, const float* shift, float eps, float* out, float* sizes, long rows,
          long columns, int threads) {
#pragma omp parallel for num_threads(worth(rows * columns, threads))
    for (long r = 0; r < rows; r++) {
        const float* row = x + r * columns;
        float* to = out + r * columns;
        float sum = 0.0f, squares = 0.0f;
        for (long i = 0; i < columns; i++) sum += row[i];
        const float mean = sum / columns;
        for (long i = 0; i < columns; i++) squares += (row[i] - mean) * (row[i] - mean);
        const float scale = 1.0f / std::sqrt(squares / columns + eps);
        if (shift) {
            for (long i = 0; i < columns; i++) to[i] = (row[i] - mean) * scale * gain[i] + shift[i];
        } else {
            for (long i = 0; i < columns; i++) to[i] = (row[i] - mean) * scale * gain[i];
        }
        sizes[2 * r] = mean;
        sizes[2 * r + 1] = scale;
    }
}

// What slopes by `norm`'s result are by x, by gain and by shift (or null).
void norm_back(const float* x, const float* gain, const float* sizes, const float* upstream, float* to_x,
               float* to_gain, float* to_shift, long rows, long columns, int threads) {
    const int most = worth(rows * columns, threads);
    std::vector<float> parts(2 * most * columns);  // each thread adds up its own
#pragma omp parallel num_threads(most)
    {
        float* gains = parts.data() + 2 * omp_get_thread_num() * columns;
        float* shifts = gains + columns;
#pragma omp for schedule(static)
        for (long r = 0; r < rows; r++) {
            const float *row = x + r * columns, *above = upstream + r * columns;
            float* to = to_x + r * columns;
            const float mean = sizes[2 * r], scale = sizes[2 * r + 1];
            float sum = 0.0f, product = 0.0f;
            for (long i = 0; i < columns; i++) {
                const float normed = (row[i] - mean) * scale, slope = above[i] * gain[i];
                sum += slope;
                product += slope * normed;
                gains[i] += above[i] * normed;
            }
            if (to_shift) {
                for (long i = 0; i < columns; i++) shifts[i] += above[i];
            }
            const float centre = sum / columns, along = product / columns;
            for (long i = 0; i < columns; i++) {
                const float normed = (row[i] - mean) * scale;
                to[i] = scale * (above[i] * gain[i] - centre - normed * along);
            }
        }
    }
    for (int t = 0; t < most; t++) {
        const float *gains = parts.data() + 2 * t * columns, *shifts = gains + columns;
        for (long i = 0; i < columns; i++) to_gain[i] += gains[i];
        if (to_shift) {
            for (long i = 0; i < columns; i++) to_shift[i] += shifts[i];
        }
    }
}

}  // extern "C"
