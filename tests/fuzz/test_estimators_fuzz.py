"""Any estimator, any parameters, any small data: numbers that are numbers, or a sentence, and nothing else changed."""

import inspect
import pickle
import warnings
from contextlib import contextmanager
from numbers import Integral

import numpy as np
import psutil
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import FitFailedWarning, NotFittedError
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.utils._param_validation import Interval, StrOptions

import ldsu
from fuzz.files import check_sentence, own_sentence, raised_in
from fuzz.profile import inputs
from ldsu import LDSU, LabelledOnly, LDSUClassifier, LDSUSearch, load_model, save_model

ESTIMATORS = {
    name: cls
    for name in ldsu.__all__
    if inspect.isclass(cls := getattr(ldsu, name)) and issubclass(cls, BaseEstimator) and cls is not LDSUSearch
}
KERNEL_METHODS = {name: cls for name, cls in ldsu.METHODS.items() if "kernel" in inspect.signature(cls).parameters}
every_estimator = pytest.mark.parametrize("cls", ESTIMATORS.values(), ids=list(ESTIMATORS))
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 3.0, 1e-300, 1e-160, 1e-20, 1e20, 1e100, 1e150, -1e150, 1e200, np.nan, np.inf)
SCALES = (1e-300, 1e-150, 1e-70, 1e-8, 1.0, 1.0, 1.0, 1e8, 1e70, 1e150)
# Parameters that the data or the machine decide, or that only print.
LEFT_ALONE = {"device", "verbose", "kernel_params", "estimator", "features", "classifier"}
MEBIBYTE = 2**20


# ---------------------------------------------------------------- what is generated


