"""The cache is a list of columns that remembers exactly what was put in."""

import re
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from qkv.attention import (
    AlibiMask,
    CrossLayerCache,
    KVCache,
    LayerCache,
    Mask,
    NoLayerCache,
    attend,
)
from qkv.errors import CacheError

LAYERS = 2
K = 3
CAPACITY = 11
E = 5
VALUE = 7


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def empty(batch: int = 2, **changes: object) -> KVCache:
    sizes = {"kv_heads": K, "capacity": CAPACITY, "head_width": E, "value_width": VALUE}
    return KVCache.empty(layers=LAYERS, batch=batch, **{**sizes, **changes})


@dataclass
class Columns:
    """What a cache should hold: for every row a list of (k, v) columns; the same in each layer."""

    rows: list[list[tuple[Tensor, Tensor]]]

    def append(self, k: Tensor, v: Tensor) -> None:
        for b, row in enumerate(self.rows):
            row.extend((k[b, :, t], v[b, :, t]) for t in range(k.shape[2]))

    def truncate(self, length: int) -> None:
        self.rows = [row[:length] for row in self.rows]

    def reorder(self, order: list[int]) -> None:
        self.rows = [list(self.rows[b]) for b in order]

    def fork(self, copies: int) -> "Columns":
        return Columns([list(row) for row in self.rows for _ in range(copies)])


def assert_holds(cache: KVCache, columns: Columns) -> None:
    length = len(columns.rows[0])
    assert cache.length == length
    for layer, layer_cache in enumerate(cache.layers):
        assert layer_cache.length == length
        for b, row in enumerate(columns.rows):
            for t, (k, v) in enumerate(row):
                assert torch.equal(layer_cache.k[b, :, t], k + layer)
                assert torch.equal(layer_cache.v[b, :, t], v - layer)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_cache_is_a_list_of_columns_whatever_is_done_to_it(data: st.DataObject) -> None:
    batch = data.draw(st.integers(1, 3), label="batch")
    cache = empty(batch)
    columns = Columns([[] for _ in range(batch)])
    others: list[tuple[KVCache, Columns]] = []
    actions = st.sampled_from(["append", "append", "truncate", "reorder", "fork"])
    for step, action in enumerate(data.draw(st.lists(actions, max_size=9), label="actions")):
        batch = len(columns.rows)
        if action == "append":
            T = data.draw(st.integers(0, CAPACITY - cache.length), label="T")
            k = numbers(batch, K, T, E, seed=step)
            v = numbers(batch, K, T, VALUE, seed=step + 100)
            columns.append(k, v)
            for layer, layer_cache in enumerate(cache.layers):
                all_k, all_v = layer_cache.append(k + layer, v - layer)
                assert all_k.shape == (batch, K, layer_cache.length, E)
                assert all_v.shape == (batch, K, layer_cache.length, VALUE)
                assert torch.equal(all_k[:, :, layer_cache.length - T :], k + layer)
        elif action == "truncate":
            length = data.draw(st.integers(0, cache.length), label="length")
            cache.truncate(length)
            columns.truncate(length)
        elif action == "reorder":
            rows = st.lists(st.integers(0, batch - 1), min_size=batch, max_size=batch)
            order = data.draw(rows, label="order")
            cache.reorder(torch.tensor(order))
            columns.reorder(order)
        else:
            others.append((cache, columns))
            copies = data.draw(st.integers(1, 2 if batch < 5 else 1), label="copies")
            cache = cache.fork(copies)
            columns = columns.fork(copies)
        assert_holds(cache, columns)
    for other, then in others:  # what was done to a fork changed nothing here
        assert_holds(other, then)


def test_an_append_returns_views_and_copies_nothing() -> None:
    layer_cache = empty().layers[0]
    k, v = layer_cache.append(numbers(2, K, 3, E), numbers(2, K, 3, VALUE))
    assert k.data_ptr() == layer_cache.k.data_ptr()
    assert v.data_ptr() == layer_cache.v.data_ptr()


def test_one_layer_advances_without_the_others() -> None:
    cache = empty()
    cache.layers[1].append(numbers(2, K, 3, E), numbers(2, K, 3, VALUE))
    assert [layer_cache.length for layer_cache in cache.layers] == [0, 3]


def test_more_than_fits_is_an_error_with_the_numbers_and_changes_nothing() -> None:
    cache = empty()
    layer_cache = cache.layers[0]
    layer_cache.append(numbers(2, K, 8, E), numbers(2, K, 8, VALUE))
    before = layer_cache.k.clone()
    with pytest.raises(CacheError, match=r"holds 8 of at most 11 positions; 4 more do not fit"):
        layer_cache.append(numbers(2, K, 4, E), numbers(2, K, 4, VALUE))
    assert layer_cache.length == 8
    assert torch.equal(layer_cache.k, before)
    layer_cache.append(numbers(2, K, 3, E), numbers(2, K, 3, VALUE))
    assert layer_cache.length == layer_cache.capacity == 11


