"""Threads of torch are the caller's again after a fit."""

import threading

import pytest
import torch

from homophily.runtime import one_thread, resolve_device


@pytest.fixture(autouse=True)
def _as_before():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_restores_also_after_an_error():
    torch.set_num_threads(3)
    with pytest.raises(ZeroDivisionError), one_thread():
        1 / (torch.get_num_threads() - 1)
    assert torch.get_num_threads() == 3


def test_overlapping_fits_in_two_threads_each_restore_their_own():
    torch.set_num_threads(3)
    inside, leave = threading.Event(), threading.Event()

    def other():
        with one_thread():
            inside.set()
            assert leave.wait(60)

    thread = threading.Thread(target=other)
    with one_thread():
        thread.start()
        assert inside.wait(60)
    assert torch.get_num_threads() == 3
    leave.set()
    thread.join(60)
    assert torch.get_num_threads() == 3


def test_devices():
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device("auto").type in ("cpu", "cuda")