@contextmanager
def quiet(model):
    """Warnings meant for a user to read pass by; those of numbers that went wrong are errors, by the project's setting.

    scikit-learn, given infinite values, lets NumPy warn before it refuses them itself; and what the classifier within
    `LabelledOnly` warns of is its own affair.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("ignore", FutureWarning)
        warnings.filterwarnings("ignore", "invalid value encountered in reduce", RuntimeWarning)
        warnings.simplefilter("ignore", FitFailedWarning)
        if isinstance(model, LabelledOnly):
            warnings.simplefilter("ignore", RuntimeWarning)
        yield


@st.composite
def samples(draw, special=True, most_rows=40):
    """Samples (n, d): drawn value by value, or made by a seed with rows and columns that are equal, zero or far off."""
    n, d = draw(st.integers(2, most_rows)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if special and draw(st.integers(0, 3)) == 0:
        X = rng.choice(draw(st.lists(st.sampled_from(SPECIAL), min_size=1, max_size=4)), (n, d))
    else:
        X = rng.standard_normal((n, d))
        shape = draw(
            st.sampled_from(("plain", "duplicates", "constants", "counts", "rank one", "far", "equal", "offset"))
        )
        if shape == "duplicates":
            X = X[rng.integers(0, max(1, n // 4), n)]
        elif shape == "constants":
            X[:, rng.integers(0, d) :] = 1.0
        elif shape == "counts":
            X = np.abs(np.round(X))
        elif shape == "rank one":
            X = np.outer(X[:, 0], np.arange(d))
        elif shape == "far":
            X[-1] *= 1e6
        elif shape == "equal":
            X[:] = X[0]
        elif shape == "offset":
            X += 1e9
        X = X * draw(st.sampled_from(SCALES if special else (1e-8, 1.0, 1e8)))
    return X


def in_form(X, form):
    """The same samples as users have them; values that a form cannot hold become infinite or 0 in it."""
    with np.errstate(all="ignore"):
        if form == "float32":
            return X.astype(np.float32)
        if form == "int":
            return np.nan_to_num(X, nan=0, posinf=9, neginf=-9).clip(-1e9, 1e9).astype(np.int64)
        if form == "uint8":
            return np.nan_to_num(np.abs(X), nan=0, posinf=9).clip(0, 255).astype(np.uint8)
        if form in ("csr", "csc", "coo"):
            return scipy.sparse.coo_array(np.where(np.abs(X) < 0.5, 0, X)).asformat(form)
    if form == "list":
        return X.tolist()
    X = np.asfortranarray(X) if form == "columns" else X.copy()
    X.flags.writeable = form != "read-only"
    return X


FORMS = st.sampled_from(
    ("plain", "plain", "columns", "read-only", "float32", "int", "uint8", "csr", "csc", "coo", "list")
)


@st.composite
def labels(draw, n):
    """Labels of n rows, with missing ones or without, of one class or several, of the wrong length now and then."""
    kind = draw(st.sampled_from(("int", "int", "int", "str", "float", "bool", "mixed", "none", "wrong length")))
    if kind == "none":
        return None
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    c = draw(st.integers(1, 5))
    codes = np.where(rng.random(n) < draw(st.sampled_from((0.0, 0.3, 0.8, 1.0))), -1, rng.integers(0, c, n))
    if kind == "int":
        return codes
    if kind == "wrong length":
        return codes[:-1]
    if kind == "float":
        return np.where(codes < 0, np.nan, codes + draw(st.sampled_from((0.0, 0.0, 0.5))))
    if kind == "bool":
        return codes > 0
    if kind == "mixed":
        return [None if code < 0 else draw(st.sampled_from((1, "a", 2.0))) for code in codes]
    return np.array([None if code < 0 else f"class {code}" for code in codes], dtype=object)


def values_of(constraints, outside):
    """Values that constraints allow or, `outside`, values beside them."""
    if outside:
        return st.sampled_from((-1, 0, -0.5, 1.5, 1e400, np.nan, "nonsense", None, [], 10**30))
    allowed = []
    for constraint in constraints:
        if constraint is None:
            allowed.append(None)
        elif isinstance(constraint, StrOptions):
            allowed += sorted(constraint.options)
        elif isinstance(constraint, Interval):
            some = (
                (0, 1, 2, 3, 7, 50)
                if constraint.type is Integral
                else (0.0, 1e-300, 1e-10, 0.1, 1.0, 10.0, 1e10, 1e300)
            )
            allowed += [value for value in some if value in constraint]
        elif isinstance(constraint, str) and constraint == "boolean":
            allowed += [True, False]
    return st.sampled_from(allowed)


@st.composite
def estimators(draw, cls):
    """An estimator with a few of its parameters changed, nearly always to what their constraints allow."""
    constraints = {**getattr(cls, "_parameter_constraints", {})}
    names = sorted(set(constraints) & set(inspect.signature(cls).parameters) - LEFT_ALONE)
    chosen = draw(st.lists(st.sampled_from(names), max_size=4, unique=True)) if names else []
    changed = {name: draw(values_of(constraints[name], draw(st.integers(0, 19)) == 0)) for name in chosen}
    if cls is LabelledOnly:
        return cls(draw(st.sampled_from((LogisticRegression(max_iter=20), RidgeClassifier()))))
    if cls is LDSUClassifier:
        features = draw(st.sampled_from([None, *ldsu.METHODS.values()]))
        changed["features"] = None if features is None else draw(estimators(features))
        changed["classifier"] = draw(
            st.sampled_from((None, None, RidgeClassifier(0.1), LogisticRegression(max_iter=20)))
        )
    return cls(**changed)


# ---------------------------------------------------------------- what must hold


def fitted(model, X, y):
    """The fitted model, or None where it was refused in a sentence of the library's own."""
    with quiet(model):
        try:
            return model.fit(X, y)
        except (ValueError, TypeError, MemoryError, NotFittedError) as error:
            # What a classifier within `LabelledOnly` says of values that overflow is its own affair.
            if not isinstance(model, LabelledOnly):
                check_refusal(error)
            return None


