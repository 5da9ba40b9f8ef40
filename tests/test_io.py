"""Readers and writers: every format round-trips, and bad files are refused in words."""

import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse as sp

from homophily.io import InputError, read_table, write_reduced


@pytest.fixture
def frame():
    rng = np.random.RandomState(0)
    data = pd.DataFrame(rng.randn(12, 4), columns=["a", "b", "c d", "é"])
    return data.assign(id=[f"s{i}" for i in range(12)], y=["u", "v"] * 6)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_tables(frame, tmp_path, suffix):
    path = tmp_path / f"data{suffix}"
    if suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="," if suffix == ".csv" else "\t")
    table = read_table(path, label_column="y", index_column="id", drop=["b"])
    assert table.names == ["a", "c d", "é"]
    np.testing.assert_allclose(table.X, frame[["a", "c d", "é"]])
    assert list(table.labels) == list(frame["y"])
    written = write_reduced(table, np.array([0, 2]), tmp_path / "reduced")
    assert written.name == f"reduced{suffix}"
    again = read_table(written, label_column="y", index_column="id")
    assert again.names == ["a", "é"]
    np.testing.assert_allclose(again.X, frame[["a", "é"]])
    assert list(again.index) == list(frame["id"])
    assert list(again.labels) == list(frame["y"])


def test_semicolons_byte_order_mark_and_unnamed_index(frame, tmp_path):
    path = tmp_path / "data.csv"
    frame[["a", "b"]].to_csv(path, sep=";", encoding="utf-8-sig")
    table = read_table(path)
    assert table.names == ["a", "b"]
    assert list(table.index) == list(range(12))
    assert "taken as the index" in table.notes[0]
    assert write_reduced(table, np.array([0]), tmp_path / "reduced").read_text().startswith("Unnamed: 0;a")


def test_parquet_index_is_kept(frame, tmp_path):
    frame.drop(columns="y").set_index("id").to_parquet(tmp_path / "data.parquet")
    table = read_table(tmp_path / "data.parquet")
    assert table.names == ["a", "b", "c d", "é"]
    again = pd.read_parquet(write_reduced(table, np.array([1]), tmp_path / "reduced"))
    assert list(again.columns) == ["b"]
    assert list(again.index) == list(frame["id"])
    assert read_table(tmp_path / "data.parquet", index_column="id").names == table.names


def test_parquet_index_of_two_levels_is_no_feature(frame, tmp_path):
    indexed = frame.set_index(["id", "y"])
    indexed.to_parquet(tmp_path / "data.parquet")
    table = read_table(tmp_path / "data.parquet")
    assert table.names == ["a", "b", "c d", "é"]
    again = pd.read_parquet(write_reduced(table, np.array([1]), tmp_path / "reduced"))
    pd.testing.assert_frame_equal(again, indexed[["b"]])


def test_decimal_commas_and_commas_in_names(tmp_path):
    frame = pd.DataFrame({"a, in m": [1.5, 2.5, 3.25], "b, c, d": [0.5, 1.0, 2.0]})
    frame.to_csv(tmp_path / "data.csv", sep=";", decimal=",", index=False)
    table = read_table(tmp_path / "data.csv")
    assert table.names == ["a, in m", "b, c, d"]
    np.testing.assert_array_equal(table.X, frame)
    assert "1,5" in write_reduced(table, np.array([0]), tmp_path / "reduced").read_text()


def test_a_first_line_that_looks_like_data_is_mentioned(tmp_path):
    (tmp_path / "data.csv").write_text("5.1,3.5,1.4,setosa\n4.9,3.0,1.3,setosa\n")
    assert "--no-header" in read_table(tmp_path / "data.csv").notes[0]
    assert read_table(tmp_path / "data.csv", header=False, label_column="x3").X.shape == (2, 3)
    (tmp_path / "data.csv").write_text("1.4,1.4,1.5,setosa\n4.9,3.0,1.3,setosa\n")
    with pytest.raises(InputError, match="--no-header"):
        read_table(tmp_path / "data.csv")


@pytest.mark.parametrize("start", [0, 1])
def test_counted_columns_are_a_header(tmp_path, start):
    frame = pd.DataFrame(np.random.RandomState(0).randn(5, 4), columns=range(start, start + 4))
    frame.to_csv(tmp_path / "data.csv", index=False)
    assert read_table(tmp_path / "data.csv").X.shape == (5, 4)
    assert read_table(tmp_path / "data.csv", header=False).X.shape == (6, 4)


