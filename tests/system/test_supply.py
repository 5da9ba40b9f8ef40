"""What is installed is what was pinned and published, and nothing speaks to the network unless it is asked to."""

import base64
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from only_loopback import LOG, NetworkForbiddenError, is_here

packaging = pytest.importorskip("packaging")
from packaging.requirements import Requirement  # noqa: E402
from packaging.utils import canonicalize_name  # noqa: E402

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WANTED = [
    Requirement(line)
    for line in {
        *PROJECT["dependencies"],
        *(one for extra in PROJECT["optional-dependencies"].values() for one in extra),
    }
    if not line.startswith("homophily[")  # an extra that contains others
]
LINES = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
PINS = {canonicalize_name(pin.name): pin for pin in (Requirement(line) for line in LINES if not line.startswith("#"))}
LARGE = 30_000_000  # bytes of a file that takes long to read


# What is installed


def test_every_line_of_the_constraints_pins_one_version():
    assert len(PINS) == sum(not line.startswith("#") for line in LINES)
    for pin in PINS.values():
        (only,) = pin.specifier
        assert only.operator == "=="
        assert "*" not in only.version


@pytest.mark.parametrize("wanted", sorted(WANTED, key=str), ids=str)
def test_pin_satisfies_the_range(wanted):
    (pin,) = PINS[canonicalize_name(wanted.name)].specifier
    assert wanted.specifier.contains(pin.version, prereleases=True)


def installed(name):
    try:
        return importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def test_tests_run_with_the_versions_that_are_pinned():
    found = {name: dist.version for name in PINS if (dist := installed(name)) is not None}
    assert {"torch", "numpy", "scikit-learn", "pandas", "pytest"} <= set(found)
    assert {name: version for name, version in found.items() if not PINS[name].specifier.contains(version)} == {}


def needed(names):
    """Distributions that these need to run, and what those need."""
    found, left = {}, list(names)
    while left:
        name = canonicalize_name(left.pop())
        dist = installed(name)
        if name in found or dist is None:  # of another system, or an extra that nobody asked for
            continue
        found[name] = dist
        lines = map(Requirement, dist.requires or ())
        left += [line.name for line in lines if line.marker is None or line.marker.evaluate({"extra": ""})]
    return found


NEEDED = needed(Requirement(line).name for line in PROJECT["dependencies"])


def test_everything_needed_is_pinned():
    assert sorted(set(NEEDED) - set(PINS)) == []


@pytest.mark.parametrize("name", sorted(NEEDED))
def test_installed_files_are_those_that_were_published(name):
    """The sums are in the wheel's RECORD; whoever changed a file and not its sum is found out.

    Of the largest files, those of torch, only the size is looked at, unless HOMOPHILY_AUDIT is set.
    """
    checked = 0
    for file in NEEDED[name].files or ():
        if file.hash is None or file.suffix == ".pyc":
            continue
        assert file.locate().stat().st_size == file.size
        if file.size > LARGE and not os.environ.get("HOMOPHILY_AUDIT"):
            continue
        with file.locate().open("rb") as content:
            digest = hashlib.file_digest(content, file.hash.mode).digest()
        assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == file.hash.value, file
        checked += 1
    assert checked


@pytest.mark.parametrize("name", sorted(NEEDED))
def test_licence_is_known_and_lets_us_use_it(name):
    meta = NEEDED[name].metadata
    classifiers = [line for line in meta.get_all("Classifier") or () if line.startswith("License ::")]
    told = " ".join([meta.get("License-Expression") or "", (meta.get("License") or "")[:200], *classifiers])
    assert re.search(r"BSD|MIT|Apache|PSF|Python Software Foundation|MPL|Mozilla Public|HPND|ISC|Unlicense|CNRI", told)
    assert not re.search(r"\bA?GPL", re.sub(r"LGPL", "", told)), told


# The network


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.0.1", "::1", "localhost", "", socket.gethostname(), "/run/x"])
def test_this_machine_is_allowed(address):
    assert is_here(address)
    assert is_here((address, 80))


@pytest.mark.parametrize("address", ["192.0.2.1", "example.org", "2001:db8::1", "10.0.0.1", b"example.org"])
def test_other_machines_are_not(address):
    assert not is_here(address)
    assert not is_here((address, 80))


