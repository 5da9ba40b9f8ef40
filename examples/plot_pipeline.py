"""
A pipeline that clusters what was chosen
========================================

``PredictiveSelector`` is a scikit-learn selector, so that it goes into a pipeline. Four clusters that eight columns
tell apart lie among 192 columns of noise; k-means on all of them is distracted, on the chosen ones it is not.
"""

from matplotlib.figure import Figure
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from homophily import PredictiveSelector
from homophily.baselines import RandomSelector
from homophily.datasets import make_planted
from homophily.figures.style import COLORS

X, y, planted = make_planted(300, 200, 8, spacing=1.2, random_state=0)
kmeans = KMeans(4, n_init=10, random_state=0)
pipelines = {
    "all 200 columns": make_pipeline(StandardScaler(), kmeans),
    "8 random columns": make_pipeline(StandardScaler(), RandomSelector(8, random_state=0), kmeans),
    "8 chosen columns": make_pipeline(StandardScaler(), PredictiveSelector(8, random_state=0), kmeans),
}
figure = Figure(figsize=(9, 3.3), layout="constrained")
for axes, (name, pipeline) in zip(figure.subplots(1, 3), pipelines.items(), strict=True):
    found = pipeline.fit_predict(X)
    agreement = adjusted_rand_score(y, found)
    print(f"{name}: adjusted Rand index {agreement:.2f}")
    plane = PCA(2).fit_transform(pipeline[:-1].transform(X))
    axes.scatter(*plane.T, c=[COLORS[cluster] for cluster in y], s=8, linewidths=0)
    axes.set_title(f"{name}\nadjusted Rand index {agreement:.2f}", fontsize=10)
    axes.set(xticks=[], yticks=[], xlabel="first principal component", ylabel="second")
figure

# %%
# Colours are the true clusters, which no pipeline has seen; the index is 1 if k-means finds them and 0 by chance.
