"""A model out of a GGUF file, as Hugging Face would have published it."""

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from qkv.errors import BundleError
from qkv.gguf.config import config_of
from qkv.gguf.facts import Facts
from qkv.gguf.file import File
from qkv.gguf.tokenizer import marks_of, tokenizer_of
from qkv.gguf.weights import Weights


class Gguf(File):
    """The file itself, and the config, weights and tokenizer that can be made of it."""

    def config(self) -> dict[str, Any]:
        """What config.json would say."""
        return config_of(self)

    def weights(self) -> Weights:
        """The tensors under their Hugging Face names."""
        return Weights(self)

    def tokenizer(self) -> Backend:
        """A tokenizer of the `tokenizers` library."""
        return tokenizer_of(Facts(self.metadata, self.path))

    def marks(self) -> dict[str, str | None]:
        """The tokens for `start`, `end`, `unknown` and `pad`, and the `chat` template."""
        return marks_of(Facts(self.metadata, self.path))


def open_gguf(path: Path) -> Gguf:
    """Reads the head of the file and checks it; tensors are read later, one by one."""
    gguf = Gguf(Path(path))
    parts = Facts(gguf.metadata, gguf.path).whole("split.count", 1, least=0)
    if parts > 1:
        raise BundleError(
            f"{path} is one of {parts} parts of a model; put them together with "
            "llama-gguf-split --merge"
        )
    return gguf
