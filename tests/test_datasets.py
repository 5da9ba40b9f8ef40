"""The paper's data sets: found, loaded, downloaded from a server of our own."""

import hashlib
import io
import os
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pooch
import pytest
import scipy.io
import scipy.sparse as sp
from command_line import run as invoke

from homophily.datasets import (
    PAPER_DATASETS,
    BrokenTransferError,
    DatasetNotFoundError,
    FetchError,
    available,
    cache_folder,
    dataset_path,
    download,
    fetch,
    load,
    paper_dataset,
    search_folders,
)
from homophily.io import InputError

REGISTERED = dict(PAPER_DATASETS)
SMALL = {"Yale": (6, 4), "COIL-20": (5, 3), "PIX10": (4, 7)}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, no folder of the user's, and three data sets of a few numbers."""
    for variable in ("HOMOPHILY_DATA", "HOMOPHILY_DATA_URL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOMOPHILY_CACHE", str(tmp_path / "cache"))
    for variable in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(variable, "127.0.0.1")
    monkeypatch.setattr(download, "PAUSE", 0)
    for name, (n, d) in SMALL.items():
        content = replace(PAPER_DATASETS[name], n_samples=n, n_features=d)
        monkeypatch.setitem(PAPER_DATASETS, name, content)
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def arrays(name):
    n, d = SMALL[name]
    return {"X": np.arange(n * d, dtype=np.int16).reshape(n, d), "Y": np.arange(n)[:, None] % 2}


def write(path, name, **changes):
    content = arrays(name) | changes
    if path.suffix == ".mat":
        scipy.io.savemat(path, content)
    else:
        np.savez(path, **content)
    return path


def run(*arguments, code=0):
    return invoke("datasets", *arguments, code=code)


# Registry and names


def test_registry_is_complete():
    assert len(PAPER_DATASETS) == 12
    assert {data.kind for data in PAPER_DATASETS.values()} == {"text", "artificial", "image", "biology"}
    assert {name for name, data in PAPER_DATASETS.items() if data.sha256 is None} == {"LUNG", "SMK", "SRBCT", "Jaffe"}
    assert all(len(bytes.fromhex(data.sha256)) == 32 for data in PAPER_DATASETS.values() if data.sha256)


@pytest.mark.parametrize("name", ["COIL-20", "COIL20", "coil-20", "Coil_20", "coil 20"])
def test_spellings_mean_the_same(name):
    assert paper_dataset(name).name == "COIL-20"


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"'MNIST' is none of the paper's: PCMAC.*SMK"):
        load("MNIST")


# Finding


@pytest.mark.parametrize("file", ["COIL20.npz", "COIL-20.npz", "coil20.mat", "Coil-20.MAT", "coil_20.npz"])
def test_file_is_found_in_any_spelling(folder, file):
    (folder / file).touch()
    assert dataset_path("COIL20", data_dir=folder) == folder / file


@pytest.mark.parametrize(("name", "file"), [("PIX10", "pixraw10P.mat"), ("PROSTATE", "Prostate-GE.mat")])
def test_published_name_is_found(folder, name, file):
    (folder / file).touch()
    assert dataset_path(name, data_dir=str(folder)) == folder / file
    assert available(folder) == [name]


def test_which_file_of_several(folder):
    for file in ("pixraw10P.mat", "PIX10.mat", "pix10.npz"):
        (folder / file).touch()
        assert dataset_path("PIX10", data_dir=folder) == folder / file


def test_other_files_and_folders_are_not_taken(folder):
    (folder / "Yale.npz").mkdir()
    for file in ("Yale.csv", "Yale", "Yale-selected.npz", ".Yale.mat.17"):
        (folder / file).touch()
    assert dataset_path("Yale", data_dir=folder) is None


def test_where_files_are_looked_for(folder, cache, monkeypatch, tmp_path):
    assert search_folders() == [cache]
    monkeypatch.setenv("HOMOPHILY_DATA", str(folder))
    assert search_folders() == [folder, cache]
    cache.mkdir()
    (cache / "Yale.mat").touch()
    assert dataset_path("Yale") == cache / "Yale.mat"
    (folder / "Yale.npz").touch()
    assert dataset_path("Yale") == folder / "Yale.npz"
    assert dataset_path("Yale", data_dir=tmp_path) is None


