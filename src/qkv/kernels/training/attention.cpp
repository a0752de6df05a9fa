// Attention with its backward pass, text by text and head by head, so that all a head needs of a
// text stays in a core's own caches. Queries and keys are brought to size and turned on the way.
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "../numbers.h"
#include "../threads.h"
#include "../weigh.h"
#include "tiles.h"

using namespace qkv;

extern "C" {

// Queries, keys or values of all tokens: those of token n begin at n·row, head after head.
struct Projected {
    float* numbers;
    long row;
};

// What all heads have in common. Text b has the queries from q_starts[b] on, q_counts[b] of them,
// and so on; its position 0 is row turn_starts[b] of cos and sin.
struct Heads {
    long texts, heads, kv_heads, width;
    const int64_t *q_starts, *q_counts, *k_starts, *k_counts, *turn_starts;
    const float *q_gain, *k_gain;  // of norms over a head, or null
    float q_eps, k_eps;
    const float *cos, *sin;  // (positions, width), or null
    float scale;
    int causal;
};

}  // extern "C"

namespace {

constexpr long BLOCK = 11 * TALL;  // queries at a time

inline float total(const Lanes& x) {
    float part[LANES], sum = 0.0f;
    store(x, part);
    for (long i = 0; i < LANES; i++) sum += part[i];
    return sum;
}

inline Lanes exponentials(const Lanes& x) {
    float each[LANES];
    store(x, each);
    for (long i = 0; i < LANES; i++) each[i] = exponential(each[i]);
    return load(each);
}

// The first `count` lanes; the others become 0.
inline Lanes only(const Lanes& x, long count) {
    return first(x, count, Lanes{});
}

// A norm over a head's features and a turn by its position, there and back.
class Row {
  public:
    Row(const float* gain, float eps, long width) : gain(gain), eps(eps), width(width) {}

    // to = turned(normed(x)) × factor
    void make(const float* x, const float* cos, const float* sin, float factor, float* to) {
        float mean = 0.0f, scale = 1.0f;
        if (gain) size(x, mean, scale);
        for (long i = 0; i < width; i += LANES) {
            Lanes number = load(x + i);
            if (gain) number = (number - mean) * scale * load(gain + i);
            store(number * factor, to + i);
        }
        if (cos) turn(to, cos, sin, 1.0f);
    }

    // What slopes by `make`'s result, with factor 1, are by x; those by the gain are added up.
    void back(const float* x, const float* cos, const float* sin, float* slopes, float* to_x, float* to_gain) {
        if (cos) turn(slopes, cos, sin, -1.0f);
        if (!gain) {
            std::memcpy(to_x, slopes, width * sizeof(float));
            return;
        }
        float mean, scale;
        size(x, mean, scale);
        Lanes sums = {}, products = {};
        for (long i = 0; i < width; i += LANES) {
            const Lanes normed = (load(x + i) - mean) * scale, slope = load(slopes + i);
            const Lanes inner = slope * load(gain + i);
            sums += inner;
            products += inner * normed;
            store(load(to_gain + i) + slope * normed, to_gain + i);
        }
        const float centre = total(sums) / width, along = total(products) / width;
        for (long i = 0; i < width; i += LANES) {
            const Lanes normed = (load(x + i) - mean) * scale;
            store(scale * (load(slopes + i) * load(gain + i) - centre - normed * along), to_x + i);
        }
    }

  private:
    void size(const float* x, float& mean, float& scale) const {
        Lanes sum = {}, squares = {};
        for (long i = 0; i < width; i += LANES) sum += load(x + i);
        mean = total(sum) / width;
        for (long i = 0; i < width; i += LANES) {
            const Lanes off = load(x + i) - mean;
            squares += off * off;
        }
        scale = 1.0f / std::sqrt(total(squares) / width + eps);
    }

    // The first half of the features with the second, by each angle; sign −1 turns back.
    void turn(float* x, const float* cos, const float* sin, float sign) const {
        const long half = width / 2;
        for (long i = 0; i < half; i += LANES) {
            const Lanes a = load(x + i), b = load(x + half + i), s = load(sin + i) * sign, c = load(cos + i);
            store(a * c - b * s, x + i);
            store(b * c + a * s, x + half + i);
        }
    }

    const float* gain;
    float eps;
    long width;
};

// What one head of one text needs, in whole lanes.
class Head {
  public:
    Head(const Heads& all, bool backward)
        : all(all), E(all.width), query(all.q_gain, all.q_eps, E), key(all.k_gain, all.k_eps, E) {
        long T = 0, S = 0;
        for (long b = 0; b < all.texts; b++) {
            T = all.q_counts[b] > T ? all.q_counts[b] : T;
            S = all.k_counts[b] > S ? all.k_counts[b] : S;
        }
        const long wide = filled(S);
        q.resize(T * E), k.resize(S * E), k_turned.resize(E * wide), weights.resize(BLOCK * wide);
        if (!backward) return;
        v_turned.resize(E * wide), slopes.resize(BLOCK * wide), to_q.resize(T * E), to_k.resize(S * E);
        to_v.resize(S * E), gains.resize(2 * E);
    }