def check_refusal(error):
    """Raise an error again that was not meant for the user, or is no sentence; scikit-learn writes several lines."""
    if not own_sentence(error):
        raise error
    if "/sklearn/" not in raised_in(error):
        check_sentence(error)


def answers(model, X):
    """Everything that a fitted model says of samples, by name; None where it refuses them."""
    found = {}
    names = ("transform", "decision_function", "predict_proba", "predict")
    with quiet(model):
        for name in names:
            if hasattr(model, name):
                try:
                    answer = getattr(model, name)(X)
                except (ValueError, TypeError, MemoryError) as error:
                    check_refusal(error)
                    return None
                found[name] = answer.toarray() if scipy.sparse.issparse(answer) else np.asarray(answer)
        if isinstance(model, LDSUClassifier) and model.classifier is None:
            found |= model.confidence(X)._asdict()
    return found


def check_answers(model, found, n):
    for name, answer in found.items():
        assert answer.shape[0] == n, name
        if name == "predict":
            assert np.isin(answer, model.classes_).all()
        else:
            assert np.isrealobj(answer), name
            # What a classifier within `LabelledOnly` says of values whose squares overflow is its own affair.
            assert isinstance(model, LabelledOnly) or np.isfinite(answer).all(), name
    if "predict_proba" in found:
        P = found["predict_proba"]
        assert P.shape == (n, len(model.classes_))
        assert (P >= 0).all()
        np.testing.assert_allclose(P.sum(axis=1), 1, rtol=0, atol=32 * np.finfo(P.dtype).eps)
    for name in ("margin", "familiarity"):
        if name in found:
            assert ((found[name] >= 0) & (found[name] <= 1)).all(), name


def same(first, second):
    assert first.keys() == second.keys()
    for name, answer in first.items():
        assert np.array_equal(answer, second[name], equal_nan=answer.dtype.kind == "f"), name


def memo(value):
    """Everything there is of an argument, to see that it stays."""
    return pickle.dumps(value)


def prepared(data, model, X):
    """Samples for a model: a kernel matrix, for one that takes it, most of the time."""
    inner = getattr(model, "features", model)
    if getattr(inner, "kernel", None) == "precomputed" and data.draw(st.integers(0, 4)):
        with np.errstate(all="ignore"):
            return X @ X.T
    return X


@every_estimator
@given(data=st.data())
@inputs(default=12, full=350)
def test_numbers_or_a_sentence_and_nothing_of_the_callers_is_changed(cls, data):
    model = data.draw(estimators(cls))
    X = in_form(prepared(data, model, data.draw(samples())), data.draw(FORMS))
    n = len(X) if isinstance(X, list) else X.shape[0]
    y = data.draw(labels(n))
    before, parameters = memo((X, y)), memo(model.get_params())
    again = clone(model)
    done = fitted(model, X, y)
    assert memo((X, y)) == before
    assert memo(model.get_params()) == parameters
    if done is None:
        assert fitted(again, X, y) is None
        return
    found = answers(done, X)
    if found is None:
        return
    check_answers(done, found, n)
    same(answers(fitted(again, X, y), X), found)
    same(answers(done, X), found)
    assert memo((X, y)) == before
    assert memo(model.get_params()) == parameters


@every_estimator
@given(data=st.data())
@inputs(default=8, full=150)
def test_new_samples_get_numbers_or_a_sentence(cls, data):
    model = data.draw(estimators(cls))
    X = prepared(data, model, data.draw(samples(special=False)))
    done = fitted(model, X, data.draw(labels(len(X))))
    if done is None:
        return
    new = data.draw(samples())
    if data.draw(st.integers(0, 9)):  # nearly always as many columns as the model knows
        new = np.resize(new, (len(new), X.shape[1]))
    before = memo(new)
    found = answers(done, in_form(new, data.draw(FORMS)))
    assert memo(new) == before
    if found is not None:
        check_answers(done, found, len(new))


