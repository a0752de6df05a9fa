"""The heavy libraries come in only when something is measured or drawn."""

import subprocess
import sys


def test_importing_measure_and_report_loads_no_heavy_library() -> None:
    heavy = "('torch', 'sklearn', 'scipy', 'sacrebleu', 'matplotlib')"
    code = f"import sys, qkv.metrics, qkv.report; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.stdout.strip(), result.stderr) == ("[]", "")
