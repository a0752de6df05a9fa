// Dropout whose mask is a function of a seed and the index of each number.
//
// So nothing is stored for the backward pass: it computes the same mask again. One random byte decides
// about each number; the words of one register decide about four registers of floats.
#pragma once

#include <algorithm>
#include <cstdint>

#include "../simd.h"

namespace qkv {

typedef uint32_t Words __attribute__((vector_size(VECTOR_BYTES)));
constexpr long DROPOUT_BLOCK = 4 * LANES;  // floats decided about by one draw

struct Dropout {
    uint64_t seed;
    uint32_t threshold;  // a number is dropped if its byte is below: threshold / 256 of them

    float scale() const { return 256.0f / static_cast<float>(256 - threshold); }

    // Random words for one block: a counter through rounds of multiply and xor-shift (lowbias32 by
    // Wellons, a mixer in the style of MurmurHash3's).
    Words random(uint64_t block) const {
        Words x = iota<Words>() + static_cast<uint32_t>(block * LANES) + static_cast<uint32_t>(seed);
        x = (x * 0x9e3779b1u) ^ (static_cast<uint32_t>(seed >> 32) + static_cast<uint32_t>(block >> 28));
        x = (x ^ (x >> 16)) * 0x7feb352du;
        x = (x ^ (x >> 15)) * 0x846ca68bu;
        return x ^ (x >> 16);
    }

    // x × scale where byte `part` of the words is at or above the threshold, else 0.
    Vec apply(const Vec& x, const Words& words, int part) const {
        const Words byte = (words >> (8 * part)) & 255u;
        return byte >= threshold ? x * scale() : Vec{};
    }
};

// Calls `body(at, count, drop)` for each vector of `count` numbers, where drop(x) applies the dropout to
// it; the last vector may have fewer than LANES.
template <class Body>
void for_each_vector(const Dropout& dropout, long count, int threads, Body body) {
    const long blocks = (count + DROPOUT_BLOCK - 1) / DROPOUT_BLOCK;
#pragma omp parallel for num_threads(threads)
    for (long block = 0; block < blocks; block++) {
        const Words words = dropout.threshold ? dropout.random(block) : Words{};
        for (int part = 0; part < 4; part++) {
            const long at = block * DROPOUT_BLOCK + part * LANES;
            if (at >= count) break;
            const auto drop = [&](const Vec& x) { return dropout.threshold ? dropout.apply(x, words, part) : x; };
            body(at, std::min(LANES, count - at), drop);
        }
    }
}

// The first `count` lanes from memory; the others are 0.
inline Vec load_partial(const float* from, long count) {
    if (count == LANES) return load(from);
    Vec x = {};
    std::memcpy(&x, from, count * sizeof(float));
    return x;
}

inline void store_partial(const Vec& x, float* to, long count) {
    if (count == LANES) return store(x, to);
    std::memcpy(to, &x, count * sizeof(float));
}

}  // namespace qkv
