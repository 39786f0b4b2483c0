"""A packager: what is in the package, what it needs, and that it says so."""

import importlib.metadata
import subprocess
import sys

import ringside as rs

print(rs.__version__, rs.PARTITIONS, rs.COMMS)
assert all(hasattr(rs, name) for name in rs.__all__)

# NumPy alone: neither torch nor drawing nor the command's packages are loaded.
loaded = "import sys, ringside; print(*sorted(sys.modules))"
modules = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
for extra in ("torch", "matplotlib", "typer", "rich", "hypothesis", "jax"):
    assert extra not in modules.stdout.split(), extra

try:
    wanted = importlib.metadata.metadata("ringside")
except importlib.metadata.PackageNotFoundError:
    print("not installed: run from a folder of sources")
else:
    assert wanted["License-Expression"] == "Apache-2.0" or "Apache" in (wanted["License"] or "")
    needs = importlib.metadata.requires("ringside") or []
    assert [x for x in needs if "extra" not in x] == [x for x in needs if x.startswith("numpy")]

command = [sys.executable, "-m", "ringside", "verify", "--random", "3", "--seed", "7"]
print(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
