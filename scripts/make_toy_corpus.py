"""Write the toy corpus: English sentences and their German translations from one small grammar.

    python scripts/make_toy_corpus.py [--output FOLDER] [--check]

The output depends on nothing but the files of ``toy_corpus``. Some combinations of two words are
held out: no training sentence holds one, every sentence of the other two sets does.
``data/README.md`` says more.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from toy_corpus.corpus import files_of, make_corpus

DEFAULT_OUTPUT = Path(__file__).resolve().parent.parent / "data" / "toy"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the corpus, or with ``--check`` say which files are not what would be written."""
    parser = argparse.ArgumentParser(description="Write the toy English-German corpus.")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT, metavar="FOLDER")
    parser.add_argument("--check", action="store_true", help="compare with the files, write none")
    options = parser.parse_args(arguments)
    stale = []
    for name, content in files_of(make_corpus()).items():
        path: Path = options.output / name
        if not options.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode())
        elif not path.is_file() or path.read_bytes() != content.encode():
            stale.append(str(path))
    for stale_path in stale:
        print(f"not what would be written: {stale_path}", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
