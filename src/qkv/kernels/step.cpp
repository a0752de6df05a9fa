// One more token of one sequence through all layers of a decoder of Llama's kind, in one call.
#include <limits>
#include <vector>

#include "attend.h"
#include "dots.h"
#include "threads.h"

using namespace qkv;

extern "C" {

// A matrix (rows, columns), in float32 or, with a scale for each row, in 8 bits; bias may be null.
struct Matrix {
    const void* numbers;
    const float* scale;
    const float* bias;
    long rows, columns;
};

// What a norm by root mean squares multiplies each number with, and what keeps it from dividing by 0.
struct Norm {
    const float* gain;
    float eps;
};

// One layer; keys and values are (kv_heads, capacity, width of a head).
struct Layer {
    Norm attention, feed_forward;
    Matrix project, output, widen, narrow;
    float* keys;
    float* values;
};

// What all layers have in common.
struct Shape {
    long width, heads, kv_heads, head_width, hidden, capacity;
    long turned;     // features of a head that turn with the position
    int adjacent;    // whether neighbours are turned together, or halves
    int activation;
    float scale;     // of the scores
    Norm last;       // behind all layers
};

}  // extern "C"

namespace {

constexpr long TOGETHER = 4;  // rows of a matrix that are read at a time
constexpr long BLOCK = 1024;  // scores that are added up by themselves

// The longest row that any matrix of a layer is multiplied with.
long longest(const Shape& s) {
    const long mixed = s.heads * s.head_width, narrow = s.width > mixed ? s.width : mixed;
    return s.hidden > narrow ? s.hidden : narrow;
}

// From which one on thread t of n works; rows only by whole groups, so that each is computed in
// the same way whatever n is.
long share(long count, int t, int n) { return count * t / n; }
long share_of_rows(long rows, int t, int n) {
    return t == n ? rows : share(rows / TOGETHER, t, n) * TOGETHER;
}

template <class Number, class Wide, class Sum>
void products(const Number* w, const Wide* x, long columns, Sum* out, long from, long to) {
    long r = from;
    for (; r + TOGETHER <= to; r += TOGETHER) {
        dots<1, TOGETHER>(x, w + r * columns, columns, out + r, 0);
    }
    for (; r < to; r++) dots<1, 1>(x, w + r * columns, columns, out + r, 0);
}

// out[from:to] = W[from:to]·x + b; `room` is for x in whole numbers. They have 8 bits, as in rows.cpp,
// so that a row alone gives what it gives among others; 16 are only quicker to multiply with.
void multiply(const Matrix& m, const float* x, int16_t* room, float* out, long from, long to) {
    if (m.scale) {
        const float step = size_of(x, m.columns) / LARGEST;
        round_row(x, m.columns, step, room);
        auto* sums = reinterpret_cast<int32_t*>(out);  // a sum gives way to what it stands for
        products(static_cast<const int8_t*>(m.numbers), room, m.columns, sums, from, to);
        for (long r = from; r < to; r++) out[r] = sums[r] * step * m.scale[r];
    } else {
        products(static_cast<const float*>(m.numbers), x, m.columns, out, from, to);
    }
    if (m.bias) {
        for (long r = from; r < to; r++) out[r] += m.bias[r];
    }
}

// `out` may be x itself.
void root_mean_square(const Norm& norm, const float* x, long width, float* out) {
    float squares = 0.0f;
    for (long i = 0; i < width; i++) squares += x[i] * x[i];
    const float scale = 1.0f / std::sqrt(squares / width + norm.eps);
    for (long i = 0; i < width; i++) out[i] = x[i] * scale * norm.gain[i];
}

Matrix rows_of(const Matrix& m, long from, long to) {
    const long size = m.scale ? sizeof(int8_t) : sizeof(float);
    return {static_cast<const char*>(m.numbers) + from * m.columns * size, m.scale ? m.scale + from : nullptr,
            m.bias ? m.bias + from : nullptr, to - from, m.columns};
}

// Of some scores: the largest, where it is, and Σ e^(score − largest).
struct Share {
    float most;
    long at;
    float total;
};

Share share_of(const float* scores, long count) {
    int32_t order = order_of(scores[0]), at = count;
    for (long i = 0; i < count; i++) {
        const int32_t other = order_of(scores[i]);
        order = other > order ? other : order;
    }
    for (int32_t i = 0; i < count; i++) {
        const int32_t here = order_of(scores[i]) == order ? i : count;
        at = here < at ? here : at;
    }
    const float most = at_order(order);
    if (most == -std::numeric_limits<float>::infinity()) return {most, at, 0.0f};
    float total = 0.0f;
    for (long i = 0; i < count; i++) total += exponential(scores[i] - most);
    return {most, at, total};
}

void turn(float* head, const float* cosines, const float* sines, const Shape& s) {
    const long half = s.turned / 2, stride = s.adjacent ? 2 : 1, apart = s.adjacent ? 1 : half;
    for (long i = 0; i < half; i++) {
        const float a = head[i * stride], b = head[i * stride + apart];
        head[i * stride] = a * cosines[i * stride] - b * sines[i * stride];
        head[i * stride + apart] = a * sines[i * stride] + b * cosines[i * stride];
    }
}

}  // namespace