def test_the_guard_is_on():
    with socket.socket() as one, pytest.raises(NetworkForbiddenError, match=r"192\.0\.2\.1"):
        one.connect(("192.0.2.1", 80))
    with socket.socket() as one, pytest.raises(NetworkForbiddenError):
        one.connect_ex(("192.0.2.1", 80))
    with socket.socket(type=socket.SOCK_DGRAM) as one, pytest.raises(NetworkForbiddenError):
        one.sendto(b"x", ("192.0.2.1", 53))
    with pytest.raises(NetworkForbiddenError):
        socket.getaddrinfo("example.org", 80)
    with pytest.raises(NetworkForbiddenError):
        socket.create_connection(("example.org", 80))


def test_the_guard_leaves_loopback_alone():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        one.sendall(b"x")
        other = server.accept()[0]
        with other:
            assert other.recv(1) == b"x"


def python(*arguments, cwd, **environment):
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "80", **environment},
    )


def test_the_guard_is_on_in_processes_that_tests_start(tmp_path):
    code = "import socket; socket.socket().connect(('192.0.2.1', 80))"
    done = python("-c", code, cwd=tmp_path, **{LOG: str(tmp_path / "log")})
    assert "NetworkForbiddenError" in done.stderr
    assert (tmp_path / "log").read_text() == "socket.connect ('192.0.2.1', 80)\n"


COMMANDS = [
    ["--help"],
    ["datasets", "list"],
    ["doctor", "--json"],
    ["select", "data.npy", "-m", "2", "--method", "dirichlet", "--max-iter", "5", "--out", "selected"],
    [
        "compare",
        "data.npy",
        "-m",
        "2",
        "--methods",
        "ls",
        "--splits",
        "2",
        "--trees",
        "2",
        "-j",
        "2",
        "--out",
        "compared",
    ],
]
ALL = """
import json, runpy, sys
for arguments in json.loads(sys.argv[1]):  # in one process, which loads torch once
    sys.argv = ["homophily", *arguments]
    try:
        runpy.run_module("homophily", run_name="__main__")
    except SystemExit as end:
        assert not end.code, (arguments, end.code)
    else:
        raise AssertionError(arguments)
"""


@pytest.fixture
def data(tmp_path):
    np.save(tmp_path / "data.npy", np.random.RandomState(0).randn(40, 6))
    return tmp_path


def test_no_command_asks_for_the_network(data):
    log = data / "log"
    done = python("-c", ALL, json.dumps(COMMANDS), cwd=data, **{LOG: str(log)})
    assert done.returncode == 0, done.stderr
    assert not log.exists(), log.read_text()
    assert (data / "selected" / "report.html").is_file()
    assert (data / "compared" / "report.html").is_file()


def without_network():
    """The beginning of a command line that runs the rest where no network is, or None."""
    for start in (["unshare", "--net"], ["unshare", "--map-root-user", "--net"]):
        if (
            shutil.which("unshare")
            and subprocess.run([*start, "true"], check=False, capture_output=True).returncode == 0
        ):
            return start
    return None


def test_commands_work_where_there_is_no_network_at_all(data):
    """Also what is not written in Python, and goes past the guard, does without."""
    start = without_network()
    if start is None:
        pytest.skip("this system does not let us run a process without network")
    one_process = [
        ["1" if word == "2" and before == "-j" else word for before, word in pairwise(["", *command])]
        for command in COMMANDS
    ]
    code = f"{ALL}\nsys.stderr.write(str(open('/proc/net/dev').read().count(':')))"
    done = subprocess.run(
        [*start, sys.executable, "-c", code, json.dumps(one_process)],
        cwd=data,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},  # without the guard
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith("1")  # one device: loopback, which is off
    assert (data / "compared" / "report.html").is_file()


def test_fetch_alone_asks_and_says_so_if_there_is_none(tmp_path):
    environment = {"HOMOPHILY_DATA": "", "HOMOPHILY_CACHE": str(tmp_path / "cache"), "HOMOPHILY_DATA_URL": ""}
    log = tmp_path / "log"
    python("-m", "homophily", "datasets", "fetch", "Yale", cwd=tmp_path, **environment, **{LOG: str(log)})
    assert "raw.githubusercontent.com" in log.read_text()
    start = without_network()
    if start is None:
        pytest.skip("this system does not let us run a process without network")
    unguarded = {**os.environ, **environment, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "80"}
    done = subprocess.run(
        [*start, sys.executable, "-m", "homophily", "datasets", "fetch", "Yale"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=unguarded,
    )
    assert done.returncode == 2
    assert "Yale.mat could not be downloaded: there is no connection (" in " ".join(done.stderr.split())
    assert "set HOMOPHILY_DATA_URL to a mirror" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "cache").iterdir()) == []
