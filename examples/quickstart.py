"""The example of the README."""

from sklearn.datasets import load_wine

from homophily import PredictiveSelector

X, y = load_wine(return_X_y=True, as_frame=True)  # y is not used to select
selector = PredictiveSelector(5, random_state=0).fit(X)
print(list(selector.get_feature_names_out()))
print(selector.transform(X).shape, f"energy {selector.energy_:.1f}")
graph = selector.graph_.tocoo()
same = (y.to_numpy()[graph.row] == y.to_numpy()[graph.col]).mean()
print(f"{same:.0%} of the {graph.nnz} edges join wines of one cultivar")
