"""The paper's numbers, and the tables that set ours beside them."""

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from homophily.evaluation import best_over_m, paper_ablation, paper_table, rankings
from homophily.evaluation.paper import PAPER_NAMES
from homophily.evaluation.tables import DISPLAY, TASKS, ResultTable, task_tables, with_paper
from homophily.experiments.table import ORDER
from homophily.methods import METHODS

LONG = ["dataset", "method", "m", "task", "mean", "std", "splits"]
BEST = ["task", "dataset", "method", "mean", "std", "best_m", "splits"]


def long(*rows):
    return pd.DataFrame(rows, columns=LONG)


def best(*rows):
    return pd.DataFrame(rows, columns=BEST).astype({"best_m": "Int64"})


# --- what the paper prints -------------------------------------------------------------------------------------------

PRINTED_METHODS = ["CAE", "DUFS", "WAST", "AEFS", "LS", "RSR", "UDFS", "Our", "AllFea"]
PRINTED_RANKS = {
    "classification": [4.7, 5.9, 4.9, 5.5, 6.3, 2.8, 3.3, 1.8, 3.2],
    "clustering": [2.8, 6.6, 5.7, 6, 5, 4, 4.3, 1.8, 5.1],
    "reconstruction": [7.9, 3, 3.5, 3.2, 6.4, 5.5, 4.1, 2.7, 4.8],
}
PRINTED_TOP_1 = {
    "classification": [1, 1, 1, 1, 0, 3, 3, 9, 2],
    "clustering": [2, 0, 0, 0, 1, 2, 0, 7, 0],
    "reconstruction": [0, 2, 2, 1, 0, 0, 1, 5, 5],
}


def test_the_paper_table_is_complete():
    table = paper_table()
    assert list(table.columns) == ["task", "dataset", "method", "mean", "std", "best_m"]
    assert len(table) == 12 * 9 * 3 == len(table.drop_duplicates(["task", "dataset", "method"]))
    assert list(table["task"].unique()) == list(TASKS)
    assert list(table["method"].unique()) == PRINTED_METHODS == list(PAPER_NAMES.values())
    assert table["dataset"].nunique() == 12
    assert table[["mean", "std"]].notna().all(axis=None)
    assert (table["best_m"].isna() == (table["method"] == "AllFea")).all()


@pytest.mark.parametrize(
    ("task", "dataset", "method", "mean", "std", "best_m"),
    [
        ("classification", "Madelon", "Our", 0.90, 0.01, 20),
        ("classification", "SMK", "UDFS", 0.73, 0.09, 100),
        ("clustering", "COIL-20", "CAE", 0.69, 0.03, 100),
        ("clustering", "GLIOMA", "RSR", 0.65, 0.16, 150),
        ("reconstruction", "PCMAC", "Our", 1.30, 0.22, 25),
        ("reconstruction", "PROSTATE", "LS", 0.72, 0.10, 300),
    ],
)
def test_cells_of_the_paper_table(task, dataset, method, mean, std, best_m):
    row = paper_table().set_index(["task", "dataset", "method"]).loc[(task, dataset, method)]
    assert tuple(row) == (mean, std, best_m)


def test_the_paper_ablation():
    table = paper_ablation()
    assert list(table.columns) == ["task", "dataset", "method", "mean", "std"]
    assert len(table) == 6 * (3 + 2 + 2 + 2) == len(table.drop_duplicates(["task", "dataset", "method"]))
    methods = table.groupby("task")["method"].unique().map(list).to_dict()
    assert methods.pop("spectral") == ["Heat", "DGL only", "Our"]
    assert methods == {task: ["w/o DGL", "Our"] for task in TASKS}
    cells = set(table.itertuples(index=False, name=None))
    assert cells >= {
        ("spectral", "Jaffe", "Heat", 0.60, 0.13),
        ("spectral", "PIX10", "DGL only", 0.76, 0.09),
        ("spectral", "PROSTATE", "Our", 0.65, 0.02),
        ("classification", "GLIOMA", "w/o DGL", 0.66, 0.10),
        ("clustering", "PROSTATE", "w/o DGL", 0.57, 0.05),
        ("reconstruction", "PCMAC", "w/o DGL", 1.07, 0.10),
    }