extern "C" {

// x (width) through all layers and the last norm; it stands at `position`, which its keys and values
// are added at. cosines and sines have a row (turned) for each position; room is for all that is named
// at the beginning.
void decode(const Layer* layers, long count, const Shape* shape, float* x, const float* cosines,
            const float* sines, long position, float* room, int threads) {
    const Shape s = *shape;
    cosines += position * s.turned;
    sines += position * s.turned;
    const long E = s.head_width, group = s.heads / s.kv_heads;
    float* asked = room;                                    // queries, keys, values
    float* mixed = asked + (s.heads + 2 * s.kv_heads) * E;  // what the heads saw
    float* wide = mixed + s.heads * E;                      // gate, then up
    float* more = wide + 2 * s.hidden;                      // what is added to x
#pragma omp parallel num_threads(threads)
    {
        const int t = omp_get_thread_num(), n = omp_get_num_threads();
        std::vector<float> own(s.width);
        std::vector<int16_t> whole(longest(s));
        int16_t* row = whole.data();
        float* normed = own.data();
        Attention attention(position + 1);
        Places places(position + 1);
        places.find(nullptr, position + 1);
        for (long l = 0; l < count; l++) {
            const Layer& layer = layers[l];
            root_mean_square(layer.attention, x, s.width, normed);
            const long all = layer.project.rows;
            multiply(layer.project, normed, row, asked, share_of_rows(all, t, n),
                     share_of_rows(all, t + 1, n));
#pragma omp barrier
            for (long k = share(s.kv_heads, t, n); k < share(s.kv_heads, t + 1, n); k++) {
                float* key = asked + (s.heads + k) * E;
                const float* value = asked + (s.heads + s.kv_heads + k) * E;
                float* keys = layer.keys + k * s.capacity * E;
                float* values = layer.values + k * s.capacity * E;
                turn(key, cosines, sines, s);
                std::memcpy(keys + position * E, key, E * sizeof(float));
                std::memcpy(values + position * E, value, E * sizeof(float));
                for (long h = k * group; h < (k + 1) * group; h++) {
                    turn(asked + h * E, cosines, sines, s);
                    attention.look(asked + h * E, {keys, E}, {values, E}, places, E, s.scale, mixed + h * E);
                }
            }
#pragma omp barrier
            const long from = share_of_rows(s.width, t, n), to = share_of_rows(s.width, t + 1, n);
            multiply(layer.output, mixed, row, more, from, to);
            for (long i = from; i < to; i++) x[i] += more[i];
#pragma omp barrier
            root_mean_square(layer.feed_forward, x, s.width, normed);
            const long first = share_of_rows(s.hidden, t, n);
            const long last = share_of_rows(s.hidden, t + 1, n);
            multiply(layer.widen, normed, row, wide, first, last);
            multiply(layer.widen, normed, row, wide, s.hidden + first, s.hidden + last);
            with_activation(s.activation, [=](auto known) {
                for (long i = first; i < last; i++) {
                    wide[i] = activated<known>(wide[i]) * wide[s.hidden + i];
                }
            });
#pragma omp barrier
            multiply(layer.narrow, wide, row, more, from, to);
            for (long i = from; i < to; i++) x[i] += more[i];
#pragma omp barrier
        }
    }
    root_mean_square(s.last, x, s.width, x);
}

// Row `at` of a matrix in 8 bits.
void row_of(const Matrix* m, long at, float* out) {
    const int8_t* row = static_cast<const int8_t*>(m->numbers) + at * m->columns;
    for (long i = 0; i < m->columns; i++) out[i] = row[i] * m->scale[at];
}

// out = W·x + b
void multiply_one(const Matrix* m, const float* x, float* out, int threads) {
#pragma omp parallel num_threads(threads)
    {
        const int t = omp_get_thread_num(), n = omp_get_num_threads();
        std::vector<int16_t> whole(m->columns);
        multiply(*m, x, whole.data(), out, share_of_rows(m->rows, t, n),
                 share_of_rows(m->rows, t + 1, n));
    }
}

// Which of the first `known` numbers of W·x + b is the largest, and the logarithm of what a softmax over
// them gives it. Blocks are added up in their order, however many threads there are.
long likeliest(const Matrix* m, const float* x, long known, float* logarithm, int threads) {
    const long blocks = (known + BLOCK - 1) / BLOCK;
    std::vector<Share> found(blocks);
#pragma omp parallel num_threads(threads)
    {
        const int t = omp_get_thread_num(), n = omp_get_num_threads();
        std::vector<int16_t> whole(m->columns);
        float scores[BLOCK];
        for (long b = share(blocks, t, n); b < share(blocks, t + 1, n); b++) {
            const long from = b * BLOCK, count = known - from < BLOCK ? known - from : BLOCK;
            multiply(rows_of(*m, from, from + count), x, whole.data(), scores, 0, count);
            found[b] = share_of(scores, count);
        }
    }
    long best = 0;
    for (long b = 1; b < blocks; b++) {
        if (found[b].most > found[best].most) best = b;
    }
    float total = 0.0f;
    for (const Share& one : found) total += one.total * std::exp(one.most - found[best].most);
    *logarithm = -std::log(total);
    return best * BLOCK + found[best].at;
}

}  // extern "C"
