"""The paper's experiments: what they compare, how much of it is run, and their tables."""

from .ablation import AblationExperiment
from .experiment import Experiment, Results
from .sensitivity import SensitivityExperiment
from .settings import PAPER, Settings
from .table import TableExperiment
from .toy import ToyExperiment

__all__ = ["EXPERIMENTS", "PAPER", "Experiment", "Results", "Settings"]

EXPERIMENTS: dict[str, type] = {
    experiment.name: experiment
    for experiment in (ToyExperiment, TableExperiment, AblationExperiment, SensitivityExperiment)
}