    // Keys of a text, and for the backward pass values.
    void read_keys(long b, const float* keys, long row) {
        S = all.k_counts[b], wide = filled(S);
        for (long s = 0; s < S; s++) key.make(keys + s * row, cos(b, s), sin(b, s), 1.0f, &k[s * E]);
        aside(k.data(), E, k_turned.data());
    }

    void read_values(const float* values, long row) { aside(values, row, v_turned.data()); }

    void read_queries(long b, const float* queries, long row) {
        T = all.q_counts[b], off = S - T;
        for (long t = 0; t < T; t++) query.make(queries + t * row, cos(b, t), sin(b, t), all.scale, &q[t * E]);
    }

    // out = what each query sees; logs = the logarithm of what its weights were divided by.
    void look(const float* values, long v_row, float* out, long out_row, float* logs) {
        for (long first = 0; first < T; first += BLOCK) {
            const long rows = T - first < BLOCK ? T - first : BLOCK;
            score(q.data(), k_turned.data(), first, rows, weights.data());
            for (long r = 0; r < rows; r++) logs[first + r] = shares(&weights[r * wide], seen(first + r), end(first + rows));
            multiply({weights.data(), wide, 1}, rows, values, v_row, out + first * out_row, out_row, E, false,
                     [&](long, long to) { return std::make_pair(0L, end(first + to)); });
        }
    }

    // Slopes by q, k and v from those by `look`'s result; those by k and v are added up.
    void look_back(const float* out, long out_row, const float* upstream, long up_row, const float* logs) {
        for (long first = 0; first < T; first += BLOCK) {
            const long rows = T - first < BLOCK ? T - first : BLOCK, stop = end(first + rows);
            score(q.data(), k_turned.data(), first, rows, weights.data());
            score(upstream, up_row, v_turned.data(), first, rows, slopes.data());
            for (long r = 0; r < rows; r++) {
                const long t = first + r;
                steepen(&weights[r * wide], &slopes[r * wide], out + t * out_row, upstream + t * up_row, seen(t), stop,
                        logs[t]);
            }
            const auto columns = [&](long, long to) { return std::make_pair(0L, end(first + to)); };
            // Key s is seen by the queries from s − off on.
            const auto since = [&](long from, long) {
                const long t = all.causal ? from - off - first : 0;
                return std::make_pair(t < 0 ? 0 : t, rows);
            };
            multiply({slopes.data(), wide, 1}, rows, k.data(), E, &to_q[first * E], E, E, false, columns);
            multiply({slopes.data(), 1, wide}, stop, &q[first * E], E, to_k.data(), E, E, true, since);
            multiply({weights.data(), 1, wide}, stop, upstream + first * up_row, up_row, to_v.data(), E, E, true, since);
        }
    }

    void forget() {
        std::memset(to_k.data(), 0, S * E * sizeof(float));
        std::memset(to_v.data(), 0, S * E * sizeof(float));
    }

    void write_queries(long b, const float* queries, long row, float* to, long to_row) {
        for (long t = 0; t < T; t++) {
            float* slope = &to_q[t * E];
            for (long i = 0; i < E; i++) slope[i] *= all.scale;
            query.back(queries + t * row, cos(b, t), sin(b, t), slope, to + t * to_row, gains.data());
        }
    }

    void write_keys(long b, const float* keys, long row, float* to, long to_row) {
        for (long s = 0; s < S; s++) {
            key.back(keys + s * row, cos(b, s), sin(b, s), &to_k[s * E], to + s * to_row, gains.data() + E);
        }
    }

    void write_values(float* to, long to_row) {
        for (long s = 0; s < S; s++) std::memcpy(to + s * to_row, &to_v[s * E], E * sizeof(float));
    }

    const std::vector<float>& gain_slopes() const { return gains; }

  private:
    const float* cos(long b, long place) const { return all.cos ? all.cos + (all.turn_starts[b] + place) * E : nullptr; }
    const float* sin(long b, long place) const { return all.sin ? all.sin + (all.turn_starts[b] + place) * E : nullptr; }

    // How many keys query t sees; and up to where the queries before `stop` see.
    long seen(long t) const {
        const long count = all.causal ? t + 1 + off : S;
        return count < 0 ? 0 : count > S ? S : count;
    }
    long end(long stop) const { return seen(stop - 1); }

    // Features side by side instead of positions.
    void aside(const float* rows, long row, float* to) const {
        for (long i = 0; i < E; i++) {
            float* at = to + i * wide;
            for (long s = 0; s < S; s++) at[s] = rows[s * row + i];
            for (long s = S; s < wide; s++) at[s] = 0.0f;
        }
    }

    void score(const float* rows_of, const float* turned, long first, long rows, float* to) {
        score(rows_of, E, turned, first, rows, to);
    }

    void score(const float* rows_of, long row, const float* turned, long first, long rows, float* to) {
        multiply({rows_of + first * row, row, 1}, rows, turned, wide, to, wide, filled(end(first + rows)), false,
                 [&](long, long) { return std::make_pair(0L, E); });
    }

