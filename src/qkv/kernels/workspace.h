// Memory that a kernel needs while it runs, aligned so that no vector straddles two cache lines.
//
// Running out of memory ends the process with a message instead of throwing, so a workspace may be
// made inside an OpenMP region, where an exception could not leave the thread.
#pragma once

#include <cstring>
#include <new>
#include <utility>

#include "panic.h"
#include "simd.h"

namespace qkv {

template <class T = float>
class Workspace {
  public:
    Workspace() = default;
    explicit Workspace(long count) {
        if (count < 1) count = 1;  // never null: memcpy and memset of nothing take no null pointer either
        data = static_cast<T*>(::operator new(count * sizeof(T), ALIGNMENT, std::nothrow));
        if (!data) panic("out of memory, bytes asked for", count * static_cast<long>(sizeof(T)));
    }
    static Workspace zeros(long count) {
        Workspace workspace(count);
        std::memset(workspace.data, 0, count * sizeof(T));
        return workspace;
    }
    Workspace(Workspace&& other) noexcept : data(std::exchange(other.data, nullptr)) {}
    Workspace& operator=(Workspace&& other) noexcept {
        std::swap(data, other.data);
        return *this;
    }
    Workspace(const Workspace&) = delete;
    Workspace& operator=(const Workspace&) = delete;
    ~Workspace() { ::operator delete(data, ALIGNMENT); }

    T* get() const { return data; }
    T& operator[](long i) const { return data[i]; }

  private:
    static constexpr std::align_val_t ALIGNMENT{64};

    T* data = nullptr;
};

}  // namespace qkv