def test_the_ablation_repeats_table_2_for_the_whole_method():
    key = ["task", "dataset", "method"]
    both = paper_ablation().query("method == 'Our' and task != 'spectral'").merge(paper_table(), on=key)
    assert len(both) == 18
    assert (both["mean_x"] == both["mean_y"]).all()
    assert (both["std_x"] == both["std_y"]).all()


@pytest.mark.parametrize("read", [paper_table, paper_ablation])
def test_changing_what_was_read_changes_nothing_for_others(read):
    table = read()
    table.loc[:, "mean"] = 0.0
    assert read()["mean"].sum() > 0


def test_names_of_the_paper_and_of_tables_are_those_of_methods():
    assert set(PAPER_NAMES) < set(METHODS)
    assert set(METHODS) <= set(DISPLAY) == set(ORDER)


@pytest.mark.parametrize("task", TASKS)
def test_rankings_gives_the_rows_that_the_paper_prints(task):
    table = rankings(paper_table()).query("task == @task").set_index("method")
    assert (table["datasets"] == 12).all()
    halves_up = np.floor(table["average_rank"] * 10 + 0.5 + 1e-9) / 10
    assert halves_up[PRINTED_METHODS].tolist() == PRINTED_RANKS[task]
    assert table["top_1"][PRINTED_METHODS].tolist() == PRINTED_TOP_1[task]


def test_the_paper_as_our_result_shows_the_printed_ranks_on_both_sides():
    names = {theirs: ours for ours, theirs in PAPER_NAMES.items()}
    ours = paper_table().replace({"method": names}).assign(splits=10)
    tables = task_tables(ours[BEST])
    assert [table.title for table in tables] == list(TASKS.values())
    for task, table in zip(TASKS, tables, strict=True):
        assert [row[0] for row in table.rows] == [*PRINTED_METHODS[:7], "Dirichlet", "AllFea"]
        ranks = [f"{rank:.1f}" for rank in PRINTED_RANKS[task]]
        assert column(table, "avg. rank", "ours") == column(table, "avg. rank", "paper") == ranks
        counts = [str(count) for count in PRINTED_TOP_1[task]]
        assert column(table, "top-1", "ours") == column(table, "top-1", "paper") == counts
        assert all(set(column(table, name, "diff")) == {"0.00"} for name in paper_table()["dataset"])


# --- from all m to the best ------------------------------------------------------------------------------------------


def test_best_over_m_takes_the_largest_mean_and_the_smallest_error():
    table = long(
        ("Yale", "ls", 25, "reconstruction", 0.5, 0.1, 3),
        ("Yale", "ls", 50, "reconstruction", 0.4, 0.2, 3),
        ("Yale", "ls", 25, "classification", 0.5, 0.1, 3),
        ("Yale", "ls", 50, "classification", 0.4, 0.2, 3),
    )
    expected = best(
        ("classification", "Yale", "ls", 0.5, 0.1, 25, 3),
        ("reconstruction", "Yale", "ls", 0.4, 0.2, 50, 3),
    )
    assert_frame_equal(best_over_m(table), expected)


def test_best_over_m_of_equal_means_takes_the_smallest_m():
    table = long(*[("Yale", "ls", m, "clustering", 0.5, 0.1, 3) for m in (100, 25, 50)])
    assert best_over_m(table)["best_m"].tolist() == [25]


def test_best_over_m_ignores_what_has_no_mean_and_keeps_what_has_no_m():
    table = long(
        ("Yale", "all", None, "clustering", 0.4, np.nan, 1),
        ("Yale", "ls", 25, "clustering", np.nan, np.nan, 0),
        ("Yale", "ls", 50, "clustering", 0.2, np.nan, 1),
        ("Yale", "rsr", 25, "clustering", np.nan, np.nan, 0),
    )
    expected = best(
        ("clustering", "Yale", "all", 0.4, np.nan, None, 1), ("clustering", "Yale", "ls", 0.2, np.nan, 50, 1)
    )
    assert_frame_equal(best_over_m(table), expected)


def test_best_over_m_has_the_order_of_the_paper_then_names_and_methods_as_met():
    places = [(d, method) for d in ("zebra", "ape", "Yale", "Madelon") for method in ("rsr", "ls")]
    table = long(*[(d, method, 5, task, 0.5, 0.1, 3) for task in reversed(TASKS) for d, method in places])
    result = best_over_m(table)
    assert list(result["task"].unique()) == list(TASKS)
    assert list(result["dataset"].unique()) == ["Madelon", "Yale", "ape", "zebra"]
    assert list(result["method"].unique()) == ["rsr", "ls"]


