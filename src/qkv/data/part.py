"""Which part of the documents is trained on and which is held out, without keeping either."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from qkv.data.documents import Documents
from qkv.data.pieces import Piece
from qkv.data.split import check_share, held_out_places


@dataclass(frozen=True)
class Part:
    """Some of the documents, read anew each time they are iterated.

    `key` names their content: equal keys, equal pieces joined.
    """

    key: str
    read: Callable[[], Iterator[Piece]]

    def __iter__(self) -> Iterator[Piece]:
        return self.read()


def part(documents: Documents, share: float, seed: int) -> tuple[Part, Part]:
    """Training and held out: whole documents, chosen as `split` does; or the end of the only one.

    Of an only document the last `share` of its characters is held out; a side may then be empty.
    """
    check_share(share)
    if documents.documents == 1:
        cut = int(documents.characters * (1.0 - share))
        stretches = ((0, cut), (cut, documents.characters))
        reads = [partial(_stretch, documents, *stretch) for stretch in stretches]
    else:
        held = held_out_places(documents.documents, seed, share)
        reads = [partial(_chosen, documents, held, wanted) for wanted in (False, True)]
    key = f"{documents.sha256} share {share} seed {seed}"
    return Part(f"{key} training", reads[0]), Part(f"{key} held out", reads[1])


def _chosen(documents: Documents, held: set[int], wanted: bool) -> Iterator[Piece]:
    return (piece for piece in documents if (piece.document in held) is wanted)


def _stretch(documents: Documents, start: int, stop: int) -> Iterator[Piece]:
    """The characters from `start` to before `stop` of the only document."""
    if start == stop:
        yield Piece("", 0, True)
        return
    end = 0
    for piece in documents:
        begin, end = end, end + len(piece.text)
        if text := piece.text[max(start - begin, 0) : stop - begin]:
            yield Piece(text, 0, end >= stop)
        if end >= stop:
            return
