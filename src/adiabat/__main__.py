"""``python -m adiabat``: the command line."""

from adiabat.cli import main

if __name__ == "__main__":
    main()
