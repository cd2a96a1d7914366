"""--help of the scripts beside this file, which must work without the packages that they need."""
import importlib.util
import sys


def begin(doc, *packages):
    """Before a script imports `packages`: --help prints `doc`, and a package that is not there is said in a line."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(doc.strip())
        sys.exit(0)
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(f"{sys.argv[0]}: expected the Python packages {', '.join(packages)}, found no {', '.join(missing)}")
