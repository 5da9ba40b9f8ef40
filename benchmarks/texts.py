"""Two bags of words to try selectors on, where the paper's data have one (PCMAC): rare words, heavy tails.

``docstrings`` counts words in the documentation of four packages that are installed with this one; the class is the
package, whose own name is left out. ``topics`` draws documents from topics over a vocabulary with Zipf's law.
"""

import importlib
import inspect
import pkgutil
import re
import warnings

import numpy as np

PACKAGES = ("scipy", "sklearn", "pandas", "torch")
SKIPPED = ("test", "conftest", "_build", "setup", "benchmark", "__main__", "_libs", "_inductor", "distributed", "onnx")


def docstrings(per_class=500, seed=0):
    """Counts (n, d) of the words of four packages' documentation, and the package of each document."""
    from sklearn.feature_extraction.text import CountVectorizer

    rng = np.random.RandomState(seed)
    texts, y = [], []
    for label, package in enumerate(PACKAGES):
        documents = [re.sub(rf"(?i)\b{package}\w*", " ", text).split() for text in _documentation(package)]
        documents = [" ".join(words[:80]) for words in documents if len(words) >= 15]
        rng.shuffle(documents)
        texts += documents[:per_class]
        y += [label] * len(documents[:per_class])
    counts = CountVectorizer(min_df=4, token_pattern=r"[a-zA-Z]{3,}").fit_transform(texts)
    return counts.toarray().astype(np.float32), np.array(y)


def topics(n=1500, d=3000, n_topics=12, length=60, seed=0):
    """Counts (n, d') of words in documents of two classes that prefer different topics, and the class."""
    rng = np.random.RandomState(seed)
    usual = 1 / (np.arange(d) + 5.0)
    words = np.empty((n_topics, d))
    for topic in words:
        topic[:] = usual
        topic[rng.choice(d, 120, replace=False)] *= rng.gamma(1, 12, 120)
    words /= words.sum(1, keepdims=True)
    y = rng.randint(2, size=n)
    preferred = rng.dirichlet(np.full(n_topics, 0.5), 2)
    X = np.zeros((n, d), np.float32)
    for i in range(n):
        share = rng.dirichlet(0.15 * n_topics * (0.65 * preferred[y[i]] + 0.35 / n_topics) + 1e-3)
        X[i] = rng.multinomial(max(10, rng.poisson(rng.gamma(2, length / 2))), share @ words)
    return X[:, (X > 0).sum(0) >= 4], y


def _documentation(package, n_modules=400):
    """Documentation of the functions, classes and methods of a package, each text once."""
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        root = importlib.import_module(package)
        walk = pkgutil.walk_packages(root.__path__, f"{package}.", onerror=lambda name: None)
        names = [package, *(module.name for module in walk if not any(word in module.name for word in SKIPPED))]
        for name in names[:n_modules]:
            try:
                module = importlib.import_module(name)
            except Exception:  # a module may ask for what is not installed
                continue
            for value in list(vars(module).values()):
                if not (inspect.isfunction(value) or inspect.isclass(value)):
                    continue
                if not str(getattr(value, "__module__", "")).startswith(package):
                    continue
                inner = [v for v in vars(value).values() if inspect.isfunction(v)] if inspect.isclass(value) else []
                found |= {part.__doc__: None for part in (value, *inner) if isinstance(part.__doc__, str)}
    return list(found)