@pytest.mark.parametrize(("batch", "heads"), [(1, K), (3, K), (2, 1), (2, 4)])
def test_another_batch_or_number_of_heads_is_an_error_with_both_numbers(
    batch: int, heads: int
) -> None:
    says = re.escape(f"B={batch}, K={heads}")
    with pytest.raises(CacheError, match=says):
        empty().layers[0].append(numbers(batch, heads, 1, E), numbers(batch, heads, 1, VALUE))


@pytest.mark.parametrize(("head", "value"), [(1, VALUE), (E, 1), (E + 1, VALUE), (E, VALUE + 1)])
def test_another_head_width_is_an_error_with_both_numbers(head: int, value: int) -> None:
    with pytest.raises(CacheError) as caught:
        empty().layers[0].append(numbers(2, K, 4, head), numbers(2, K, 4, value))
    actual = value
    expected = VALUE
    if head != E:
        actual = head
        expected = E
    assert str(actual) in str(caught.value)
    assert str(expected) in str(caught.value)


@pytest.mark.parametrize("length", [-1, 4])
def test_truncating_to_what_is_not_held_is_an_error_with_both_numbers(length: int) -> None:
    cache = empty()
    for layer_cache in cache.layers:
        layer_cache.append(numbers(2, K, 3, E), numbers(2, K, 3, VALUE))
    with pytest.raises(CacheError, match=f"cannot truncate to {length}: the cache holds 3"):
        cache.truncate(length)


def test_a_row_may_be_followed_twice_and_another_dropped() -> None:
    cache = empty(batch=3)
    k = numbers(3, K, 2, E)
    v = numbers(3, K, 2, VALUE)
    cache.layers[0].append(k, v)
    cache.reorder(torch.tensor([2, 0, 2]))
    assert torch.equal(cache.layers[0].k[:, :, :2], k[[2, 0, 2]])
    assert torch.equal(cache.layers[0].v[:, :, :2], v[[2, 0, 2]])


@pytest.mark.parametrize("rows", [[0], [1, 0], [0, 2, 1, 0]])
def test_an_order_for_another_number_of_rows_is_an_error_with_both_numbers(rows: list[int]) -> None:
    cache = empty(batch=3)
    cache.layers[0].append(numbers(3, K, 2, E), numbers(3, K, 2, VALUE))
    before = cache.layers[0].k.clone()
    with pytest.raises(CacheError, match=rf"{len(rows)}.*3|3.*{len(rows)}"):
        cache.reorder(torch.tensor(rows))
    assert torch.equal(cache.layers[0].k, before)


def test_a_fork_repeats_each_row_beside_itself() -> None:
    cache = empty()
    k = numbers(2, K, 3, E)
    v = numbers(2, K, 3, VALUE)
    cache.layers[0].append(k, v)
    forked = cache.fork(3)
    assert torch.equal(forked.layers[0].k[:, :, :3], k[[0, 0, 0, 1, 1, 1]])
    assert torch.equal(forked.layers[0].v[:, :, :3], v[[0, 0, 0, 1, 1, 1]])
    assert forked.layers[0].capacity == CAPACITY


def test_a_fork_is_independent_both_ways() -> None:
    cache = empty()
    cache.layers[0].append(numbers(2, K, 3, E), numbers(2, K, 3, VALUE))
    forked = cache.fork()
    forked.layers[0].append(numbers(2, K, 2, E, seed=1), numbers(2, K, 2, VALUE, seed=1))
    cache.layers[0].append(numbers(2, K, 4, E, seed=2), numbers(2, K, 4, VALUE, seed=2))
    assert (cache.length, forked.length) == (7, 5)
    assert torch.equal(forked.layers[0].k[:, :, 3:5], numbers(2, K, 2, E, seed=1))
    assert torch.equal(cache.layers[0].k[:, :, 3:7], numbers(2, K, 4, E, seed=2))


class Computed:
    """Keys and values of a memory, and how often they were asked for."""

    def __init__(self, batch: int = 2) -> None:
        self.k = numbers(batch, K, 4, E)
        self.v = numbers(batch, K, 4, VALUE)
        self.times = 0
        self.source = numbers(batch, 4, 13)

    def __call__(self, source: Tensor) -> tuple[Tensor, Tensor]:
        assert source is self.source
        self.times += 1
        return self.k, self.v


def test_a_cross_cache_computes_once() -> None:
    compute = Computed()
    layer_cache = CrossLayerCache()
    first = layer_cache.get_or_compute(compute.source, compute)
    second = layer_cache.get_or_compute(compute.source, compute)
    assert compute.times == 1
    assert first is second


@pytest.mark.parametrize("shape", [(2, 5, 13), (3, 4, 13)])
def test_a_cache_is_not_used_for_another_source(shape: tuple[int, ...]) -> None:
    compute = Computed()
    layer_cache = CrossLayerCache()
    layer_cache.get_or_compute(compute.source, compute)
    with pytest.raises(CacheError, match=r"a source of B=2, S=4 but this one has B=\d, S=\d"):
        layer_cache.get_or_compute(numbers(*shape), compute)


