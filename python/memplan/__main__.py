"""python -m memplan …: the command line of this environment, with `export` and `record`, which need its PyTorch."""
import os
import sys


def main() -> int:
    if sys.argv[1:2] in (["export"], ["record"]):
        from ._command import run

        return run(sys.argv[1], sys.argv[2:])
    if sys.argv[1:2] == ["measure-card"]:  # the program asks this for `memplan calibrate`
        from ._calibrate.measure import run as measure

        return measure(sys.argv[2:])
    from . import _binary
    from ._errors import Error

    try:
        path = _binary.program()
    except Error as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
