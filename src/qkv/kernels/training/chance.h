// Dropout: which numbers become 0, drawn from nothing but a seed and their place.
//
// So nothing is kept for the backward pass: it draws the same again. Each number is judged by one
// byte; the words of one register judge four registers of numbers.
#pragma once

#include <cstdint>

#include "../lanes.h"

namespace qkv {

typedef uint32_t Words __attribute__((vector_size(WIDTH)));
constexpr long DRAWN = 4 * LANES;  // numbers judged together

struct Chance {
    uint64_t seed;
    uint32_t dropped;  // of 256

    float scale() const { return 256.0f / static_cast<float>(256 - dropped); }

    // Words for the numbers of one block: rounds of multiplying and folding.
    Words draw(uint64_t block) const {
        Words x = counted<Words>() + static_cast<uint32_t>(block * LANES) + static_cast<uint32_t>(seed);
        x = (x * 0x9e3779b1u) ^ (static_cast<uint32_t>(seed >> 32) + static_cast<uint32_t>(block >> 28));
        x = (x ^ (x >> 16)) * 0x7feb352du;
        x = (x ^ (x >> 15)) * 0x846ca68bu;
        return x ^ (x >> 16);
    }

    // Of `x`, those judged by the part-th byte of the words stay, times the scale; the others are 0.
    Lanes kept(const Lanes& x, const Words& words, int part) const {
        const Words byte = (words >> (8 * part)) & 255u;
        return byte >= dropped ? x * scale() : Lanes{};
    }
};

// Calls `change(from, to, drop)` for neighbouring lanes of `count` numbers, where drop(lanes) drops
// some of them; the last lanes may be filled up with zeros.
template <class Change>
void with_chance(const Chance& chance, long count, int threads, Change change) {
    const long blocks = (count + DRAWN - 1) / DRAWN;
#pragma omp parallel for num_threads(threads)
    for (long block = 0; block < blocks; block++) {
        const Words words = chance.dropped ? chance.draw(block) : Words{};
        for (int part = 0; part < 4; part++) {
            const long at = block * DRAWN + part * LANES;
            if (at >= count) break;
            const auto drop = [&](const Lanes& x) { return chance.dropped ? chance.kept(x, words, part) : x; };
            change(at, count - at < LANES ? count - at : LANES, drop);
        }
    }
}

// Lanes of which only the first `count` are there.
inline Lanes load_some(const float* from, long count) {
    if (count == LANES) return load(from);
    Lanes x = {};
    std::memcpy(&x, from, count * sizeof(float));
    return x;
}

inline void store_some(const Lanes& x, float* to, long count) {
    if (count == LANES) return store(x, to);
    std::memcpy(to, &x, count * sizeof(float));
}

}  // namespace qkv