def test_a_cache_refuses_to_be_trained_through() -> None:
    k = numbers(2, K, 1, E).requires_grad_()
    v = numbers(2, K, 1, VALUE)
    with pytest.raises(CacheError, match="not for training"):
        empty().layers[0].append(k, v)
    with torch.no_grad():
        empty().layers[0].append(k, v)


def test_without_a_cache_everything_is_computed_every_time() -> None:
    compute = Computed()
    layer_cache = NoLayerCache()
    layer_cache.get_or_compute(compute.source, compute)
    layer_cache.get_or_compute(compute.source, compute)
    assert compute.times == 2
    k = numbers(2, K, 3, E)
    v = numbers(2, K, 3, VALUE)
    assert layer_cache.append(k, v) == (k, v)


def test_cross_slots_are_reordered_and_forked_with_the_cache() -> None:
    compute = Computed()
    cache = empty()
    cache.cross[0].get_or_compute(compute.source, compute)
    cache.reorder(torch.tensor([1, 0]))
    forked = cache.fork(2)
    forked_source = compute.source[[1, 1, 0, 0]]
    entry = forked.cross[0].get_or_compute(forked_source, compute)
    for cached, mine in zip(entry, (compute.k, compute.v), strict=True):
        assert torch.equal(cached, mine[[1, 1, 0, 0]])
    assert compute.times == 1


def test_an_empty_cross_slot_stays_empty_when_reordered_and_forked() -> None:
    cache = empty()
    cache.reorder(torch.tensor([1, 0]))
    forked = cache.fork(2)
    compute = Computed(batch=4)
    assert torch.equal(forked.cross[1].get_or_compute(compute.source, compute)[0], compute.k)
    assert compute.times == 1
    assert cache.cross[1].entry is None


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 4), (torch.bfloat16, 2)])
def test_bytes_are_those_of_all_keys_and_values_set_aside(dtype: torch.dtype, size: int) -> None:
    assert empty(dtype=dtype).bytes == LAYERS * 2 * K * CAPACITY * (E + VALUE) * size
    same_width = empty(dtype=dtype, value_width=None)
    assert same_width.bytes == LAYERS * 2 * K * CAPACITY * 2 * E * size


def test_a_cache_of_no_layers_is_empty() -> None:
    assert KVCache([]).length == KVCache([]).bytes == 0


MASKS = {
    "causal": Mask.causal(),
    "causal window": Mask.causal() & Mask.window(3),
    "causal alibi": Mask.causal() & Mask((AlibiMask(torch.linspace(0.1, 0.7, 6)),)),
}


@pytest.mark.parametrize("name", MASKS)
@settings(max_examples=20, deadline=None)
@given(chunks=st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_cached_attention_equals_uncached_for_any_chunks(name: str, chunks: list[int]) -> None:
    B = 2
    H = 6
    T = sum(chunks)
    q = numbers(B, H, T, E)
    k = numbers(B, K, T, E, seed=1)
    v = numbers(B, K, T, VALUE, seed=2)
    cache = KVCache.empty(
        layers=1, batch=B, kv_heads=K, capacity=T, head_width=E, value_width=VALUE
    )
    outputs = []
    start = 0
    for chunk in chunks:
        now = slice(start, start + chunk)
        keys_and_values = cache.layers[0].append(k[:, :, now], v[:, :, now])
        outputs.append(attend(q[:, :, now], *keys_and_values, MASKS[name]))
        start += chunk
    uncached = attend(q, k, v, MASKS[name])
    torch.testing.assert_close(torch.cat(outputs, dim=2), uncached, rtol=1e-6, atol=1e-6)


def test_what_was_truncated_is_no_longer_attended_to() -> None:
    q = numbers(1, K, 5, E)
    k = numbers(1, K, 5, E, seed=1)
    v = numbers(1, K, 5, E, seed=2)
    layer_cache = LayerCache(torch.zeros(1, K, 9, E), torch.zeros(1, K, 9, E))
    layer_cache.append(k[:, :, :3], v[:, :, :3])
    layer_cache.append(numbers(1, K, 4, E, seed=8), numbers(1, K, 4, E, seed=9))
    layer_cache.truncate(3)
    out = attend(q[:, :, 3:], *layer_cache.append(k[:, :, 3:], v[:, :, 3:]), Mask.causal())
    uncached = attend(q, k, v, Mask.causal())
    torch.testing.assert_close(out, uncached[:, :, 3:], rtol=1e-6, atol=1e-6)


def test_rows_that_are_not_there_and_no_copies_are_refused() -> None:
    cache = empty()
    with pytest.raises(CacheError, match=r"rows \[5, 0\] must be between 0 and 1"):
        cache.reorder([5, 0])
    with pytest.raises(CacheError, match="1 or more copies, not 0"):
        cache.fork(0)
    with pytest.raises(CacheError, match="must not be negative"):
        empty(capacity=-1)