def test_cache_folder(monkeypatch):
    monkeypatch.delenv("HOMOPHILY_CACHE")
    assert cache_folder() == pooch.os_cache("homophily")
    monkeypatch.setenv("HOMOPHILY_CACHE", os.path.join("~", "here"))
    assert cache_folder().is_absolute()


# Loading


@pytest.mark.parametrize("file", ["Yale.npz", "Yale.mat"])
def test_load(folder, file):
    write(folder / file, "Yale")
    X, y = load("yale", data_dir=folder)
    assert X.dtype == np.float64
    assert X.flags.c_contiguous
    assert X.flags.writeable
    assert y.flags.writeable
    np.testing.assert_array_equal(X, arrays("Yale")["X"])
    np.testing.assert_array_equal(y, [0, 1, 0, 1, 0, 1])


def test_load_small_y(folder, monkeypatch):
    np.savez(folder / "Yale.npz", X=np.zeros((6, 4), np.float32), y=np.arange(6))
    monkeypatch.setenv("HOMOPHILY_DATA", str(folder))
    X, y = load("Yale")
    assert X.dtype == np.float64
    np.testing.assert_array_equal(y, np.arange(6))


def test_load_sparse_mat(folder):
    X = arrays("COIL-20")["X"].astype(float)
    write(folder / "COIL20.mat", "COIL-20", X=sp.csc_matrix(X))
    found, _ = load("COIL-20", data_dir=folder)
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, X)


def test_wrong_shape_says_what_was_found_and_expected(folder):
    write(folder / "Yale.npz", "Yale", X=np.zeros((6, 5)))
    with pytest.raises(InputError, match=r"Yale.npz holds 6 samples of 5 features, Yale has 6 samples of 4 features"):
        load("Yale", data_dir=folder)


def test_labels_are_needed(folder):
    np.savez(folder / "Yale.npz", X=arrays("Yale")["X"])
    with pytest.raises(InputError, match=r"holds no labels"):
        load("Yale", data_dir=folder)
    write(folder / "Yale.npz", "Yale", Y=[1, 2])
    with pytest.raises(InputError, match=r"2 labels for 6 samples"):
        load("Yale", data_dir=folder)


def test_pickled_arrays_are_refused(folder):
    write(folder / "Yale.npz", "Yale", Y=np.array([print] * 6, dtype=object))
    with pytest.raises(InputError, match="Python objects"):
        load("Yale", data_dir=folder)


@pytest.mark.parametrize("file", ["Yale.npz", "Yale.mat"])
def test_damaged_file_says_where_it_is_and_what_to_do(folder, file):
    (folder / file).write_bytes(b"no such thing" * 100)
    with pytest.raises(InputError, match=f"{file} could not be read") as caught:
        load("Yale", data_dir=folder)
    assert f"Replace it in {folder} by Yale.mat from github.com" in str(caught.value)


def test_missing_set_says_where_it_looked_and_what_to_do(folder, cache, monkeypatch):
    monkeypatch.setenv("HOMOPHILY_DATA", str(folder))
    with pytest.raises(DatasetNotFoundError) as caught:
        load("yale")
    message = str(caught.value)
    assert isinstance(caught.value, FileNotFoundError)
    assert f"{folder} or {cache} (no such folder)" in message
    assert "'homophily datasets fetch Yale'" in message
    assert "\n" not in message


def test_missing_set_that_cannot_be_fetched(folder):
    with pytest.raises(DatasetNotFoundError) as caught:
        load("LUNG", data_dir=folder)
    assert "fetch" not in str(caught.value)
    assert f"Get lung.mat from github.com/jundongl/scikit-feature (skfeature/data) and put it into {folder}" in str(
        caught.value
    )


@pytest.mark.parametrize("name", PAPER_DATASETS)
def test_real_file_is_what_the_registry_says(real_data, monkeypatch, name):
    monkeypatch.setitem(PAPER_DATASETS, name, REGISTERED[name])
    X, y = real_data(name)
    assert X.shape == REGISTERED[name].shape
    assert np.isfinite(X).all()
    assert len(np.unique(y)) == REGISTERED[name].n_classes