def test_a_header_of_numbers_can_be_claimed(tmp_path):
    (tmp_path / "data.csv").write_text("2001,2002\n1.5,2\n3,4\n")
    assert read_table(tmp_path / "data.csv", header=True).names == ["2001", "2002"]
    assert "--header" in read_table(tmp_path / "data.csv").notes[0]


def test_csv_without_header(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("1.5,2,3\n4,5,6\n7,8,10\n")
    table = read_table(path)
    assert table.names == ["x0", "x1", "x2"]
    assert table.X.shape == (3, 3)
    assert "read as data" in table.notes[0]


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".mat"])
def test_arrays(tmp_path, suffix):
    X, y = np.random.RandomState(0).randn(12, 4).astype(np.float32), np.arange(12) % 3
    path = tmp_path / f"data{suffix}"
    if suffix == ".npz":
        np.savez(path, X=X, y=y)
    elif suffix == ".npy":
        np.save(path, X)
    else:
        scipy.io.savemat(path, {"X": X, "Y": y[:, None]})
    table = read_table(path)
    np.testing.assert_array_equal(table.X, X)
    assert table.X.dtype == np.float32
    if suffix == ".npy":
        assert table.labels is None
    else:
        assert list(table.labels) == list(y)
    again = read_table(write_reduced(table, np.array([1, 3]), tmp_path / "reduced"))
    np.testing.assert_array_equal(again.X, X[:, [1, 3]])
    assert (again.labels is None) == (table.labels is None)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr"])
@pytest.mark.parametrize("d", [12, 5])
def test_sparse_npz(tmp_path, form, d):
    X = sp.random_array((12, d), density=0.5, random_state=np.random.default_rng(0), format=form)
    sp.save_npz(tmp_path / "data.npz", X)
    table = read_table(tmp_path / "data.npz")
    assert sp.issparse(table.X)
    np.testing.assert_array_equal(table.X.toarray(), X.toarray())
    again = read_table(write_reduced(table, np.array([0, 2]), tmp_path / "reduced"))
    assert sp.issparse(again.X)
    np.testing.assert_array_equal(again.X.toarray(), X.toarray()[:, [0, 2]])


def test_npz_with_named_labels_and_another_matrix_name(tmp_path):
    np.savez(tmp_path / "data.npz", counts=np.ones((6, 3)), kind=np.arange(6))
    table = read_table(tmp_path / "data.npz", label_column="kind")
    assert table.X.shape == (6, 3)
    assert list(table.labels) == list(range(6))


def write(path, content):
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content)
    return path


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data.csv", "", "data.csv is empty"),
        ("data.csv", "a,b\n", "0 rows and 2 feature columns"),
        ("data.csv", "a,a,b\n1,2,3\n", "several columns named 'a'"),
        ("data.csv", "a,b\n1,2\n3,4,5\n", "could not be read as csv"),
        ("data.csv", b"a,b\n\xff\xfe\x00,2\n", "not text in UTF-8"),
        ("data.parquet", b"PAR1 not really", "could not be read as parquet"),
        ("data.npy", b"not numpy", "could not be read as a NumPy file"),
        ("data.npz", b"PK not a zip", "could not be read as a NumPy file"),
        ("data.mat", b"not matlab", "could not be read as a MATLAB file"),
        ("data.xlsx", b"x", "the ending .xlsx is not one of"),
        ("data", b"x", "the ending \\(none\\) is not one of"),
    ],
)
def test_unreadable_files(tmp_path, name, content, message):
    with pytest.raises(InputError, match=message):
        read_table(write(tmp_path / name, content))


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        read_table(tmp_path / "nothing.csv")
    with pytest.raises(InputError, match="is a folder"):
        read_table(tmp_path)


def test_unknown_columns_are_named_with_those_that_exist(frame, tmp_path):
    frame.to_csv(tmp_path / "data.csv", index=False)
    with pytest.raises(InputError, match="no column 'label'; its columns are a, b, c d, é, id, y"):
        read_table(tmp_path / "data.csv", label_column="label")


