"""An import-linter contract: from outside, a package is imported through its `__init__`.

`from qkv.text import Tokenizer` is right in every other package of qkv, and
`from qkv.text.tokenizer import Tokenizer` only inside `qkv.text`. A subpackage, such as
`qkv.engine.generate`, has an `__init__` of its own to be imported through.
"""

from typing import Any

import grimp
from importlinter import Contract, ContractCheck, output


class PackageContract(Contract):
    """Fails on imports of another package's modules."""

    def check(self, graph: grimp.ImportGraph, verbose: bool) -> ContractCheck:
        violations = []
        for importer in sorted(graph.modules):
            for imported in sorted(graph.find_modules_directly_imported_by(importer)):
                violations += _deep_imports(graph, importer, imported)
        return ContractCheck(kept=not violations, metadata={"violations": violations})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for violation in check.metadata["violations"]:
            output.print_error(violation)
        output.print_error("Import these names from the package, and export them in its __init__.")


def _deep_imports(graph: grimp.ImportGraph, importer: str, imported: str) -> list[str]:
    parts = imported.split(".")
    crosses = parts[:2] != importer.split(".")[:2]
    is_module = len(parts) > 2 and not graph.find_children(imported)
    if not crosses or not is_module:
        return []
    details: list[Any] = list(graph.get_import_details(importer=importer, imported=imported))
    # `from qkv.model import build` counts as an import of the module build.py, but may well mean
    # the function; only the text of the line distinguishes them.
    return [
        f"{importer}:{detail['line_number']}: {detail['line_contents']}"
        for detail in details
        if imported in detail["line_contents"]
    ]
