// The nearest matrices whose singular values are all about 1, by Newton and Schulz; see muon.py.
#include <cmath>
#include <initializer_list>
#include <utility>

#include "../threads.h"
#include "blocks.h"

using namespace qkv;

extern "C" {

// x ← a·x + (b·s + c·s²)·x with s = x·xᵀ.
struct Quintic {
    float a, b, c;
};

}  // extern "C"

namespace {

constexpr long HALF = 2 * LANES;  // columns: by how many a symmetric product begins later, row by row

// Squares of side n; rows have whole lanes.
class Work {
  public:
    Work(long n, long wide) : n(n), row(filled(n)), wide(filled(wide)) {
        for (Room* room : {&square, &factor, &product, &other}) *room = room_for(n * row);
        for (Room* room : {&x, &next}) *room = room_for(n * this->wide);
        side = room_for(this->wide * row);
    }

    // The matrix (n, count), or with `turned` one that lies as (count, n).
    void orthogonalise(const float* from, bool turned, long count, const Quintic& q, int steps, float* to) {
        read(from, turned, count);
        if (count >= 2 * n) {
            by_squares(q, steps);
        } else {
            directly(q, steps);
        }
        for (long r = 0; r < n; r++) {
            for (long i = 0; i < count; i++) to[turned ? i * n + r : r * count + i] = x[r * wide + i];
        }
    }

  private:
    // In rows of whole lanes, with a sum of squares of 1.
    void read(const float* from, bool turned, long count) {
        std::memset(x.get(), 0, n * wide * sizeof(float));
        double squares = 0.0;
        for (long r = 0; r < n; r++) {
            float part = 0.0f;
            for (long i = 0; i < count; i++) {
                const float number = from[turned ? i * n + r : r * count + i];
                x[r * wide + i] = number;
                part += number * number;
            }
            squares += part;
        }
        const float scale = 1.0f / (static_cast<float>(std::sqrt(squares)) + 1e-7f);
        for (long i = 0; i < n * wide; i++) x[i] *= scale;
    }

    // Every step multiplies x from the left by a polynomial of s.
    void directly(const Quintic& q, int steps) {
        for (int step = 0; step < steps; step++) {
            square_of_x();
            make_factor(q);
            multiply({factor.get(), row, 1}, n, x.get(), wide, next.get(), wide, wide, false,
                     [&](long, long) { return std::make_pair(0L, n); });
            std::swap(x, next);
        }
    }

    // So that only the small squares are worked on, and x, where it is wide, is multiplied once.
    void by_squares(const Quintic& q, int steps) {
        square_of_x();
        for (int step = 0; step < steps; step++) {
            make_factor(q);
            if (!step) {
                std::memcpy(product.get(), factor.get(), n * row * sizeof(float));
            } else {
                symmetric(factor.get(), product.get(), row, n, other.get());
                std::swap(product, other);
            }
            if (step + 1 < steps) {
                symmetric(factor.get(), square.get(), row, n, other.get());
                symmetric(other.get(), factor.get(), row, n, square.get());
            }
        }
        if (!steps) return;
        multiply({product.get(), row, 1}, n, x.get(), wide, next.get(), wide, wide, false,
                 [&](long, long) { return std::make_pair(0L, n); });
        std::swap(x, next);
    }

    void square_of_x() {
        for (long i = 0; i < wide; i++) {
            for (long r = 0; r < n; r++) side[i * row + r] = x[r * wide + i];
        }
        symmetric({x.get(), wide, 1}, side.get(), row, wide, square.get());
    }

    // a + b·s + c·s²
    void make_factor(const Quintic& q) {
        symmetric(square.get(), square.get(), row, n, factor.get());
        for (long i = 0; i < n * row; i++) factor[i] = q.b * square[i] + q.c * factor[i];
        for (long r = 0; r < n; r++) factor[r * row + r] += q.a;
    }

    void symmetric(const float* a, const float* b, long b_row, long count, float* to) {
        symmetric({a, row, 1}, b, b_row, count, to);
    }

    // A product that is symmetric: what is right of the diagonal is computed, the rest mirrored.
    void symmetric(const Grid& a, const float* b, long b_row, long count, float* to) {
        for (long r = 0; r < n; r += TALL) {
            const long from = r / HALF * HALF;
            strip(a.from(r, 0), fewer(TALL, n - r), b + from, b_row, count, to + r * row + from, row, row - from,
                        false);
        }
        for (long r = 0; r < n; r += LANES) {  // in squares that stay near
            for (long i = 0; i <= r; i += LANES) {
                for (long down = r; down < fewer(r + LANES, n); down++) {
                    for (long left = i; left < fewer(i + LANES, down); left++) to[down * row + left] = to[left * row + down];
                }
            }
        }
    }

    const long n, row, wide;
    Room square, factor, product, other, x, next, side;
};

}  // namespace

extern "C" {

// Whether that is quicker here than torch's products: it is with these registers and threads, and was not
// measured with others.
int quick_turns() {
#if defined(__AVX__) && defined(_OPENMP)
    return 1;
#else
    return 0;
#endif
}

// matrices (all, rows, columns) -> out, of the same shape.
void orthogonal(const float* matrices, float* out, long all, long rows, long columns, const Quintic* quintic,
                int steps, int threads) {
    const bool turned = rows > columns;
    const long n = turned ? columns : rows, wide = turned ? rows : columns;
#pragma omp parallel num_threads(threads)
    {
        Work work(n, wide);
#pragma omp for schedule(static)
        for (long m = 0; m < all; m++) {
            const long at = m * rows * columns;
            work.orthogonalise(matrices + at, turned, wide, *quintic, steps, out + at);
        }
    }
}

}  // extern "C"
