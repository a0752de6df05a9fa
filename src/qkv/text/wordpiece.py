"""WordPiece: neighbours inside lower-cased words merge; ## continues a word (Schuster 2012)."""

from collections.abc import Iterable

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from qkv.text.alphabet import SPECIAL, UNKNOWN
from qkv.text.words import count_characters, count_words, most_frequent, repeated

LONGEST = 100  # a longer word is unknown; finding its pieces would cost the square of its length


def wordpiece(texts: Iterable[str], vocabulary: int) -> Backend:
    """Accents and case are lost; if there is no room for all characters the rarest are unknown.

    The library numbers the ##c in the order of a random hash, and of two merges equally frequent
    takes the one numbered first. So they are named beforehand, as special tokens of a tokenizer
    of which only the vocabulary is kept (huggingface/tokenizers issue 1794).
    """
    backend = Backend(_model({}))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()

    words = count_words(backend, texts)
    room = (vocabulary - len(SPECIAL)) // 2  # a character is c or ##c
    known = most_frequent(count_characters(words), room)
    whole = {w: n for w, n in words.items() if len(w) <= LONGEST and known.issuperset(w)}
    later = sorted({f"##{character}" for word in whole for character in word[1:]})
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary,
        initial_alphabet=sorted(known),
        special_tokens=[*SPECIAL, *later],
        show_progress=False,
    )
    trained = Backend(_model({}))
    trained.train_from_iterator(repeated(whole), trainer)
    backend.model = _model(trained.get_vocab())
    return backend


def _model(vocabulary: dict[str, int]) -> models.WordPiece:
    return models.WordPiece(vocabulary, unk_token=UNKNOWN, max_input_chars_per_word=LONGEST)
