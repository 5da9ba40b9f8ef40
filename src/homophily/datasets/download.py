"""Download of the paper's data sets: checked against their sums, complete or not there."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ..drafts import replacing, writing
from ..errors import OutputError
from .real import Dataset, cache_folder, dataset_path, paper_dataset

if TYPE_CHECKING:
    from requests import RequestException, Response

__all__ = ["BrokenTransferError", "FetchError", "fetch", "intact_path"]

COMMIT = "48cffad4e88ff4b9d2f1c7baffb314d1b3303792"  # of scikit-feature; the sums are those of its files
BASE_URL = f"https://raw.githubusercontent.com/jundongl/scikit-feature/{COMMIT}/skfeature/data"
ATTEMPTS = 3
PAUSE = 1.0  # seconds before another attempt
TIMEOUT = (10, 60)  # seconds to connect, and without any data


class FetchError(OSError):
    """A data set could not be downloaded. The message says why and what to do."""


class BrokenTransferError(FetchError):
    """What arrived is not the whole file. Another attempt may do better."""


def fetch(name: str, *, data_dir: str | Path | None = None, base_url: str | None = None) -> Path:
    """Download one of the paper's data sets, unless it is there already.

    The file comes from the repository of scikit-feature and is kept only if its SHA-256 sum is the known one. Nothing
    is downloaded of LUNG, SMK, SRBCT and Jaffe, whose sums are not known.

    Parameters
    ----------
    name : str
        One of ``PAPER_DATASETS``; case and punctuation do not matter.
    data_dir : str or Path, optional
        Folder to look in and to write to. By default a file that :func:`~homophily.datasets.load` finds is left where
        it is, and a download goes to :func:`~homophily.datasets.cache_folder`, where a damaged file is replaced.
    base_url : str, optional
        Address of a folder with the same files. By default the environment variable ``HOMOPHILY_DATA_URL``, or the
        repository.

    Returns
    -------
    path : Path
        The file.

    Raises
    ------
    FetchError
        An ``OSError``, if the file cannot be had. Transfers that break off are tried three times.
    """
    data = paper_dataset(name)
    there = intact_path(data.name, data_dir=data_dir)
    if there is not None:
        return there
    folder = cache_folder() if data_dir is None else Path(data_dir).expanduser()
    if data.sha256 is None:
        raise FetchError(
            f"{data.name} is not downloaded, as no checksum of {data.source} is known. Get the file from {data.origin} "
            f"and put it into {folder}."
        )
    url = f"{(base_url or os.environ.get('HOMOPHILY_DATA_URL') or BASE_URL).rstrip('/')}/{data.source}"
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE)
        try:
            return _download(url, data, folder)
        except BrokenTransferError as error:
            broken = error
    raise broken


def intact_path(name: str, *, data_dir: str | Path | None = None) -> Path | None:
    """File that :func:`fetch` leaves as it is: any that is found, other than a damaged download in the cache."""
    data = paper_dataset(name)
    path = dataset_path(data.name, data_dir=data_dir)
    if path is None or data.sha256 is None or path != cache_folder() / data.source:
        return path
    import pooch

    return path if pooch.file_hash(str(path)) == data.sha256 else None


def _download(url: str, data: Dataset, folder: Path) -> Path:
    import pooch
    from requests import RequestException

    by_hand = f"or get {data.source} from {data.origin} and put it into {folder}"
    path = folder / data.source
    elsewhere = "set HOMOPHILY_CACHE to another folder, or name one (in the command line: --data-dir)"
    try:
        with writing(folder, elsewhere=elsewhere):
            folder.mkdir(parents=True, exist_ok=True)
        with replacing(path, elsewhere) as draft:
            _transfer(url, draft)
            found = pooch.file_hash(str(draft))
            if found != data.sha256:
                raise BrokenTransferError(
                    f"{url} has another checksum than {data.name} (SHA-256 {found:.8}..., expected "
                    f"{data.sha256:.8}...) and was not kept. Set HOMOPHILY_DATA_URL to another mirror, {by_hand}."
                )
    except (FetchError, OutputError):
        raise
    except RequestException as error:  # an OSError, too
        kind, message = _what_happened(error)
        raise kind(f"{url} could not be downloaded: {message}, {by_hand}.") from error
    except OSError as error:
        raise FetchError(
            f"{path} could not be written ({error.strerror or error}). {elsewhere[0].upper()}{elsewhere[1:]}."
        ) from error
    return path


def _transfer(url: str, path: Path) -> None:
    import pooch

    answers: list[Response] = []
    hooks = {"response": lambda answer, **_: answers.append(answer)}
    try:
        pooch.HTTPDownloader(chunk_size=2**16, timeout=TIMEOUT, hooks=hooks)(url, str(path), None)
    finally:
        for answer in answers:  # pooch leaves the connection of a transfer that failed open
            answer.close()


def _what_happened(error: RequestException) -> tuple[type[FetchError], str]:
    """Whether another attempt may do better, and what happened and what to do in words."""
    import requests

    cause = _root(error)
    detail = " ".join(str(cause).split())
    mirror = "set HOMOPHILY_DATA_URL to a mirror"
    if isinstance(error, requests.HTTPError) and error.response is not None:
        answer = f"the server answered {error.response.status_code} {error.response.reason}"
        if error.response.status_code < 500:
            return FetchError, f"{answer}. Check the address, {mirror}"
        return BrokenTransferError, f"{answer}. Try again later, {mirror}"
    if isinstance(error, ValueError):
        return FetchError, f"the address is not valid ({detail}). Correct HOMOPHILY_DATA_URL"
    if isinstance(error, requests.ConnectionError) and not isinstance(cause, (ConnectionResetError, TimeoutError)):
        return FetchError, f"there is no connection ({detail}). Check the network, {mirror}"
    if isinstance(error, requests.ConnectTimeout):
        return FetchError, f"the server does not answer. Check the network, {mirror}"
    return BrokenTransferError, f"the transfer broke off ({detail}). Try again, {mirror}"


def _root(error: BaseException) -> BaseException:
    """The first failure that ``error`` wraps; not by ``__context__``, which may be what the caller is dealing with."""
    inside = (getattr(error, "reason", None), *error.args, error.__cause__)
    deeper = next((one for one in inside if isinstance(one, BaseException)), None)
    return error if deeper is None else _root(deeper)