def test_mistakes_are_said():
    with pytest.raises(ValueError, match=r"no column m, std; expected are .*splits"):
        best_over_m(long().drop(columns=["m", "std"]))
    with pytest.raises(ValueError, match=r"no task 'accuracy'; known are classification, clustering"):
        rankings(best(("accuracy", "Yale", "ls", 0.5, 0.1, 5, 3)))


# --- ranks -----------------------------------------------------------------------------------------------------------


def means(task, values):
    """``values``: by data set, by method."""
    return best(*[(task, d, method, mean, 0.1, 5, 3) for d, row in values.items() for method, mean in row.items()])


def test_equal_means_share_the_best_rank_and_the_next_is_skipped():
    table = rankings(
        means("classification", {"A": {"a": 0.904, "b": 0.896, "c": 0.5}, "B": {"a": 0.1, "b": 1, "c": 1}})
    )
    assert table.to_numpy().tolist() == [
        ["classification", "a", 2.0, 1, 2],  # 1 and 3
        ["classification", "b", 1.0, 2, 2],
        ["classification", "c", 2.0, 1, 2],  # 3 and 1
    ]


def test_more_digits_break_ties():
    table = means("classification", {"A": {"a": 0.904, "b": 0.896}})
    assert rankings(table)["average_rank"].tolist() == [1, 1]
    assert rankings(table, digits=3)["average_rank"].tolist() == [1, 2]


def test_small_errors_rank_first():
    assert rankings(means("reconstruction", {"A": {"a": 0.9, "b": 0.4}}))["average_rank"].tolist() == [2, 1]


def test_only_data_sets_with_all_methods_count():
    table = rankings(means("clustering", {"A": {"a": 0.1, "b": 0.2}, "B": {"a": 0.9}, "C": {"a": 0.9, "b": np.nan}}))
    assert table["average_rank"].tolist() == [2, 1]
    assert table["datasets"].tolist() == [1, 1]


def test_without_a_common_data_set_there_is_no_rank():
    table = rankings(means("clustering", {"A": {"a": 0.1}, "B": {"b": 0.2}}))
    assert table["average_rank"].isna().all()
    assert table[["top_1", "datasets"]].to_numpy().tolist() == [[0, 0], [0, 0]]


# --- beside the paper ------------------------------------------------------------------------------------------------

RESULT = best(
    ("classification", "Madelon", "dirichlet", 0.71234, 0.0512, 15, 10),
    ("classification", "Madelon", "ls", 0.7088, 0.04, 20, 10),
    ("classification", "Madelon", "random", 0.55, 0.03, 20, 10),
    ("classification", "Madelon", "all", 0.70, 0.02, None, 10),
    ("classification", "Yale", "dirichlet", 0.80, 0.06, 300, 10),
    ("classification", "Yale", "ls", 0.60, 0.06, 200, 10),
    ("classification", "Yale", "random", 0.70, 0.06, 200, 10),
    ("classification", "Yale", "all", 0.75, 0.06, None, 10),
    ("classification", "a_b", "dirichlet", 0.40, 0.06, 50, 10),
    ("classification", "a_b", "ls", 0.41, 0.06, 50, 10),
)


def column(table, group, name):
    (j,) = [j for j, at in enumerate(zip(table.groups, table.header, strict=True)) if at == (group, name)]
    return [row[j] for row in table.rows]


def test_with_paper_adds_the_same_place_of_table_2():
    both = with_paper(RESULT)
    assert_frame_equal(both[RESULT.columns], RESULT)
    ours = both.set_index(["dataset", "method"])
    added = ["paper_mean", "paper_std", "paper_best_m", "difference"]
    assert ours.loc[("Madelon", "dirichlet"), added].tolist() == [0.90, 0.01, 20, pytest.approx(0.71234 - 0.90)]
    assert ours.loc[("Yale", "ls"), added].tolist() == [0.67, 0.07, 300, pytest.approx(0.60 - 0.67)]
    assert ours.loc[("Yale", "all"), "paper_mean"] == 0.75
    assert pd.isna(ours.loc[("Yale", "all"), "paper_best_m"])
    for nowhere in (("Yale", "random"), ("a_b", "dirichlet")):
        assert ours.loc[nowhere, added].isna().all()


