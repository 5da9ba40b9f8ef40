"""Every writer where there is no room: a program that ``test_full_disk.py`` runs on a small disk or with a limit.

``python full_disk.py writers|limited|commands FOLDER SOURCES`` prints JSON. SOURCES is a folder with room.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOM = 30_000  # bytes, less than any of the files takes


def fill(folder):
    """Leave about ROOM bytes on the disk of ``folder``."""
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    assert free < 20_000_000, f"{folder} is no small disk made for this"
    (folder / "filler").write_bytes(b"x" * max(0, free - ROOM))


def content(folder):
    """What is in all files below ``folder``, hidden ones too."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes().hex() for path in files}


def writers(sources):
    """Functions that write a file, by their name and that of the file."""
    import numpy as np
    import pandas as pd
    import scipy.sparse as sp
    from anndata import AnnData
    from matplotlib.figure import Figure

    from homophily.anndata import write_cells
    from homophily.baselines import RandomSelector
    from homophily.checkpoint import Checkpoint
    from homophily.figures import save
    from homophily.io import Table, read_table, write_reduced
    from homophily.output import write_whole

    X = np.random.RandomState(0).randn(100, 200)
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(200)])
    names, every = list(frame.columns), np.arange(200)
    for suffix in (".csv", ".tsv", ".parquet"):
        yield (
            f"reduced{suffix}",
            lambda path, suffix=suffix: write_reduced(Table(frame, names, suffix=suffix), every, path),
        )
    for suffix in (".npy", ".npz", ".mat"):
        yield f"reduced{suffix}", lambda path, suffix=suffix: write_reduced(Table(X, names, suffix=suffix), every, path)
    sparse = Table(sp.csr_array(X), names, suffix=".npz")
    yield "sparse.npz", lambda path: write_reduced(sparse, every, path)
    np.save(sources / "rows.npy", X)
    frame.to_parquet(sources / "rows.parquet")
    for suffix in (".npy", ".parquet"):
        table = read_table(sources / f"rows{suffix}", on_disk=lambda n, d: True)
        yield f"streamed{suffix}", lambda path, table=table: write_reduced(table, every, path)
    AnnData(X).write_h5ad(sources / "cells.h5ad")
    cells = read_table(sources / "cells.h5ad")
    selector = RandomSelector(150, random_state=0).fit(X)
    yield "cells.h5ad", lambda path: write_cells(cells.annotated, selector, None, path)
    figure = Figure()
    figure.subplots().imshow(X)
    yield "figure.svg", lambda path: save(figure, path)
    yield "page.html", lambda path: write_whole(path, "x" * 2 * ROOM)
    state = Checkpoint(Path("training.safetensors"), {}, X)

    def checkpoint(path):
        state.path = path
        state.save({"X": X}, finished=False)

    yield "training.safetensors", checkpoint


def try_writers(folder, prepared):
    """Write each over an earlier file."""
    for name, write in prepared:
        path = folder / name
        path.write_bytes(b"earlier")
        told = {"name": name, "error": None}
        try:
            write(path)
        except Exception as error:
            told |= {"error": type(error).__name__, "message": str(error), "number": getattr(error, "errno", None)}
        told["left"] = {one.name: one.read_bytes() == b"earlier" for one in folder.iterdir() if one.name != "filler"}
        sys.stdout.write(f"{json.dumps(told)}\n")
        path.unlink()


def try_store(folder):
    """Fill a store; what was in it before is there afterwards."""
    from homophily.evaluation import RunStore

    path = folder / "runs.sqlite"
    with RunStore(path) as store:
        store.put({"cell": 0}, "earlier")
        if (folder / "filler").exists():
            (folder / "filler").unlink()
            fill(folder)
        told = {"name": path.name, "error": None}
        try:
            store.put({"cell": 1}, "x" * 3 * ROOM)
        except Exception as error:
            told |= {"error": type(error).__name__, "message": str(error), "number": None}
    with RunStore(path) as store:
        earlier = [value for _, value in store.items()] == ["earlier"]
    path.unlink()
    told["left"] = {path.name: earlier} | {one.name: False for one in folder.iterdir() if one.name != "filler"}
    sys.stdout.write(f"{json.dumps(told)}\n")


def run(*arguments):
    from typer.testing import CliRunner

    from homophily.cli import app

    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, [str(argument) for argument in arguments])
    return {"code": result.exit_code, "output": result.output}


def try_commands(folder, sources):
    """Commands on a disk that is empty, then full, then has room again, then is read-only."""
    import numpy as np
    import pandas as pd

    data = sources / "data.csv"
    X = np.random.RandomState(0).randn(60, 40)
    pd.DataFrame(X, columns=[f"column{i}" for i in range(40)]).to_csv(data, index=False)
    select = ("select", data, "-m", 30, "--method", "random", "--out", folder / "out")
    learn = ("select", data, "-m", 30, "--method", "dirichlet", "--max-iter", 3, "--out", folder / "learned")
    compare = ("compare", data, "-m", 2, "--methods", "ls", "--trees", 2, "-j", 1, "--out", folder / "compared")
    export = ("runs", "export", folder / "compared", "--out", folder / "cells.csv")
    told = {"first": [run(*select), run(*compare, "--splits", 1)]}
    before = content(folder)
    fill(folder)
    told["full"] = [
        run(*select, "--overwrite", "--seed", 1),
        run(*learn),
        run(*compare, "--splits", 6),
    ]
    (folder / "filler").unlink()
    after = content(folder)
    told["kept"] = {name: after.get(name) == before[name] for name in before if not name.endswith(".sqlite")}
    told["new"] = sorted(set(after) - set(before))
    told["again"] = [run(*select, "--overwrite", "--seed", 1), run(*learn, "--resume"), run(*compare, "--splits", 2)]
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    before = content(folder)
    told["read_only"] = [run(*select, "--overwrite"), run(*learn, "--overwrite"), run(*compare), run(*export)]
    told["unchanged"] = content(folder) == before
    sys.stdout.write(f"{json.dumps(told)}\n")


if __name__ == "__main__":
    mode, where, source = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    if mode == "commands":
        try_commands(where, source)
        sys.exit()
    prepared = list(writers(source))  # before there is no room
    if mode == "limited":
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, resource.RLIM_INFINITY))
    else:
        fill(where)
    try_writers(where, prepared)
    try_store(where)
