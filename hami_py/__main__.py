"""``python -m hami_py`` runs the ``hami`` command."""

from hami_py.cli import main

main()
