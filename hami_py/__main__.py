"""``python -m hami_py`` is ``hami``."""

from hami_py.cli import main

main()
