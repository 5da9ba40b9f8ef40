"""Data to try the methods on."""

from .download import BrokenTransferError, FetchError, fetch
from .planted import make_planted
from .real import (
    PAPER_DATASETS,
    Dataset,
    DatasetNotFoundError,
    available,
    cache_folder,
    dataset_path,
    load,
    locate,
    paper_dataset,
    search_folders,
)
from .toy import TOY_NAMES, make_toy

__all__ = [
    "PAPER_DATASETS",
    "TOY_NAMES",
    "BrokenTransferError",
    "Dataset",
    "DatasetNotFoundError",
    "FetchError",
    "available",
    "cache_folder",
    "dataset_path",
    "fetch",
    "load",
    "locate",
    "make_planted",
    "make_toy",
    "paper_dataset",
    "search_folders",
]
