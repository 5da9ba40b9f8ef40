"""Data frames of pandas and polars: numbers of any kind go in, names and types come out, the rest is refused."""

import datetime
import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp

from homophily import DirichletSelector
from homophily.baselines import BASELINES, LaplacianScore, RandomSelector, laplacian_score
from homophily.frames import frame_numbers

pl = pytest.importorskip("polars")
RNG = np.random.RandomState(0)
X = RNG.randn(40, 6)
X[:, 3] = RNG.randint(-3, 4, 40)
X[:, 4] = RNG.randint(0, 2, 40)
NAMES = ["length", "width", "größe", "count", "flag", "weight"]
QUICK = {"max_iter": 10, "random_state": 0}
FEW = {"cae": 3, "dufs": 5, "wast": 2, "aefs": 3, "ipcae": 3, "rsr": 30, "udfs": 30}
# Three epochs are no training; that is the point of a quick test.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def selector(name, m=3):
    if name == "dirichlet":
        return DirichletSelector(m, **QUICK)
    few = {"max_iter": FEW[name]} if name in FEW else {}
    return BASELINES[name](m, random_state=0, **few)


def pandas_frame(kind="numpy"):
    frame = pd.DataFrame(X, columns=NAMES, index=range(100, 140))
    whole, logical, real = {
        "numpy": ("int64", "bool", "float64"),
        "nullable": ("Int64", "boolean", "Float64"),
        "arrow": (pd.ArrowDtype(pa.int32()), pd.ArrowDtype(pa.bool_()), pd.ArrowDtype(pa.float64())),
        "object": (object, object, object),
    }[kind]
    return frame.astype({"count": "int64", "flag": "bool"}).astype({"count": whole, "flag": logical, "weight": real})


def polars_frame():
    return pl.DataFrame({name: X[:, i] for i, name in enumerate(NAMES)}).with_columns(
        pl.col("count").cast(pl.Int16), pl.col("flag").cast(pl.Boolean)
    )


FRAMES = {kind: lambda kind=kind: pandas_frame(kind) for kind in ("numpy", "nullable", "arrow", "object")}
FRAMES["polars"] = polars_frame


@pytest.mark.parametrize("name", ["dirichlet", *BASELINES])
def test_every_kind_of_number_and_every_method(name):
    expected = selector(name).fit(X)
    for make in FRAMES.values():
        found = selector(name).fit(make())
        assert found.feature_names_in_.tolist() == NAMES
        np.testing.assert_array_equal(found.selected_features_, expected.selected_features_)
        # Sums of the values as they are given depend on their order in memory; the others see them standardised.
        np.testing.assert_allclose(found.scores_, expected.scores_, rtol=1e-14 if name == "variance" else 0)
        assert list(found.get_feature_names_out()) == [NAMES[i] for i in found.get_support(indices=True)]


@pytest.mark.parametrize("kind", list(FRAMES))
@pytest.mark.parametrize("m", [3, 6])
def test_arrays_come_out_by_default(kind, m):
    frame = FRAMES[kind]()
    fitted = RandomSelector(m, random_state=1).fit(frame)
    reduced = fitted.transform(frame)
    assert isinstance(reduced, np.ndarray)
    np.testing.assert_array_equal(reduced.astype(float), X[:, fitted.get_support()])


@pytest.mark.parametrize("kind", ["numpy", "nullable", "arrow"])
def test_pandas_in_and_out_keeps_names_types_and_index(kind):
    frame = pandas_frame(kind)
    fitted = RandomSelector(4, random_state=1).set_output(transform="pandas").fit(frame)
    pd.testing.assert_frame_equal(fitted.transform(frame), frame.loc[:, fitted.get_support()])