def test_a_task_table_says_what_we_and_the_paper_have():
    (table,) = task_tables(RESULT)
    assert table.title == "Classification accuracy"
    assert [row[0] for row in table.rows] == ["Dirichlet", "LS", "Random", "AllFea"]
    assert column(table, "Madelon", "ours") == [
        "0.712 ±0.05 (15)",
        "0.709 ±0.04 (20)",
        "0.550 ±0.03 (20)",
        "0.700 ±0.02",
    ]
    assert column(table, "Madelon", "paper") == ["0.90 (20)", "0.51 (20)", "", "0.73"]
    assert column(table, "Madelon", "diff") == ["-0.19", "+0.20", "", "-0.03"]
    assert column(table, "a_b", "ours") == ["0.400 ±0.06 (50)", "0.410 ±0.06 (50)", "", ""]
    assert ("a_b", "paper") not in zip(table.groups, table.header, strict=True)


def test_ranks_are_among_the_methods_and_data_sets_that_both_sides_have():
    (table,) = task_tables(RESULT)  # a_b lacks a method, Madelon has 0.71 twice
    assert column(table, "avg. rank", "ours") == ["1.0", "2.0", "", "2.5"]
    assert column(table, "avg. rank", "paper") == ["1.0", "3.0", "", "2.0"]
    assert column(table, "top-1", "ours") == ["2", "1", "", "0"]
    assert column(table, "top-1", "paper") == ["2", "0", "", "0"]
    assert "among the 3 methods" in table.notes[-1]
    assert "2 of 3 data sets" in table.notes[-1]


def test_methods_come_in_the_order_that_is_asked_for():
    (table,) = task_tables(RESULT, order=["random", "udfs", "all"])
    assert [row[0] for row in table.rows] == ["Random", "AllFea", "Dirichlet", "LS"]


def test_our_own_data_and_methods_need_no_paper():
    own = means("reconstruction", {"mine": {"new": 0.5}}).assign(std=np.nan, splits=1)
    (table,) = task_tables(own)
    assert (table.header, table.rows) == (["method", "ours"], [["new", "0.500 (5)"]])
    assert table.notes == [
        "ours: one split, at the number of features in brackets, where that is best on the test rows; lower is better."
    ]


# --- formats ---------------------------------------------------------------------------------------------------------


def test_text_to_the_byte():
    table = ResultTable("Title", ["method", "ours", "paper"], [["a", "0.1", ""], ["b", "0.25", "1"]], ["Note."])
    assert table.to_text() == (
        "Title\n\nmethod  ours  paper\n-------------------\na       0.1\nb       0.25  1\n\nNote.\n"
    )


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_text_is_no_wider_than_asked_and_blocks_repeat_the_first_column(width):
    (table,) = task_tables(RESULT)
    text = table.to_text(width)
    assert max(map(len, text.splitlines())) <= width
    blocks = text.split("\n\n")[1:-1]
    assert (len(blocks) > 1) == (width < 200)
    for block in blocks:
        assert [line.split()[0] for line in block.splitlines()[-4:]] == ["Dirichlet", "LS", "Random", "AllFea"]
    words = set(text.split())
    assert all(set(cell.split()) <= words for row in table.rows for cell in row)  # nothing is lost


def test_text_keeps_the_columns_of_a_data_set_together():
    blocks = task_tables(RESULT)[0].to_text(80).split("\n\n")[1:-1]
    assert blocks[0].splitlines()[:3] == [
        "           Madelon",
        "method     ours              paper      diff",
        "---------------------------------------------",
    ]
    assert blocks[1].splitlines()[0].split() == ["Yale", "a_b", "avg.", "rank"]


def test_a_long_heading_makes_room_for_itself():
    table = ResultTable("T", ["m", "x", "y"], [["a", "1", "2"]], groups=["", "a very long name", "z"])
    assert table.to_text().splitlines()[2:] == [
        "   a very long name  z",
        "m  x                 y",
        "----------------------",
        "a  1                 2",
    ]


