// The nearest (semi-)orthogonal matrices, by Newton–Schulz iteration: the step of Muon (Jordan et al.
// 2024); see training/optimizer.py.
#include <cmath>
#include <initializer_list>
#include <utility>

#include "../export.h"
#include "../openmp.h"
#include "gemm_blocked.h"
#include "training_abi.h"

using namespace qkv;

namespace {

constexpr long DIAGONAL_STEP = 2 * LANES;  // columns by which a symmetric product begins later, row by row

// One matrix x (n, columns), n ≤ columns, and the squares (n, n) of its iteration; rows are padded to
// whole vectors.
class NewtonSchulz {
  public:
    NewtonSchulz(long n, long columns) : n(n), square_stride(round_up(n)), x_stride(round_up(columns)) {
        for (Workspace<>* matrix : {&square, &factor, &product, &other}) *matrix = Workspace<>(n * square_stride);
        for (Workspace<>* matrix : {&x, &next}) *matrix = Workspace<>(n * x_stride);
        x_transposed = Workspace<>(x_stride * square_stride);
    }

    // The matrix (n, columns), or a transposed one, which lies as (columns, n).
    void orthogonalize(const float* from, bool transposed, long columns, const Quintic& q, int steps, float* to) {
        read(from, transposed, columns);
        if (columns >= 2 * n) {
            iterate_on_squares(q, steps);
        } else {
            iterate(q, steps);
        }
        for (long r = 0; r < n; r++) {
            for (long i = 0; i < columns; i++) to[transposed ? i * n + r : r * columns + i] = x[r * x_stride + i];
        }
    }

  private:
    // x = the matrix with a Frobenius norm of 1, so that no singular value is above 1.
    void read(const float* from, bool transposed, long columns) {
        std::memset(x.get(), 0, n * x_stride * sizeof(float));
        double squares = 0.0;
        for (long r = 0; r < n; r++) {
            float row_squares = 0.0f;
            for (long i = 0; i < columns; i++) {
                const float value = from[transposed ? i * n + r : r * columns + i];
                x[r * x_stride + i] = value;
                row_squares += value * value;
            }
            squares += row_squares;
        }
        const float scale = 1.0f / (static_cast<float>(std::sqrt(squares)) + 1e-7f);
        for (long i = 0; i < n * x_stride; i++) x[i] *= scale;
    }

    // Every step multiplies x from the left by a polynomial of s = x·xᵀ.
    void iterate(const Quintic& q, int steps) {
        for (int step = 0; step < steps; step++) {
            compute_square();
            compute_factor(q);
            gemm_banded({factor.get(), square_stride, 1}, n, x.get(), x_stride, next.get(), x_stride, x_stride, false,
                        [&](long, long) { return std::make_pair(0L, n); });
            std::swap(x, next);
        }
    }

    // The same polynomials commute and are multiplied up as (n, n) squares, so that x, where it is wide, is
    // multiplied once at the end.
    void iterate_on_squares(const Quintic& q, int steps) {
        compute_square();
        for (int step = 0; step < steps; step++) {
            compute_factor(q);
            if (!step) {
                std::memcpy(product.get(), factor.get(), n * square_stride * sizeof(float));
            } else {
                multiply_symmetric(factor, product, other);
                std::swap(product, other);
            }
            if (step + 1 < steps) {
                multiply_symmetric(factor, square, other);
                multiply_symmetric(other, factor, square);
            }
        }
        if (!steps) return;
        gemm_banded({product.get(), square_stride, 1}, n, x.get(), x_stride, next.get(), x_stride, x_stride, false,
                    [&](long, long) { return std::make_pair(0L, n); });
        std::swap(x, next);
    }

    void compute_square() {
        for (long i = 0; i < x_stride; i++) {
            for (long r = 0; r < n; r++) x_transposed[i * square_stride + r] = x[r * x_stride + i];
        }
        multiply_symmetric({x.get(), x_stride, 1}, x_transposed.get(), square_stride, x_stride, square.get());
    }

    // factor = a + b·s + c·s²
    void compute_factor(const Quintic& q) {
        multiply_symmetric(square, square, factor);
        for (long i = 0; i < n * square_stride; i++) factor[i] = q.b * square[i] + q.c * factor[i];
        for (long r = 0; r < n; r++) factor[r * square_stride + r] += q.a;
    }

    void multiply_symmetric(const Workspace<>& a, const Workspace<>& b, const Workspace<>& to) {
        multiply_symmetric({a.get(), square_stride, 1}, b.get(), square_stride, n, to.get());
    }

    // A product that is symmetric: the upper triangle is computed, the lower one mirrored.
    void multiply_symmetric(const MatrixView& a, const float* b, long b_stride, long depth, float* to) {
        const long stride = square_stride;
        for (long r = 0; r < n; r += TILE_ROWS) {
            const long begin = r / DIAGONAL_STEP * DIAGONAL_STEP;
            gemm_strip(a.from(r, 0), std::min(TILE_ROWS, n - r), b + begin, b_stride, depth, to + r * stride + begin,
                       stride, stride - begin, false);
        }
        for (long r = 0; r < n; r += LANES) {  // in squares that stay in the cache
            for (long c = 0; c <= r; c += LANES) {
                for (long i = r; i < std::min(r + LANES, n); i++) {
                    for (long j = c; j < std::min(c + LANES, i); j++) to[i * stride + j] = to[j * stride + i];
                }
            }
        }
    }

    const long n, square_stride, x_stride;
    Workspace<> square, factor, product, other, x, next, x_transposed;
};

}  // namespace

// Whether that is faster here than torch's products: it is with AVX and OpenMP, and was not measured
// without.
QKV_EXPORT int qkv_newton_schulz_is_faster() {
#if defined(__AVX__) && defined(_OPENMP)
    return 1;
#else
    return 0;
#endif
}

// matrices (count, rows, columns) -> out, of the same shape.
QKV_EXPORT void qkv_newton_schulz(const float* matrices, float* out, long count, long rows, long columns,
                                  const Quintic* quintic, int steps, int threads) {
    const bool transposed = rows > columns;
    const long n = std::min(rows, columns), wide = std::max(rows, columns);
#pragma omp parallel num_threads(threads)
    {
        NewtonSchulz iteration(n, wide);
#pragma omp for schedule(static)
        for (long m = 0; m < count; m++) {
            const long at = m * rows * columns;
            iteration.orthogonalize(matrices + at, transposed, wide, *quintic, steps, out + at);
        }
    }
}
