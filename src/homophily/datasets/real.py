"""The twelve data sets of the paper: what they are, where their files lie, and how to load them."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import scipy.sparse as sp

from ..wording import listing

__all__ = [
    "PAPER_DATASETS",
    "Dataset",
    "DatasetNotFoundError",
    "available",
    "cache_folder",
    "dataset_path",
    "load",
    "locate",
    "paper_dataset",
    "search_folders",
]

SCIKIT_FEATURE = "github.com/jundongl/scikit-feature (skfeature/data)"
ENDINGS = (".npz", ".mat")


class DatasetNotFoundError(FileNotFoundError):
    """A data set's file is in none of the folders searched. The message says how to get it."""


@dataclass(frozen=True)
class Dataset:
    """What is known of a data set before it is loaded."""

    name: str  # as the paper writes it
    n_samples: int
    n_features: int
    n_classes: int
    kind: Literal["text", "artificial", "image", "biology"]
    source: str  # name of the published file
    origin: str = SCIKIT_FEATURE  # where that file is published
    sha256: str | None = None  # of that file; without it nothing is downloaded

    @property
    def shape(self) -> tuple[int, int]:
        """Samples by features."""
        return self.n_samples, self.n_features


SHA256 = {
    "PCMAC.mat": "9999dfccf97ab88f87127dd3457da436acb75cda9f0af4750e7cae5fe1a31b25",
    "madelon.mat": "7dc9c9ff8d902651948e2df7f9cb6ed38c5d91e4c4159914cecb1ddbc7def12c",
    "COIL20.mat": "4595ebdda07f47b0eb014fcfaddc22b452f9aed9c1d9261a0d5bc336c1ee1344",
    "Yale.mat": "cccd29abd2c520dd5cc8ff7645b422c2bdadd59406a6b6a0239143d9d44afcf3",
    "pixraw10P.mat": "aa4b474244ae847dc2efdc868c0ff58fc3748a830c2ffdf760a1697cf72088f8",
    "warpPIE10P.mat": "0d22b0e4fe224ea7347ae266370b6eb0d724d5fd0ad7da71261a58c24e08c3c2",
    "GLIOMA.mat": "c31cd32edd770c7a102729839e670e588bc959a591e0eae5a0676c9ca11d4c4f",
    "Prostate-GE.mat": "050b598534dbc662f23e30f39b41354b61d02ab8567837bcf9b1091c1c636ab4",
}
PAPER_DATASETS: dict[str, Dataset] = {
    data.name: replace(data, sha256=SHA256.get(data.source))
    for data in (
        Dataset("PCMAC", 1943, 3289, 2, "text", "PCMAC.mat"),
        Dataset("Madelon", 2600, 500, 2, "artificial", "madelon.mat"),
        Dataset("COIL-20", 1440, 1024, 20, "image", "COIL20.mat"),
        Dataset("Yale", 165, 1024, 15, "image", "Yale.mat"),
        Dataset("PIX10", 100, 10000, 10, "image", "pixraw10P.mat"),
        Dataset("Jaffe", 213, 676, 10, "image", "jaffe_213n_676d_10c.mat", "github.com/csliangdu/RMKKM (data)"),
        Dataset("warpPIE10P", 210, 2420, 10, "image", "warpPIE10P.mat"),
        Dataset("GLIOMA", 50, 4434, 4, "biology", "GLIOMA.mat"),
        Dataset("LUNG", 203, 3312, 5, "biology", "lung.mat"),
        Dataset("PROSTATE", 102, 5966, 2, "biology", "Prostate-GE.mat"),
        Dataset("SRBCT", 83, 2308, 4, "biology", "SRBCT.mat", "github.com/BIMK/VGS-MOEA"),
        Dataset("SMK", 187, 19993, 2, "biology", "SMK-CAN-187.mat"),
    )
}


def paper_dataset(name: str) -> Dataset:
    """What is known of the data set ``name``; ``COIL-20``, ``COIL20`` and ``coil_20`` mean the same."""
    for data in PAPER_DATASETS.values():
        if _plain(data.name) == _plain(str(name)):
            return data
    raise ValueError(f"dataset={name!r} is none of the paper's: {listing(PAPER_DATASETS, 12)}.")