@every_estimator
@given(data=st.data())
@inputs(default=6, full=80)
def test_a_model_saved_and_loaded_answers_the_same(cls, data, tmp_path_factory):
    model = data.draw(estimators(cls))
    X = in_form(prepared(data, model, data.draw(samples(special=False))), data.draw(FORMS))
    done = fitted(model, X, data.draw(labels(len(X) if isinstance(X, list) else X.shape[0])))
    if done is None:
        return
    found = answers(done, X)
    path = tmp_path_factory.getbasetemp() / f"{cls.__name__}.ldsu"
    try:
        save_model(done, path)
    except ValueError as error:
        check_refusal(error)
        return
    loaded = load_model(path)
    assert repr(loaded.get_params()) == repr(done.get_params())
    again = answers(loaded, X)
    if found is None:
        assert again is None
    else:
        same(again, found)


@pytest.mark.parametrize("cls", KERNEL_METHODS.values(), ids=list(KERNEL_METHODS))
@given(X=samples(special=False), seed=st.integers(0, 2**32 - 1), form=st.sampled_from(("plain", "columns", "csr")))
@inputs(default=6, full=60)
def test_rows_alone_have_the_features_they_have_among_others(cls, X, seed, form):
    rng = np.random.default_rng(seed)
    X, y = in_form(X, form), rng.integers(-1, 3, X.shape[0])
    done = fitted(cls(), X, y)
    if done is None:
        return
    rows = rng.choice(X.shape[0], rng.integers(1, X.shape[0] + 1), replace=False)
    Z = done.transform(X)
    # A feature is a sum over the training samples, whose terms can be much larger than it is, of kernel values; these
    # are functions of squared distances, which lose digits where a sample lies far from all others.
    terms = np.abs(done.coef_).sum(axis=0).max()
    farthest = np.max(np.abs(X - X.mean(axis=0))) ** 2 * X.shape[1]
    digits_lost = 10 * np.finfo(float).eps * done.gamma_ * farthest
    largest = max(np.abs(Z).max(), terms)
    np.testing.assert_allclose(done.transform(X[rows]), Z[rows], rtol=0, atol=(1e-9 + digits_lost) * largest)


@given(data=st.data())
@inputs(default=8, full=100)
def test_a_search_finds_a_setting_or_says_why_not(data):
    X = in_form(data.draw(samples(most_rows=24)), data.draw(FORMS))
    y = data.draw(labels(len(X) if isinstance(X, list) else X.shape[0]))
    grid = {
        "features__lam": [0.1, 1.0],
        "features__strength": data.draw(st.lists(st.sampled_from((0.0, 1.0, 1e300, -1.0)), min_size=1, max_size=2)),
    }
    search = LDSUSearch(param_grid=grid, cv=data.draw(st.sampled_from((None, 2, 3))))
    before, parameters = memo((X, y)), memo(search.get_params())
    done = fitted(search, X, y)
    assert memo((X, y)) == before
    assert memo(search.get_params()) == parameters
    if done is None:
        return
    found = answers(done, X)
    if found is not None:
        check_answers(done, found, len(found["predict"]))
        assert done.best_params_ in done.cv_results_["params"]


@every_estimator
@given(X=samples())
@inputs(default=2, full=20)
def test_an_estimator_that_was_not_fitted_says_so(cls, X):
    required = [p for p in inspect.signature(cls).parameters.values() if p.default is inspect.Parameter.empty]
    model = cls(*[LogisticRegression() for _ in required])
    for name in ("transform", "predict", "predict_proba", "decision_function"):
        if hasattr(model, name):
            with pytest.raises(NotFittedError):
                getattr(model, name)(X)


@every_estimator
def test_a_wrong_parameter_is_refused_by_name(cls):
    """Every parameter with constraints, and values outside of all of them."""
    X, y = np.random.default_rng(0).standard_normal((8, 2)), np.array([0, 1] * 4)
    for name, constraints in getattr(cls, "_parameter_constraints", {}).items():
        if all(isinstance(constraint, (StrOptions, Interval)) or constraint is None for constraint in constraints):
            with pytest.raises(ValueError, match=f"'{name}' parameter of {cls.__name__} must be") as caught:
                cls(**{name: object()}).fit(X, y)
            check_refusal(caught.value)