def test_polars_in_and_out_keeps_names_and_types():
    frame = polars_frame()
    for m in (2, 4, 6):
        fitted = RandomSelector(m, random_state=1).set_output(transform="polars").fit(frame)
        reduced = fitted.transform(frame)
        assert isinstance(reduced, pl.DataFrame)
        assert reduced.equals(frame.select(list(fitted.get_feature_names_out())))
        assert reduced.schema == {name: frame.schema[name] for name in fitted.get_feature_names_out()}


@pytest.mark.parametrize(("make", "output"), [(pandas_frame, "polars"), (polars_frame, "pandas")])
def test_one_kind_in_and_the_other_out(make, output):
    frame = make()
    fitted = selector("dirichlet").set_output(transform=output).fit(frame)
    reduced = fitted.transform(frame)
    assert isinstance(reduced, {"pandas": pd.DataFrame, "polars": pl.DataFrame}[output])
    assert list(reduced.columns) == list(fitted.get_feature_names_out())
    np.testing.assert_array_equal(reduced.to_numpy().astype(float), X[:, fitted.get_support()])


def test_transform_checks_the_names_of_a_polars_frame():
    frame = polars_frame()
    fitted = RandomSelector(3, random_state=1).set_output(transform="polars").fit(frame)
    with pytest.raises(ValueError, match="feature names"):
        fitted.transform(frame.rename({"width": "breadth"}))
    with pytest.raises(ValueError, match="feature names"):
        fitted.transform(frame.select(NAMES[::-1]))


def no_numbers_of_pandas():
    days = pd.date_range("2020-01-01", periods=40)
    return pandas_frame().assign(
        colour=pd.Categorical(["red", "blue"] * 20),
        grade=pd.Categorical([1, 2] * 20),
        yes=pd.Categorical([True, False] * 20),
        name=["a"] * 40,
        code=pd.Series(["7"] * 40, dtype=object, index=range(100, 140)),
        day=days,
        lag=days - days[0],
        month=days.to_period("M"),
        bin=pd.interval_range(0, 40),
        date=[datetime.date(2020, 1, 1)] * 40,
        phase=1j,
    )


def no_numbers_of_polars():
    return polars_frame().with_columns(
        pl.lit("red").cast(pl.Categorical).alias("colour"),
        pl.lit("a").alias("name"),
        pl.lit(datetime.date(2020, 1, 1)).alias("date"),
        pl.lit(datetime.datetime(2020, 1, 1)).alias("day"),
        pl.lit(datetime.timedelta(1)).alias("lag"),
        pl.lit(datetime.time(1)).alias("clock"),
        pl.lit(b"a").alias("bytes"),
        pl.concat_list("length", "width").alias("pair"),
    )


@pytest.mark.parametrize("make", [no_numbers_of_pandas, no_numbers_of_polars])
@pytest.mark.parametrize("ask", [selector("dirichlet").fit, LaplacianScore(2).fit, laplacian_score])
def test_what_is_no_number_is_named_at_once(make, ask):
    frame = make()
    wrong = [name for name in frame.columns if name not in NAMES]
    with pytest.raises(ValueError, match=f"{len(wrong)} of {len(frame.columns)} columns are not numeric") as error:
        ask(frame)
    message = str(error.value)
    assert all(f"{name!r} (" in message for name in wrong[:8])
    assert not any(f"{name!r} (" in message for name in NAMES)
    assert "Encode them as numbers or leave them out" in message


@pytest.mark.parametrize("make", [no_numbers_of_pandas, no_numbers_of_polars])
def test_each_kind_of_no_number_is_refused_alone(make):
    frame = make()
    for name in frame.columns:
        one = frame[["length", "width", name]] if name not in NAMES else None
        if one is not None:
            with pytest.raises(ValueError, match=f"1 of 3 columns are not numeric: {name!r}"):
                frame_numbers(one)


