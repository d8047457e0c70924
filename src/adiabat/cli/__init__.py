"""The command line: one function per verb, each importing what it needs when it runs, so that ``--help`` is
quick.
"""

from adiabat.cli.app import main as main