# Downloading: a server on this machine whose answers a test can spoil


class Server(ThreadingHTTPServer):
    """Serves ``files``; what ``spoil`` returns for the number of the request replaces the right answer."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.requests = {}, []
        self.spoil = lambda number: None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/files/"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests.append(self.path)
        content = self.server.files.get(self.path.removeprefix("/files/"))
        spoilt = self.server.spoil(len(self.server.requests))
        if spoilt == "closed":
            self.close_connection = True
            return
        if content is None or isinstance(spoilt, int):
            self.send_error(spoilt or 404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if spoilt == "half":
            self.wfile.write(content[: len(content) // 2])
            self.close_connection = True
        else:
            self.wfile.write(content if spoilt is None else b"?" * len(content))

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    buffer = io.BytesIO()
    scipy.io.savemat(buffer, arrays("Yale"))
    with Server() as server:
        server.files["Yale.mat"] = buffer.getvalue()
        monkeypatch.setenv("HOMOPHILY_DATA_URL", server.url)
        own = replace(PAPER_DATASETS["Yale"], sha256=hashlib.sha256(buffer.getvalue()).hexdigest())
        monkeypatch.setitem(PAPER_DATASETS, "Yale", own)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_fetch_then_load(server, cache, capfd):
    assert fetch("yale") == cache / "Yale.mat"
    assert server.requests == ["/files/Yale.mat"]
    assert [path.name for path in cache.iterdir()] == ["Yale.mat"]
    np.testing.assert_array_equal(load("Yale")[0], arrays("Yale")["X"])
    assert capfd.readouterr() == ("", "")


def test_second_fetch_downloads_nothing(server):
    assert fetch("Yale") == fetch("Yale")
    assert len(server.requests) == 1


def test_fetch_leaves_what_load_finds(server, folder, monkeypatch):
    monkeypatch.setenv("HOMOPHILY_DATA", str(folder))
    assert fetch("Yale", data_dir=write(folder / "YALE.npz", "Yale").parent) == folder / "YALE.npz"
    assert fetch("Yale") == folder / "YALE.npz"
    assert not server.requests


def test_damaged_file_in_the_cache_is_replaced_and_elsewhere_kept(server, folder, cache):
    cache.mkdir()
    for place in (cache, folder):
        (place / "Yale.mat").write_bytes(b"damaged")
    assert fetch("Yale", data_dir=folder).read_bytes() == b"damaged"
    assert fetch("Yale").read_bytes() == server.files["Yale.mat"]


def test_fetch_to_a_folder_from_a_mirror(server, folder, monkeypatch):
    monkeypatch.setenv("HOMOPHILY_DATA_URL", "http://127.0.0.1:1")
    path = fetch("Yale", data_dir=folder / "new", base_url=server.url.rstrip("/"))
    assert path == folder / "new" / "Yale.mat"


@pytest.mark.parametrize("how", ["half", "closed", "other", 503])
def test_transfer_that_breaks_once_is_repeated(server, how):
    server.spoil = lambda number: how if number == 1 else None
    assert fetch("Yale").read_bytes() == server.files["Yale.mat"]
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("how", "kind", "message", "requests"),
    [
        ("half", BrokenTransferError, "could not be downloaded: the transfer broke off", download.ATTEMPTS),
        ("closed", BrokenTransferError, "could not be downloaded: the transfer broke off", download.ATTEMPTS),
        ("other", BrokenTransferError, "has another checksum than Yale", download.ATTEMPTS),
        (503, BrokenTransferError, "could not be downloaded: the server answered 503", download.ATTEMPTS),
        (404, FetchError, "could not be downloaded: the server answered 404 Not Found. Check the address", 1),
    ],
)
def test_failure_leaves_nothing_and_says_what_to_do(server, cache, how, kind, message, requests):
    server.spoil = lambda number: how
    with pytest.raises(OSError, match=message) as caught:
        fetch("Yale")
    assert type(caught.value) is kind
    assert str(caught.value).startswith(f"{server.url}Yale.mat ")
    assert f"put it into {cache}." in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(server.requests) == requests
    assert not list(cache.iterdir())


def test_no_connection(cache):
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(FetchError, match=rf"{url}/Yale.mat .* there is no connection \(.*refused\)"):
            fetch("Yale", base_url=url)
    assert not list(cache.iterdir())


def test_reason_is_that_of_the_download_where_another_error_is_handled(server):
    server.spoil = lambda number: "closed"
    try:
        load("Yale")
    except DatasetNotFoundError:
        with pytest.raises(BrokenTransferError, match=r"the transfer broke off \(Remote end closed connection"):
            fetch("Yale")
    assert len(server.requests) == download.ATTEMPTS


def test_address_that_is_none():
    with pytest.raises(FetchError, match=r"the address is not valid .* Correct HOMOPHILY_DATA_URL"):
        fetch("Yale", base_url="files")


def test_folder_that_cannot_be_written(server, folder):
    (folder / "file").touch()
    with pytest.raises(FetchError, match="could not be written"):
        fetch("Yale", data_dir=folder / "file" / "below")


@pytest.mark.parametrize("name", ["LUNG", "SMK", "SRBCT", "Jaffe"])
def test_without_checksum_nothing_is_downloaded(server, cache, name):
    with pytest.raises(FetchError, match=f"{name} is not downloaded, as no checksum") as caught:
        fetch(name)
    assert f"put it into {cache}." in str(caught.value)
    assert not server.requests


# Command line


def test_list(folder, cache):
    write(folder / "Yale.npz", "Yale")
    lines = [line.rstrip() for line in run("list", "--data-dir", folder).output.splitlines()]
    table = lines[: lines.index("")]
    assert all(len(line) <= 80 for line in table)
    assert [line.split()[0] for line in table if line[0] != " "] == ["name", *PAPER_DATASETS]
    row = {line.split()[0]: line.split(maxsplit=5) for line in table}
    assert row["SMK"] == ["SMK", "187", "19993", "2", "biology", "not here, see below"]
    assert row["GLIOMA"][5] == "can be fetched"
    assert str(folder).startswith(row["Yale"][5])
    assert f"put the file into {folder}:" in "\n".join(lines)
    assert "  LUNG: lung.mat from github.com/jundongl/scikit-feature (skfeature/data)" in lines


def test_list_of_a_full_folder(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    for name in PAPER_DATASETS:
        (folder / f"{name}.npz").touch()
    assert len(run("list", "--data-dir", folder.name).output.splitlines()) == 13


def test_path(folder, cache, monkeypatch):
    assert run("path").stdout.splitlines() == [str(cache)]
    monkeypatch.setenv("HOMOPHILY_DATA", str(folder))
    assert run("path").stdout.splitlines() == [str(folder), str(cache)]
    write(folder / "Yale.npz", "Yale")
    assert run("path", "yale").stdout.splitlines() == [str(folder / "Yale.npz")]
    assert "Error: There is no SMK.npz" in run("path", "smk", code=2).stderr


def test_fetch_command(server, cache):
    assert run("fetch", "yale").stdout == f"Yale: written to {cache / 'Yale.mat'}\n"
    assert run("fetch", "Yale", "YALE").stdout == f"Yale: already there, {cache / 'Yale.mat'}\n"
    assert len(server.requests) == 1


def test_fetch_command_gets_what_it_can(server, cache):
    result = run("fetch", "Jaffe", "GLIOMA", "Yale", code=2)
    assert result.stdout == f"Yale: written to {cache / 'Yale.mat'}\n"
    errors = result.stderr.splitlines()
    assert len(errors) == 2
    assert errors[0].startswith("Error: Jaffe is not downloaded")
    assert "GLIOMA.mat could not be downloaded: the server answered 404" in errors[1]


def test_fetch_all(server, folder):
    for name in PAPER_DATASETS:
        if name != "Yale":
            (folder / f"{name}.npz").touch()
    output = run("fetch", "all", "--data-dir", folder).stdout
    assert output.count("already there") == 11
    assert f"Yale: written to {folder / 'Yale.mat'}" in output


def test_unknown_names_stop_before_any_download(server):
    assert "none of the paper's" in run("fetch", "Yale", "MNIST", code=2).stderr
    assert not server.requests


def test_help_loads_nothing_heavy():
    code = "import sys, homophily.cli; sys.exit(bool({'numpy', 'scipy', 'pooch', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
