// Room for numbers, at a place where lanes do not straddle two lines of a cache.
#pragma once

#include <memory>
#include <new>

#include "lanes.h"

namespace qkv {

struct Leave {
    void operator()(float* numbers) const { ::operator delete[](numbers, std::align_val_t(sizeof(Lanes))); }
};
typedef std::unique_ptr<float[], Leave> Room;

inline Room room_for(long count) { return Room(new (std::align_val_t(sizeof(Lanes))) float[count]); }

}  // namespace qkv
