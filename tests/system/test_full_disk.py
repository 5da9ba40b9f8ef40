"""Disks without room, limits and odd names, in earnest: the earlier file survives and nothing is left behind."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

FULL_DISK = Path(__file__).parent / "full_disk.py"


def on_a_small_disk(tmp_path, size, *arguments):
    """Run full_disk.py with a folder that is a disk of that size, or skip where the system does not allow it."""
    disk, sources = tmp_path / "disk", tmp_path / "sources"
    disk.mkdir()
    sources.mkdir()
    mount = f'mount -t tmpfs -o size={size} none "$1" && shift && exec "$@"'
    for start in (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"]):
        inside = [*start, "sh", "-c", mount, "sh", str(disk)]
        if (
            not shutil.which("unshare")
            or subprocess.run([*inside, "true"], check=False, capture_output=True).returncode
        ):
            continue
        program = [sys.executable, str(FULL_DISK), *arguments, str(disk), str(sources)]
        return subprocess.run([*inside, *program], check=False, capture_output=True, text=True)
    pytest.skip("this system does not let us make a small disk")


def check_writers(done, message, number):
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) == 14
    for one in told[:-1]:
        assert one["error"] == "OutputError", one
        assert f"{one['name']} cannot be written: {message}" in one["message"]
        assert one["number"] == number
        assert one["left"] == {one["name"]: True}, one  # as it was, and nothing beside it
    assert told[-1]["error"] == "OutputError"
    assert "runs.sqlite cannot be used" in told[-1]["message"]
    assert told[-1]["left"] == {"runs.sqlite": True}


def test_no_writer_leaves_a_part_on_a_full_disk(tmp_path):
    pytest.importorskip("anndata")
    check_writers(on_a_small_disk(tmp_path, "1m", "writers"), "the disk is full (", errno.ENOSPC)


def test_no_writer_leaves_a_part_if_files_may_not_be_that_large(tmp_path):
    pytest.importorskip("anndata")
    pytest.importorskip("resource")
    for name in ("disk", "sources"):
        (tmp_path / name).mkdir()
    program = [sys.executable, FULL_DISK, "limited", tmp_path / "disk", tmp_path / "sources"]
    done = subprocess.run(list(map(str, program)), check=False, capture_output=True, text=True)
    check_writers(done, "it is larger than the disk or a limit", errno.EFBIG)


def test_commands_on_a_full_and_on_a_read_only_disk(tmp_path):
    done = on_a_small_disk(tmp_path, "3m", "commands")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [one["code"] for one in told["first"]] == [0, 0]
    full = told["full"]
    assert [one["code"] for one in full] == [4, 4, 4], full
    for one, place in zip(full, ("out", "learned", "compared/runs.sqlite"), strict=True):
        (line,) = [line for line in one["output"].splitlines() if line.startswith("Error: ")]
        assert f"disk/{place} cannot be " in line
        assert "disk is full" in line
        assert "Traceback" not in one["output"]
    assert "learned/checkpoint: the same command with --resume goes on from there." in full[1]["output"]
    assert all(told["kept"].values())
    assert len(told["kept"]) >= 10
    assert told["new"] == ["learned/checkpoint/training-0.safetensors"]
    assert [one["code"] for one in told["again"]] == [0, 0, 0], told["again"]
    assert [one["code"] for one in told["read_only"]] == [4, 4, 4, 4], told["read_only"]
    for one in told["read_only"]:
        assert one["output"].count("\n") == 1  # before anything is read
        assert "cannot be written" in one["output"]
    assert told["unchanged"]


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="names of files are text there")
def test_a_file_whose_name_is_no_text(tmp_path):
    """Years of training must not be lost because the report cannot name the file."""
    data = os.fsdecode(bytes(tmp_path / "caf") + b"\xe9.npy")
    np.save(data, np.random.RandomState(0).randn(30, 4))
    command = ["select", data, "-m", "2", "--method", "random", "--out", str(tmp_path / "out")]
    done = subprocess.run([sys.executable, "-m", "homophily", *command], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "caf?.npy" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
