"""The paper's experiments: what they compare, how much of it is run, and their tables."""

from collections.abc import Callable

from .ablation import AblationExperiment
from .experiment import Experiment, Results, Study
from .sensitivity import SensitivityExperiment
from .settings import PAPER, Settings
from .table import TableExperiment
from .toy import ToyExperiment

__all__ = ["EXPERIMENTS", "PAPER", "Experiment", "Results", "Settings", "Study"]

EXPERIMENTS: dict[str, Callable[[Settings], Study]] = {
    experiment.name: experiment
    for experiment in (ToyExperiment, TableExperiment, AblationExperiment, SensitivityExperiment)
}
