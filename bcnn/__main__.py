"""``python -m bcnn`` is the `bcnn` command."""

import signal
import threading


def main() -> None:
    """Run the command; Ctrl-C ends it without a traceback, also while it is loaded and while it is left."""
    try:
        from .cli import main as command

        command()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()