    // Scores become weights that sum to 1 over the first `count`, and 0 up to `stop`.
    static float shares(float* row, long count, long stop) {
        if (!count) {
            std::memset(row, 0, filled(stop) * sizeof(float));
            return std::numeric_limits<float>::infinity();
        }
        Lanes top = first(load(row), count);
        for (long s = LANES; s < count; s += LANES) {
            const Lanes next = first(load(row + s), count - s);
            top = next > top ? next : top;
        }
        const float most = largest(top);
        Lanes sums = {};
        for (long s = 0; s < count; s += LANES) {
            const Lanes weight = only(exponentials(load(row + s) - most), count - s);
            sums += weight;
            store(weight, row + s);
        }
        const float sum = total(sums), share = 1.0f / sum;
        for (long s = 0; s < count; s += LANES) store(load(row + s) * share, row + s);
        std::memset(row + filled(count), 0, (filled(stop) - filled(count)) * sizeof(float));
        return most + std::log(sum);
    }

    // Scores become weights again; slopes by them become slopes by the scores.
    void steepen(float* row, float* slope, const float* out, const float* upstream, long count, long stop,
                 float log) const {
        Lanes products = {};
        for (long i = 0; i < E; i += LANES) products += load(out + i) * load(upstream + i);
        const float along = total(products);
        for (long s = 0; s < count; s += LANES) {
            const Lanes weight = only(exponentials(load(row + s) - log), count - s);
            store(weight, row + s);
            store(weight * (load(slope + s) - along), slope + s);
        }
        const long rest = (filled(stop) - filled(count)) * sizeof(float);
        std::memset(row + filled(count), 0, rest);
        std::memset(slope + filled(count), 0, rest);
    }

    const Heads& all;
    const long E;
    Row query, key;
    long T = 0, S = 0, wide = 0, off = 0;
    std::vector<float> q, k, k_turned, v_turned, weights, slopes, to_q, to_k, to_v, gains;
};

}  // namespace

extern "C" {

// out (queries, heads·width) and logs (heads, queries in all) of what every query sees.
void attend(const Heads* all, const Projected* q, const Projected* k, const Projected* v, const Projected* out,
            float* logs, long queries, int threads) {
    const long E = all->width, group = all->heads / all->kv_heads;
#pragma omp parallel num_threads(threads)
    {
        Head head(*all, false);
#pragma omp for schedule(static)
        for (long task = 0; task < all->texts * all->kv_heads; task++) {
            const long b = task / all->kv_heads, shared = task % all->kv_heads;
            const long from = all->q_starts[b], of = all->k_starts[b];
            head.read_keys(b, k->numbers + of * k->row + shared * E, k->row);
            for (long h = shared * group; h < (shared + 1) * group; h++) {
                head.read_queries(b, q->numbers + from * q->row + h * E, q->row);
                head.look(v->numbers + of * v->row + shared * E, v->row, out->numbers + from * out->row + h * E, out->row,
                          logs + h * queries + from);
            }
        }
    }
}

// Slopes by queries, keys and values, before their norms and turns, and by the two gains.
void attend_back(const Heads* all, const Projected* q, const Projected* k, const Projected* v, const Projected* out,
                 const float* logs, const Projected* upstream, const Projected* to_q, const Projected* to_k,
                 const Projected* to_v, float* to_q_gain, float* to_k_gain, long queries, int threads) {
    const long E = all->width, group = all->heads / all->kv_heads;
    std::vector<float> parts(2 * E * threads);  // each thread adds up its own
#pragma omp parallel num_threads(threads)
    {
        Head head(*all, true);
#pragma omp for schedule(static)
        for (long task = 0; task < all->texts * all->kv_heads; task++) {
            const long b = task / all->kv_heads, shared = task % all->kv_heads;
            const long from = all->q_starts[b], of = all->k_starts[b];
            const float* keys = k->numbers + of * k->row + shared * E;
            head.read_keys(b, keys, k->row);
            head.read_values(v->numbers + of * v->row + shared * E, v->row);
            head.forget();
            for (long h = shared * group; h < (shared + 1) * group; h++) {
                const float* queried = q->numbers + from * q->row + h * E;
                head.read_queries(b, queried, q->row);
                head.look_back(out->numbers + from * out->row + h * E, out->row,
                               upstream->numbers + from * upstream->row + h * E, upstream->row,
                               logs + h * queries + from);
                head.write_queries(b, queried, q->row, to_q->numbers + from * to_q->row + h * E, to_q->row);
            }
            head.write_keys(b, keys, k->row, to_k->numbers + of * to_k->row + shared * E, to_k->row);
            head.write_values(to_v->numbers + of * to_v->row + shared * E, to_v->row);
        }
        std::memcpy(&parts[2 * E * omp_get_thread_num()], head.gain_slopes().data(), 2 * E * sizeof(float));
    }
    for (int t = 0; t < threads; t++) {
        for (long i = 0; i < E; i++) {
            if (to_q_gain) to_q_gain[i] += parts[2 * E * t + i];
            if (to_k_gain) to_k_gain[i] += parts[2 * E * t + E + i];
        }
    }
}

}  // extern "C"
