// How many threads a pass over memory is worth.
#pragma once

namespace qkv {

inline int useful_threads(long numbers, int threads) { return numbers < 16384 ? 1 : threads; }

}  // namespace qkv