def cache_folder() -> Path:
    """Folder that :func:`~homophily.datasets.fetch` writes to: ``HOMOPHILY_CACHE``, or the system's for caches."""
    own = os.environ.get("HOMOPHILY_CACHE")
    if own:
        return Path(own).expanduser()
    import pooch

    return Path(pooch.os_cache("homophily"))


def search_folders(data_dir: str | Path | None = None) -> list[Path]:
    """Folders where files are looked for: ``data_dir`` alone if given, else ``HOMOPHILY_DATA`` and the cache."""
    if data_dir is not None:
        return [Path(data_dir).expanduser()]
    own = os.environ.get("HOMOPHILY_DATA")
    return [*([Path(own).expanduser()] if own else []), cache_folder()]


def dataset_path(name: str, *, data_dir: str | Path | None = None) -> Path | None:
    """File of the data set ``name``, or None if it is in none of the folders (:func:`search_folders`).

    It is called after the data set in any spelling, or as it was published: for COIL-20 that is ``COIL-20.npz``,
    ``coil20.mat`` and so on. In one folder the data set's own name comes first, and npz before mat.
    """
    data = paper_dataset(name)
    wanted = [(_plain(stem), ending) for stem in (data.name, Path(data.source).stem) for ending in ENDINGS]
    for folder in search_folders(data_dir):
        found: dict[tuple[str, str], Path] = {}
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            key = _plain(path.stem), path.suffix.lower()
            if key in wanted and path.is_file():
                found.setdefault(key, path)
        if found:
            return found[min(found, key=wanted.index)]
    return None


def locate(name: str, *, data_dir: str | Path | None = None) -> Path:
    """Like :func:`dataset_path`, but raises :class:`DatasetNotFoundError` where that returns None."""
    path = dataset_path(name, data_dir=data_dir)
    if path is None:
        raise DatasetNotFoundError(_not_found(paper_dataset(name), search_folders(data_dir)))
    return path


def available(data_dir: str | Path | None = None) -> list[str]:
    """Names of the data sets that :func:`load` finds."""
    return [name for name in PAPER_DATASETS if dataset_path(name, data_dir=data_dir) is not None]


def load(name: str, *, data_dir: str | Path | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Load one of the paper's data sets.

    Parameters
    ----------
    name : str
        One of ``PAPER_DATASETS``; case and punctuation do not matter.
    data_dir : str or Path, optional
        The folder with the files. By default the folder that the environment variable ``HOMOPHILY_DATA`` names, then
        the cache, where :func:`~homophily.datasets.fetch` puts what it downloads.

    Returns
    -------
    X : ndarray (n, d), float64
    y : ndarray (n,)
        The class of each sample, as the file has it.

    Raises
    ------
    DatasetNotFoundError
        If there is no file.
    InputError
        If the file cannot be read or holds something else.
    """
    from ..io import InputError, read_table  # pandas and pyarrow: only for those who load something

    data = paper_dataset(name)
    path = locate(name, data_dir=data_dir)
    try:
        table = read_table(path)
        if table.X.shape != data.shape:
            found, expected = (f"{n} samples of {d} features" for n, d in (table.X.shape, data.shape))
            raise InputError(f"{path.name} holds {found}, {data.name} has {expected}.")
        if table.labels is None:
            raise InputError(f"{path.name} holds no labels; they should be an array named y or Y.")
    except InputError as error:
        what = str(error).rstrip(".")
        raise InputError(f"{what}. Replace it in {path.parent} by {_where_from(data)}.") from error
    X = table.X.toarray() if sp.issparse(table.X) else table.X
    # One memory layout, whatever the file had: sums of numbers then round alike for npz and mat.
    return np.ascontiguousarray(X, dtype=np.float64), np.array(table.labels)


def _not_found(data: Dataset, folders: list[Path]) -> str:
    files = f"{data.name}.npz", f"{data.name}.mat", data.source
    names = " or ".join({file.casefold(): file for file in files}.values())
    looked = " or ".join(f"{folder}{'' if folder.is_dir() else ' (no such folder)'}" for folder in folders)
    how = f"Run 'homophily datasets fetch {data.name}', or get" if data.sha256 else "Get"
    return f"There is no {names} in {looked}. {how} {_where_from(data)} and put it into {folders[0]}."


def _where_from(data: Dataset) -> str:
    return f"{data.source} from {data.origin}"


def _plain(name: str) -> str:
    """Spellings of a data set's name that mean the same: COIL20, COIL-20, coil_20."""
    return "".join(c for c in name.casefold() if c.isalnum())
