"""``python -m bcnn`` is the `bcnn` command."""

from .cli import main

if __name__ == "__main__":
    main()