# ---------------------------------------------------------------- memory


def asked(kind):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((120, 4)), np.repeat([0, 1, 2, -1, -1, -1], 20)
    new = rng.standard_normal((10, 4))
    if kind == "classifier":
        model = LDSUClassifier().fit(X, y)
        return lambda: model.predict(new)
    model = LDSU(solver=kind).fit(X, y)
    return lambda: model.transform(new)


@pytest.mark.parametrize("kind", ["exact", pytest.param("sparse", marks=pytest.mark.slow), "classifier"])
def test_a_thousand_transforms_take_no_memory(kind):
    ask = asked(kind)
    process = psutil.Process()
    # Buffers of BLAS, and of the allocator in each thread of the sparse solver, are taken once, but not all at once.
    for _ in range(1000):
        ask()
    before = process.memory_info().rss
    for _ in range(1000):
        ask()
    growth = process.memory_info().rss - before
    assert growth < 5 * MEBIBYTE, f"{growth / MEBIBYTE:.1f} MiB"


# ---------------------------------------------------------------- found by the above, and kept

PAIRS = np.repeat(np.random.default_rng(0).standard_normal((6, 3)), 4, axis=0)
TWO_SIZES = np.array([[1, -1e150, -1e150], [1, -1e150, 1], [-1e150, 1, 1], [1, -1e150, -1e150]])
COPIES = np.random.default_rng(1).integers(0, 3, (24, 1)) * 1e-8
FOUND = {
    "heat_scale beyond all distances": (ldsu.KLPP(heat_scale=1e300), PAIRS * 1e8, np.arange(24) % 2),
    "heat_scale below all distances": (ldsu.KLPP(heat_scale=1e-300), PAIRS * 1e-8, np.arange(24) % 2),
    "gamma_scale beyond all bandwidths": (ldsu.KDA(gamma_scale=1e300), COPIES, np.arange(24) % 2),
    "a graph that drowns the kernel": (LDSU(lam=1e300), PAIRS, np.full(24, -1)),
    "values of two sizes": (ldsu.EnFS(), TWO_SIZES, [0, 1, 2, 1]),
    "a penalty of nearly nothing": (ldsu.EnFS(alpha=1e-300, beta=1e-300, tol=1e-300), PAIRS, np.arange(24) % 3),
    "a penalty that vanishes": (ldsu.EnFS(alpha=0.0), PAIRS * 1e70, np.arange(24) % 4),
}


@pytest.mark.parametrize("case", FOUND)
def test_extreme_settings_give_numbers_or_a_sentence_without_a_warning_of_numbers(case):
    model, X, y = FOUND[case]
    done = fitted(clone(model), X, y)
    if done is not None:
        check_answers(done, answers(done, X), len(X))


def test_a_classifier_of_one_class_is_saved_and_loaded(tmp_path):
    model = LabelledOnly(RidgeClassifier()).fit([[1.0], [2.0], [3.0]], [7, 7, -1])
    save_model(model, tmp_path / "one.ldsu")
    assert load_model(tmp_path / "one.ldsu").predict([[5.0]]).tolist() == [7]


def test_features_that_overflow_are_a_sentence():
    X = np.array([1.25730221e-9, -1.32104863e-9, 6.4042265e-9, 1.04900117e-9, -5.35669373e-9, 3.61595055e-9, 1.3e-8])
    model = ldsu.KDA(kernel="poly", degree=1, coef0=1e10, delta=1e-300).fit(X[:, None], [1, 1, 1, 1, 1, 1, 0])
    with pytest.raises(ValueError, match="do not fit float64: the largest model coefficient is"):
        model.transform([[1.25730221e-301], [-1.32104863e-301]])
