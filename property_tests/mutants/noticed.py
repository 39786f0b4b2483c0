"""Which test noticed a fault last, in noticed.json: it is asked first next time."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from mutants_list import Mutant

FILE = Path(__file__).with_name("noticed.json")
OF_OTHERS = 3  # tests that noticed other faults of the same file, for one that is new


class Noticed:
    """Names of tests by names of faults; several threads may ask and tell.

    A C++ test is "room: Suite.Test", of GPUs "kernels: Suite.Test"; a property
    "folder/test_file.py::test_name". Faults that others know keep their lines.
    """

    def __init__(self, everything: Iterable[Mutant], path: Path = FILE):
        self.path = path
        self.files = {mutant.name: mutant.file for mutant in everything}
        self.tests: dict[str, str] = (
            json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        )
        self.lock = threading.Lock()

    def likely(self, mutant: Mutant) -> list[str]:
        """The test that noticed this fault; of a new one those that noticed most of its file."""
        with self.lock:
            if mutant.name in self.tests:
                return [self.tests[mutant.name]]
            others = Counter(
                test for name, test in self.tests.items() if self.files.get(name) == mutant.file
            )
        return [test for test, _ in others.most_common(OF_OTHERS)]

    def tell(self, mutant: Mutant, test: str) -> None:
        """The test that noticed a fault, or "": then nobody is known. Written at once."""
        with self.lock:
            self.tests.pop(mutant.name, None)
            if test:
                self.tests[mutant.name] = test.partition(" (")[0]
            text = json.dumps(dict(sorted(self.tests.items())), indent=0, ensure_ascii=False)
            self.path.write_text(text + "\n", encoding="utf-8")
