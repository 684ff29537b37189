"""Signals at any moment: heard once, obeyed, and never an error of their own."""

import signal

import pytest

from bcnn.finetune import signals
from bcnn.finetune.signals import StopRequest


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_in_the_very_moment_of_opening(number, monkeypatch):
    """It comes when the handler is in place and before anything else is done."""
    set_handler, before = signal.signal, signal.getsignal(number)

    def and_at_once(own, handler):
        result = set_handler(own, handler)
        if own == number and getattr(handler, "__func__", None) is StopRequest._hear:
            signal.raise_signal(own)
        return result

    monkeypatch.setattr(signals.signal, "signal", and_at_once)
    with StopRequest() as stop:
        assert stop.number == number
        assert signal.getsignal(number) == before  # a second one ends the process
    assert signal.getsignal(number) == before


def test_what_was_there_before_is_there_again():
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGTERM)
    assert stop.number == signal.SIGTERM
    assert {number: signal.getsignal(number) for number in before} == before