def test_pickled_objects_are_refused(tmp_path):
    np.save(tmp_path / "data.npy", np.array([[object()]]), allow_pickle=True)
    with pytest.raises(InputError, match="could not be read"):
        read_table(tmp_path / "data.npy")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": np.ones(5)}, "shape \\(5,\\), expected samples by features"),
        ({"X": np.array([["a", "b"]])}, "expected numbers"),
        ({"A": np.ones((3, 3)), "B": np.ones((3, 3))}, "array named X; its arrays are: A \\(3, 3\\), B"),
        ({"X": np.ones((3, 3)), "y": np.ones(2)}, "y holds 2 labels for 3 samples"),
    ],
)
def test_wrong_arrays(tmp_path, arrays, message):
    np.savez(tmp_path / "data.npz", **arrays)
    with pytest.raises(InputError, match=message):
        read_table(tmp_path / "data.npz")


def test_column_options_need_a_table(tmp_path):
    np.save(tmp_path / "data.npy", np.ones((3, 3)))
    with pytest.raises(InputError, match="plain arrays"):
        read_table(tmp_path / "data.npy", drop=["a"])
    with pytest.raises(InputError, match="no labels"):
        read_table(tmp_path / "data.npy", label_column="y")


@pytest.mark.parametrize("first", [[1, 4, 7], [0, 1, 2], [5, 5, 5]])
@pytest.mark.parametrize("head", ["a,b,c", "a,b,c,", "a, b, c ,"])
def test_rows_that_end_with_a_delimiter_shift_nothing(tmp_path, head, first):
    rows = [(value, i + 0.5, 9 - i) for i, value in enumerate(first)]
    (tmp_path / "data.csv").write_text(head + "\n" + "".join(f"{a},{b},{c},\n" for a, b, c in rows))
    table = read_table(tmp_path / "data.csv")
    assert [name.strip() for name in table.names] == ["a", "b", "c"]
    np.testing.assert_array_equal(table.X, rows)
    assert table.index is None
    assert "left out" in table.notes[0]


def test_no_header_and_rows_that_end_with_a_delimiter(tmp_path):
    (tmp_path / "data.csv").write_text("1.5,2,\n3,4,\n")
    table = read_table(tmp_path / "data.csv")
    assert table.names == ["x0", "x1"]
    np.testing.assert_array_equal(table.X, [[1.5, 2], [3, 4]])


@pytest.mark.parametrize("names", [["r1", "r2"], ["0", "1"]])
def test_row_names_as_r_writes_them_are_kept(tmp_path, names):
    (tmp_path / "data.csv").write_text("a,b\n" + "".join(f"{name},{i},{2 * i}.5\n" for i, name in enumerate(names)))
    table = read_table(tmp_path / "data.csv")
    assert table.names == ["a", "b"]
    np.testing.assert_array_equal(table.X, [[0, 0.5], [1, 2.5]])
    assert list(map(str, table.index)) == names
    assert list(map(str, read_table(write_reduced(table, np.array([1]), tmp_path / "reduced")).index)) == names


def test_spaces_after_the_delimiter_are_no_part_of_a_name(tmp_path):
    (tmp_path / "data.csv").write_text("id, a, y\ns1, 1.5, u\ns2, 2.5, v\n")
    table = read_table(tmp_path / "data.csv", label_column="y", index_column="id")
    assert table.names == ["a"]
    assert list(table.labels) == ["u", "v"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n3,?\n5,6\n", "the column 'b' holds numbers but for 1 entry: '\\?' in row 2 of the data"),
        ("a;b\n1,5;2,5\n3,5;x\n5;y\n6,5;1\n7;2,5\n", "for 2 entries: 'x' in row 2, 'y' in row 3 of the data"),
        ('a,b\n1,"1,200.5"\n3,"2,300.5"\n', "marks between the thousands, such as '1,200.5'"),
        ("a;b\n1,5;1.200,5\n3;2.300,5\n", "marks between the thousands, such as '1.200,5'"),
        ("a b\n1 2\n3 4\n", "only one column was found, named 'a b'"),
        ("Made by us\na,b,c\n1,2,3\n4,5,6\n", "rows have 2 fields more than the first line"),
        ("a,b\n1,2\n3,4,5\n", "line 3 has 3 fields, the lines before it 2"),
    ],
)
def test_spoiled_csv_files_are_explained(tmp_path, content, message):
    with pytest.raises(InputError, match=message):
        read_table(write(tmp_path / "data.csv", content))


def test_columns_that_are_left_out_may_hold_anything(tmp_path):
    (tmp_path / "data.csv").write_text("a,b,c\n1,2,?\n3,4,5\n5,6,7\n")
    assert read_table(tmp_path / "data.csv", drop=["c"]).names == ["a", "b"]
    assert list(read_table(tmp_path / "data.csv", label_column="c").labels) == ["?", "5", "7"]
