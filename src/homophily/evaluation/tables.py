"""Results as the tables of the paper: the best number of features, ranks, and the paper's own numbers beside ours."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from textwrap import fill

import numpy as np
import pandas as pd

from .paper import PAPER_NAMES, paper_table

__all__ = ["TASKS", "ResultTable", "best_over_m", "rankings", "task_tables", "with_paper"]

TASKS = {
    "classification": "Classification accuracy",
    "clustering": "Clustering accuracy",
    "reconstruction": "Reconstruction RMSE",
}
LOWER_IS_BETTER = {"reconstruction"}
DIGITS = 2  # that the paper prints, and so all that its ranks are made from
IN_PAPER = {**PAPER_NAMES, "dirichlet-paper": "Our"}
DISPLAY = {
    **PAPER_NAMES,
    "fsca": "FSCA",
    "fastcan": "FastCan",
    "mcfs": "MCFS",
    "ipcae": "IP-CAE",
    "variance": "Variance",
    "medoids": "Medoids",
    "predictive": "homophily",
    "dirichlet": "Dirichlet",
    "dirichlet-paper": "Our settings",
    "random": "Random",
}
PLACE = ["task", "dataset", "method"]
OURS, THEIRS = "ours", "paper"  # names of columns
DIFFERENCE = "; diff: ours − paper"
GAP = "  "  # between columns of text


def best_over_m(table: pd.DataFrame) -> pd.DataFrame:
    """Each method at the number of features where its mean is best, as in Table 2.

    Parameters
    ----------
    table : DataFrame
        Columns dataset, method, m (missing for a method without choice), task (one of ``TASKS``), mean, std and
        splits. Rows without a mean are left out.

    Returns
    -------
    DataFrame
        Columns task, dataset, method, mean, std, best_m and splits; of equal means that of the smallest m. Tasks and
        data sets come in the paper's order, other data sets after them by name, and methods as first met.
    """
    _check(table, [*PLACE, "m", "mean", "std", "splits"])
    loss = table["mean"].where(table["task"].isin(LOWER_IS_BETTER), -table["mean"])
    best = (
        table.assign(m=table["m"].astype("Int64"), loss=loss)
        .dropna(subset="mean")
        .sort_values(["loss", "m"], kind="stable")
        .drop_duplicates(PLACE)
        .rename(columns={"m": "best_m"})
    )
    in_paper = list(paper_table()["dataset"].unique())
    orders = {
        "task": list(TASKS),
        "dataset": in_paper + sorted(set(table["dataset"]) - set(in_paper)),
        "method": list(table["method"].unique()),
    }
    best = best.sort_values(PLACE, key=lambda names: names.map(orders[names.name].index), ignore_index=True)
    return best[[*PLACE, "mean", "std", "best_m", "splits"]]


def rankings(best: pd.DataFrame, digits: int = DIGITS) -> pd.DataFrame:
    """Average rank over the data sets, and how often a method is the best, as in the last rows of Table 2.

    Equal means share the best of their ranks and the next rank is skipped (1, 1, 3): of the usual rules the only one
    that gives the ranks which the paper prints, all 27 of them.

    Parameters
    ----------
    best : DataFrame
        Columns task, dataset, method and mean, one row for each of the three, as from :func:`best_over_m`.
    digits : int
        Means are rounded to so many digits before they are ranked.

    Returns
    -------
    DataFrame
        Columns task, method, average_rank, top_1 and datasets: on how many data sets all methods of the task have a
        mean. Only these count; without any, the average rank is NaN.

    Examples
    --------
    >>> from homophily.evaluation import paper_table, rankings
    >>> rankings(paper_table()).query("method == 'Our'").round(1)
                  task method  average_rank  top_1  datasets
    7   classification    Our           1.8      9        12
    16      clustering    Our           1.8      7        12
    25  reconstruction    Our           2.7      5        12
    """
    _check(best, [*PLACE, "mean"])
    rows = []
    for task in TASKS:
        means = _complete(best[best["task"] == task]).round(digits)
        ranks = means.rank(axis=1, method="min", ascending=task in LOWER_IS_BETTER)
        rows += [(task, method, own.mean(), (own == 1).sum(), len(own)) for method, own in ranks.items()]
    return pd.DataFrame(rows, columns=["task", "method", "average_rank", "top_1", "datasets"])


def with_paper(best: pd.DataFrame) -> pd.DataFrame:
    """``best`` with what the paper has in the same place: paper_mean, paper_std, paper_best_m, and the difference.

    ``difference`` is our mean minus the paper's. All four are missing where the paper has no such method or data set;
    methods are found by ``PAPER_NAMES``, where ``dirichlet-paper`` is ``Our`` too, tasks and data sets by their names.
    """
    _check(best, [*PLACE, "mean"])
    paper = paper_table().rename(
        columns={"method": "name", **{name: f"paper_{name}" for name in ("mean", "std", "best_m")}}
    )
    named = best.assign(name=best["method"].map(IN_PAPER))
    both = named.merge(paper, on=["task", "dataset", "name"], how="left", validate="many_to_one").drop(columns="name")
    return both.assign(difference=both["mean"] - both["paper_mean"])


@dataclass(frozen=True)
class ResultTable:
    """A table of text, to be shown in several formats."""

    title: str
    header: list[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)  # a heading over each column, equal ones side by side shared
    best: frozenset[tuple[int, int]] = frozenset()  # cells (row, column) to be set in bold

    def turned(self) -> ResultTable:
        """One row a group and one column a row, as in the paper: ``ours``, and ``paper`` behind it in square brackets.

        That suits a page, where many data sets side by side do not fit. Differences are left out. A table without
        ``ours`` stays as it is.
        """
        if OURS not in self.header or not self.groups:
            return self
        rows: list[list[str]] = []
        best: set[tuple[int, int]] = set()
        for group, same in groupby(range(1, len(self.header)), key=lambda j: self.groups[j]):
            columns = {self.header[j]: j for j in same}
            ours, paper = columns.get(OURS), columns.get(THEIRS)
            if ours is None:
                continue
            best |= {(len(rows), i + 1) for i in range(len(self.rows)) if (i, ours) in self.best}
            values = ((row[ours], "" if paper is None else row[paper]) for row in self.rows)
            rows.append([group, *(f"{own} [{other}]" if other else own for own, other in values)])
        notes = [
            note.replace("paper:", "In square brackets:").replace(DIFFERENCE, "") if note.startswith("paper:") else note
            for note in self.notes
        ]
        return ResultTable(self.title, ["", *(row[0] for row in self.rows)], rows, notes, best=frozenset(best))

    def to_text(self, width: int = 80) -> str:
        """Aligned columns; what is wider than ``width`` goes into blocks that repeat the first column."""
        blocks, widths = self._blocks(width)
        parts = [fill(self.title, width)]
        for units in blocks:
            spans = [sum(widths[j] for j in unit) + len(GAP) * (len(unit) - 1) for unit in units]
            lines = []
            if self.groups:
                lines.append(_line([self._group(unit) for unit in units], spans))
            columns = [j for unit in units for j in unit]
            chosen = [widths[j] for j in columns]
            lines += [_line([row[j] for j in columns], chosen) for row in (self.header, *self.rows)]
            lines.insert(len(lines) - len(self.rows), "-" * len(GAP.join(" " * span for span in spans)))
            parts.append("\n".join(lines))
        if self.notes:
            parts.append("\n".join(fill(note, width) for note in self.notes))
        return "\n\n".join(parts) + "\n"

    def to_markdown(self) -> str:
        """A heading, one table and the notes."""
        rows = [
            [f"**{cell}**" if (i, j) in self.best else cell for j, cell in enumerate(row)]
            for i, row in enumerate(self.rows)
        ]
        lines = [self._flat_header(), ["---"] * len(self.header), *rows]
        grid = "\n".join("| " + " | ".join(map(markdown, line)) + " |" for line in lines)
        notes = "\n".join(f"- {markdown(note)}" for note in self._notes_with_bold())
        return "\n\n".join(part for part in (f"## {markdown(self.title)}", grid, notes) if part) + "\n"

    def to_latex(self, width: int = 110) -> str:
        """A ``table`` for the package booktabs, in blocks of about ``width`` characters, which fit a page."""
        lines = [r"\begin{table}", r"\centering\scriptsize"]
        caption = ". ".join([self.title, *(note.rstrip(".") for note in self._notes_with_bold())])
        lines.append(rf"\caption{{{_latex(caption)}.}}")
        for units in self._blocks(width)[0]:
            columns = [j for unit in units for j in unit]
            lines += [rf"\begin{{tabular}}{{{'l' * len(columns)}}}", r"\toprule"]
            if self.groups:
                spans = [rf"\multicolumn{{{len(unit)}}}{{l}}{{{_latex(self._group(unit))}}}" for unit in units]
                lines.append(" & ".join(spans) + r" \\")
            lines += [" & ".join(_latex(self.header[j]) for j in columns) + r" \\", r"\midrule"]
            for i, row in enumerate(self.rows):
                cells = [rf"\textbf{{{_latex(row[j])}}}" if (i, j) in self.best else _latex(row[j]) for j in columns]
                lines.append(" & ".join(cells) + r" \\")
            lines += [r"\bottomrule", r"\end{tabular}", ""]
        lines[-1] = r"\end{table}"
        return "\n".join(lines) + "\n"

    def _flat_header(self) -> list[str]:
        groups = self.groups or [""] * len(self.header)
        return [f"{group} {name}".strip() for group, name in zip(groups, self.header, strict=True)]

    def _notes_with_bold(self) -> list[str]:
        return [*self.notes, f"Bold: the best at {DIGITS} digits."] if self.best else self.notes

    def _group(self, unit: Sequence[int]) -> str:
        return self.groups[unit[0]] if self.groups else ""

    def _blocks(self, width: int) -> tuple[list[list[list[int]]], list[int]]:
        """Columns by block and by group within it, the first column leading each block; and the width of each."""
        widths = [max(map(len, column)) for column in zip(self.header, *self.rows, strict=True)]
        room = width - widths[0]
        units: list[list[int]] = []
        for _, same in groupby(range(1, len(widths)), key=lambda j: self._group([j]) or j):
            unit = list(same)
            fits = sum(widths[j] + len(GAP) for j in unit) <= room
            units += [unit] if fits else [[j] for j in unit]
        blocks: list[list[list[int]]] = []
        left = -1
        for unit in units:
            widths[unit[-1]] += max(0, len(self._group(unit)) - len(GAP.join(" " * widths[j] for j in unit)))
            need = sum(widths[j] + len(GAP) for j in unit)
            if not blocks or need > left:
                blocks.append([[0]])
                left = room
            blocks[-1].append(unit)
            left -= need
        return blocks or [[[0]]], widths


def task_tables(best: pd.DataFrame, *, order: Iterable[str] | None = None) -> list[ResultTable]:
    """One table for each task in ``best``: a row for each method; our result, the paper's and the difference.

    Ranks are among the methods that the paper has too, for us and the paper alike; else they could not be compared.
    Where a data set is not in the paper, its columns are left out.

    Parameters
    ----------
    best : DataFrame
        As from :func:`best_over_m`.
    order : iterable of str, optional
        Methods from the first row on; others follow as first met.
    """
    _check(best, [*PLACE, "mean", "std", "best_m", "splits"])
    both = with_paper(best)
    methods = list(dict.fromkeys([*(order or ()), *both["method"]]))
    return [_task_table(task, both[both["task"] == task], methods) for task in TASKS if (both["task"] == task).any()]


def _task_table(task: str, both: pd.DataFrame, methods: Sequence[str]) -> ResultTable:
    methods = [method for method in methods if method in set(both["method"])]
    columns: list[tuple[str, str, list[str], pd.Series | None]] = []  # group, name, cells, means to find the best of
    for dataset in both["dataset"].unique():
        rows = both[both["dataset"] == dataset].set_index("method").reindex(methods)
        ours = [_value(*row) for row in zip(rows["mean"], rows["std"], rows["best_m"], strict=True)]
        paper = [
            _value(mean, None, m, DIGITS) for mean, m in zip(rows["paper_mean"], rows["paper_best_m"], strict=True)
        ]
        columns += [
            (dataset, OURS, ours, rows["mean"]),
            (dataset, THEIRS, paper, rows["paper_mean"]),
            (dataset, "diff", [_signed(difference) for difference in rows["difference"]], None),
        ]
    known = both[both["method"].isin(IN_PAPER) & both["mean"].notna()]
    datasets = list(_complete(known).index)
    theirs = known.assign(mean=known["paper_mean"])
    theirs = theirs[theirs["dataset"].isin(datasets)].dropna(subset="mean")
    ranks, paper_ranks = (rankings(part).set_index("method").reindex(methods) for part in (known, theirs))
    for group, name, write in (("avg. rank", "average_rank", _one_digit), ("top-1", "top_1", _whole)):
        columns += [
            (group, OURS, [write(value) for value in ranks[name]], None),
            (group, THEIRS, [write(value) for value in paper_ranks[name]], None),
        ]
    columns = [column for column in columns if any(column[2])]  # what the paper lacks
    return ResultTable(
        title=TASKS[task],
        header=["method", *(name for _, name, _, _ in columns)],
        groups=["", *(group for group, _, _, _ in columns)],
        rows=[[DISPLAY.get(method, method), *(column[2][i] for column in columns)] for i, method in enumerate(methods)],
        notes=_notes(task, both, known, datasets, theirs["dataset"].nunique()),
        best=frozenset(
            (i, j)
            for j, (_, _, _, means) in enumerate(columns, start=1)
            if means is not None
            for i in _best_rows(means, task)
        ),
    )


def _notes(task: str, both: pd.DataFrame, known: pd.DataFrame, datasets: list[str], in_paper: int) -> list[str]:
    splits = sorted({int(number) for number in both["splits"]})
    number = f"{splits[0]}" if len(splits) == 1 else f"{splits[0]} to {splits[-1]}"
    better = "lower" if task in LOWER_IS_BETTER else "higher"
    notes = [
        ("ours: one split" if number == "1" else f"ours: mean ± standard deviation over {number} splits")
        + f", at the number of features in brackets, where that is best on the test rows; {better} is better."
    ]
    if both["paper_mean"].notna().any():
        notes.append(f"paper: Table 2 of Xu et al. (NeurIPS 2023){DIFFERENCE}.")
    if datasets:
        count, total = len(datasets), both["dataset"].nunique()
        over = f"all {total} data sets" if count == total > 1 else f"{count} of {total} data sets"
        paper = "" if in_paper == len(datasets) else f" (paper: {in_paper})"
        notes.append(
            f"Ranks: among the {known['method'].nunique()} methods here that the paper has, over {over} with a "
            f"result of each{paper}; means are rounded to {DIGITS} digits, and equal ones share the best rank."
        )
    return notes


def _check(table: pd.DataFrame, columns: Sequence[str]) -> None:
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise ValueError(
            f"The table has no column {', '.join(missing)}; expected are {', '.join(columns)}, one row for each result."
        )
    unknown = sorted(set(table["task"]) - set(TASKS))
    if unknown:
        raise ValueError(f"There is no task {', '.join(map(repr, unknown))}; known are {', '.join(TASKS)}.")


def _complete(best: pd.DataFrame) -> pd.DataFrame:
    """Means of one task, a row for each data set on which all methods have one; methods as first met."""
    known = best.dropna(subset="mean")
    means = known.pivot_table("mean", "dataset", "method")
    return means.reindex(index=known["dataset"].unique(), columns=known["method"].unique()).dropna().astype(float)


def _best_rows(means: pd.Series, task: str) -> np.ndarray:
    rounded = means.astype(float).round(DIGITS).to_numpy()
    if np.isnan(rounded).all():
        return np.array([], dtype=int)
    return np.flatnonzero(rounded == (np.nanmin if task in LOWER_IS_BETTER else np.nanmax)(rounded))


def _value(mean: float, std: float | None, m: int | None, digits: int = 3) -> str:
    """``0.712 ±0.05 (50)``, without what is missing."""
    if pd.isna(mean):
        return ""
    spread = "" if pd.isna(std) else f" ±{std:.2f}"
    return f"{mean:.{digits}f}{spread}" + ("" if pd.isna(m) else f" ({m})")


def _signed(difference: float) -> str:
    if pd.isna(difference):
        return ""
    rounded = round(difference, DIGITS)
    return f"{rounded:+.{DIGITS}f}" if rounded else f"{0:.{DIGITS}f}"


def _one_digit(rank: float) -> str:
    return "" if pd.isna(rank) else f"{np.floor(10 * rank + 0.5 + 1e-9) / 10:.1f}"  # halves go up, as in the paper


def _whole(count: float) -> str:
    return "" if pd.isna(count) else f"{count:.0f}"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return GAP.join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


LATEX = {
    **{sign: rf"\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": "$-$",
}


def markdown(text: str) -> str:
    """``text`` in one line, where it is neither HTML nor a link nor another cell of a table."""
    return re.sub(r"[\\`<|]|(?<=\])\(", r"\\\g<0>", " ".join(text.splitlines()))


def _latex(text: str) -> str:
    escaped = "".join(LATEX.get(sign, sign) for sign in text)
    return re.sub(r"^-(?=\d)", "$-$", escaped)  # a minus, no hyphen
