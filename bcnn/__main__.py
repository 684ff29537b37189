"""``python -m bcnn`` is the `bcnn` command."""

from .cli import main

main()