def test_markdown_has_one_row_for_each_method():
    (table,) = task_tables(RESULT)
    lines = [line for line in table.to_markdown().splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 4
    assert {line.count("|") for line in lines} == {len(table.header) + 1}
    assert lines[0].startswith("| method | Madelon ours | Madelon paper | Madelon diff | Yale ours |")
    assert r"a\|b" in ResultTable("T", ["m"], [["a|b"]]).to_markdown()


def test_bold_are_the_best_of_our_values_and_of_the_papers():
    (table,) = task_tables(RESULT)
    markdown = table.to_markdown()
    bold = {cell.strip() for cell in markdown.split("|") if "**" in cell}
    assert bold == {
        *("**0.712 ±0.05 (15)**", "**0.709 ±0.04 (20)**", "**0.90 (20)**"),  # both are 0.71
        *("**0.800 ±0.06 (300)**", "**0.81 (300)**", "**0.410 ±0.06 (50)**"),
    }
    assert "Bold: the best at 2 digits." in markdown
    assert "Bold" not in table.to_text()
    assert table.to_latex().count(r"\textbf{") == 6


def test_the_smallest_error_is_bold():
    (table,) = task_tables(means("reconstruction", {"mine": {"a": 0.5, "b": 0.4}}))
    assert table.best == {(1, 1)}


def test_latex_escapes_what_is_special():
    row = ["a_b & c%", "0.712 ±0.05 (50)", "-0.10", r"#{}~^\$"]
    table = ResultTable("T_1", ["method", "x", "y", "z"], [row], best=frozenset({(0, 1)}))
    lines = table.to_latex().splitlines()
    assert (
        r"a\_b \& c\% & \textbf{0.712 $\pm$0.05 (50)} & $-$0.10 & "
        r"\#\{\}\textasciitilde{}\textasciicircum{}\textbackslash{}\$ \\"
    ) in lines
    assert any(line.startswith(r"\caption{T\_1.") for line in lines)
    for rule in ("toprule", "midrule", "bottomrule"):
        assert rf"\{rule}" in lines


def test_latex_has_as_many_cells_in_every_row_of_a_block():
    latex = task_tables(RESULT)[0].to_latex()
    blocks = latex.split(r"\begin{tabular}")[1:]
    assert len(blocks) > 1
    for block in blocks:
        columns = block[: block.index("\n")].count("l")
        body = [line for line in block.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
        assert len(body) == 1 + 4
        assert {line.count("&") + 1 for line in body} == {columns}


def test_the_order_of_results_of_one_method_changes_no_byte():
    table = long(
        *[
            (d, method, m, task, round(0.3 + 0.01 * ((7 * i + m) % 13), 3), 0.1, 3)
            for i, (d, method) in enumerate([(d, method) for d in ("Yale", "ape") for method in ("ls", "rsr")])
            for m in (25, 50, 75)
            for task in TASKS
        ]
    )
    order = ["ls", "rsr"]
    first, second = (
        [t.to_text() + t.to_markdown() + t.to_latex() for t in task_tables(best_over_m(rows), order=order)]
        for rows in (table, table.sample(frac=1, random_state=0))
    )
    assert first == second


def test_a_page_has_data_sets_as_rows():
    table = ResultTable(
        "Accuracy",
        ["method", "ours", "paper", "diff", "ours"],
        [["LS", "0.5 (2)", "0.6 (3)", "-0.10", "0.7"], ["Random", "0.8 (2)", "", "", "0.4"]],
        ["ours: mean.", "paper: Table 2; diff: ours − paper."],
        groups=["", "Yale", "Yale", "Yale", "Own"],
        best=frozenset({(1, 1), (0, 2), (0, 4)}),
    )
    turned = table.turned()
    assert turned.header == ["", "LS", "Random"]
    assert turned.rows == [["Yale", "0.5 (2) [0.6 (3)]", "0.8 (2)"], ["Own", "0.7", "0.4"]]
    assert turned.best == {(0, 2), (1, 1)}  # the best of ours
    assert turned.notes == ["ours: mean.", "In square brackets: Table 2."]
    plain = ResultTable("Other", ["a", "b"], [["1", "2"]])
    assert plain.turned() is plain


def test_no_data_set_with_all_methods_leaves_the_ranks_blank():
    rows = [("Yale", "ls", 5, "classification", 0.5, 0.1, 2), ("Jaffe", "rsr", 5, "classification", 0.6, 0.1, 2)]
    (table,) = task_tables(best_over_m(long(*rows)))
    assert column(table, "Yale", "ours") == ["0.500 ±0.10 (5)", ""]
    assert "avg. rank" not in table.groups
