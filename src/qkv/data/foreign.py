"""Files that are no text at all, told by how they begin, and what to do with each."""

from qkv.errors import DataError

BEGINNINGS: dict[bytes, str] = {
    b"\xff\xfe": "UTF-16; save the file as UTF-8",
    b"\xfe\xff": "UTF-16; save the file as UTF-8",
    b"%PDF-": "a PDF; save its text as a .txt",
    b"PK\x03\x04": "a zip, as .docx and .xlsx are; save a document as .txt, a sheet as .csv",
    b"\xd0\xcf\x11\xe0": "an old Office file; save a document as .txt, a sheet as .csv",
    b"\x1f\x8b": "packed by gzip; unpack it first, with gunzip",
    b"BZh": "packed by bzip2; unpack it first, with bunzip2",
    b"\xfd7zXZ\x00": "packed by xz; unpack it first, with unxz",
    b"\x28\xb5\x2f\xfd": "packed by zstd; unpack it first, with unzstd",
    b"PAR1": "Parquet; let its name end in .parquet",
    b"\x89PNG": "a picture; text is needed",
    b"\xff\xd8\xff": "a picture; text is needed",
    b"GIF8": "a picture; text is needed",
    b"SQLite format 3\x00": "a database; export a table of it as .csv",
    b"{\\rtf": "rich text; save it as plain text, .txt",
    b"\x93NUMPY": "an array of NumPy; text is needed",
    b"GGUF": "a model; text is needed",
}


def refuse_foreign(first: bytes, name: str) -> None:
    """A DataError if a file whose first line is this holds no text."""
    for beginning, kind in BEGINNINGS.items():
        if first.startswith(beginning):
            raise DataError(f"{name} line 1: this is {kind}")
