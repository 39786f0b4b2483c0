"""Packages that people use, as published, against the definition; `ringside peers` runs it.

A peer is a folder with three short files. `package.json` says which package and version, and what
goes into its environment; `adapter.py` says what it claims and where that stands, and turns a plan
into the arguments of a call; `calls.py` makes the call and knows nothing of Ringside, so that it
can be copied into a script.

Here is what both are made of and what runs them:

* `adapter`: `Peer`, `Feature`, `Supports`, and how a folder is read,
* `environment`: a virtual environment for each peer, from PyPI, by uv,
* `trial`: cases, failures and their smallest forms, a `Verdict` for each feature,
* `repeat`: the script that shows a fault without Ringside,
* `table`: data/peers.csv and the table of the README.
"""

from ringside.testing.peers.adapter import AdapterError, Feature, Peer, Supports
from ringside.testing.peers.verdict import Verdict

__all__ = ["AdapterError", "Feature", "Peer", "Supports", "Verdict"]