def test_missing_values_are_named_and_counted():
    frame = pandas_frame("nullable")
    frame.iloc[[1, 2], 3], frame.iloc[4, 4], frame.iloc[0, 2] = pd.NA, pd.NA, np.nan
    objects = pandas_frame("object")
    objects.iloc[[1, 2], 3], objects.iloc[4, 4], objects.iloc[0, 2] = None, pd.NA, np.nan
    polar = polars_frame().with_columns(
        pl.when(pl.int_range(40).is_in([1, 2])).then(None).otherwise(pl.col("count")).alias("count"),
        pl.when(pl.int_range(40) == 4).then(None).otherwise(pl.col("flag")).alias("flag"),
        pl.when(pl.int_range(40) == 0).then(float("nan")).otherwise(pl.col("größe")).alias("größe"),
    )
    expected = (
        r"4 NaN entries, in 3 of 6 columns: 'größe' \(1 row\), 'count' \(2 rows\), 'flag' \(1 row\)\. Fill them in"
    )
    for missing in (frame, frame.convert_dtypes(dtype_backend="pyarrow"), objects, polar):
        for ask in (selector("dirichlet").fit, RandomSelector(2).fit, laplacian_score):
            with pytest.raises(ValueError, match=expected):
                ask(missing)


def test_a_column_of_nothing_but_missing_values():
    empty = "40 NaN entries, in 1 of 7 columns: 'empty'"
    with pytest.raises(ValueError, match=empty):
        RandomSelector(2).fit(polars_frame().with_columns(pl.lit(None).alias("empty")))
    with pytest.raises(ValueError, match=empty):
        RandomSelector(2).fit(pandas_frame().assign(empty=None))
    with pytest.raises(ValueError, match=empty):
        RandomSelector(2).fit(pandas_frame().assign(empty=pd.Series([None] * 40, dtype=pd.ArrowDtype(pa.null()))))


def test_decimals_are_numbers():
    cents = [decimal.Decimal(f"0.0{i}") for i in range(4)]
    frames = (
        pd.DataFrame({"a": cents}),
        pd.DataFrame({"a": pd.Series(cents, dtype=pd.ArrowDtype(pa.decimal128(5, 2)))}),
        pl.DataFrame({"a": cents}, schema={"a": pl.Decimal(5, 2)}),
    )
    for frame in frames:
        np.testing.assert_array_equal(frame_numbers(frame), [[0], [0.01], [0.02], [0.03]])


def test_single_precision_stays():
    assert frame_numbers(pd.DataFrame(X).astype("Float32")).dtype == np.float32
    assert frame_numbers(pl.DataFrame(X.astype(np.float32))).dtype == np.float32
    assert frame_numbers(pl.DataFrame(X)).dtype == np.float64


def test_frames_of_plain_numbers_are_not_copied():
    frame = pandas_frame()
    assert frame_numbers(frame) is frame
    assert frame_numbers(X) is X


def test_sparse_columns_of_pandas():
    frame = pd.DataFrame.sparse.from_spmatrix(sp.csr_matrix(np.where(X > 0, X, 0)), columns=NAMES)
    found = RandomSelector(3, random_state=0).fit(frame)
    assert found.feature_names_in_.tolist() == NAMES
    assert LaplacianScore(3).fit(frame).scores_ == pytest.approx(LaplacianScore(3).fit(np.where(X > 0, X, 0)).scores_)


def test_two_columns_of_one_name():
    frame = pandas_frame("nullable")
    frame.columns = ["a", "a", *NAMES[2:]]
    np.testing.assert_array_equal(frame_numbers(frame), X)


def test_a_lazy_frame_is_to_be_collected():
    with pytest.raises(TypeError, match=r"LazyFrame.*give X\.collect\(\)"):
        RandomSelector(2).fit(polars_frame().lazy())
    with pytest.raises(TypeError, match=r"LazyFrame.*give X\.collect\(\)"):
        laplacian_score(polars_frame().lazy())


def test_names_are_forgotten_by_a_fit_without():
    fitted = RandomSelector(2).fit(polars_frame())
    assert not hasattr(fitted.fit(X), "feature_names_in_")
