"""What a safetensors file says about itself: its tensors, and where each lies.

    8 bytes       N, little-endian
    N bytes       {"__metadata__": {…}, "name": {"dtype": …, "shape": …, "data_offsets": [a, b]}, …}
    the rest      the numbers, tensor after tensor without a gap; offsets count from here

Everything is checked before anything is believed: https://huggingface.co/docs/safetensors.
"""

from collections.abc import Mapping

from qkv.errors import BundleError
from qkv.files import Walk, shown
from qkv.weights.entry import Entry, entry_of
from qkv.weights.regular_file import RegularFile

LONGEST_HEADER = 100_000_000  # bytes; the limit of the safetensors library too
LONGEST_ENTRY = 4096  # characters
METADATA = "__metadata__"


def read_header(file: RegularFile) -> Mapping[str, Entry]:
    """The tensors in the order of their bytes, after checking that every byte is described once."""
    length = _length(file)
    walk = Walk(file.read(8, length), f"the header of {file.path}")

    def member(name: str) -> Entry | None:
        if name == METADATA:
            walk.strings(METADATA)  # the writer's notes, checked and left
            return None
        return entry_of(file, name, walk.value(LONGEST_ENTRY), 8 + length)

    if not walk.text.startswith("{"):
        raise BundleError(
            f"the header of {file.path} begins with {shown(walk.text[:20])} instead of a {{; "
            "give a safetensors file"
        )
    found = walk.members(member)
    walk.end()
    entries = {name: entry for name, entry in found.items() if entry is not None}
    ordered = sorted(entries.items(), key=lambda item: (item[1].start, item[1].end))
    _check_cover(file, ordered, 8 + length)
    return dict(ordered)


def _length(file: RegularFile) -> int:
    if file.size < 8:
        raise BundleError(
            f"{file.path} has {file.size} bytes, and a safetensors file at least 8; get it again"
        )
    first = file.read(0, 8)
    if first == b"version ":
        raise BundleError(
            f"{file.path} seems to be a Git LFS pointer, not the weights; run git lfs pull"
        )
    length = int.from_bytes(first, "little")
    if not 0 < length <= LONGEST_HEADER:
        raise BundleError(
            f"{file.path} announces a header of {length} bytes, where 1 to {LONGEST_HEADER} are "
            "possible; it is damaged or no safetensors file"
        )
    if 8 + length > file.size:
        raise BundleError(
            f"{file.path} ends at byte {file.size}, within its header of {length} bytes; it is cut "
            "off, so get it again"
        )
    return length


def _check_cover(file: RegularFile, ordered: list[tuple[str, Entry]], first: int) -> None:
    """Tensors follow each other without gap or overlap, up to the last byte of the file."""
    reached, before = first, "the header"
    for name, entry in ordered:
        if entry.start != reached:
            wrong = "overlaps" if entry.start < reached else "leaves a hole after"
            raise BundleError(
                f"{file.path}: tensor {shown(name)} begins at byte {entry.start} and {wrong} "
                f"{before}, which ends at {reached}; tensors must follow each other without a gap"
            )
        reached, before = entry.end, shown(name)
    if reached != file.size:
        raise BundleError(
            f"{file.path} has {file.size} bytes, {file.size - reached} more than its header "
            "describes; a safetensors file ends with its last tensor, so get it again"
        )
