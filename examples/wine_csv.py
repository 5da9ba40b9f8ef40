"""Write scikit-learn's wine data (178 wines, 13 chemical measurements, 3 cultivars) as a CSV file."""

import sys
from pathlib import Path

from sklearn.datasets import load_wine

path = Path(sys.argv[1] if len(sys.argv) > 1 else "wine.csv")
path.parent.mkdir(parents=True, exist_ok=True)
frame = load_wine(as_frame=True).frame.rename(columns={"target": "cultivar"})
frame.to_csv(path, index=False)
