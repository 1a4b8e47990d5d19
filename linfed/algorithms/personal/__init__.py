"""Personalised federated learning: every client learns its own predictor, next to or around a model of the server."""

from linfed.algorithms.personal.apfl import APFL
from linfed.algorithms.personal.armul import ARMUL
from linfed.algorithms.personal.ditto import Ditto
from linfed.algorithms.personal.fedmtl import FedMTL
from linfed.algorithms.personal.l2gd import L2GD
from linfed.algorithms.personal.perfedavg import PerFedAvg
from linfed.algorithms.personal.pfedme import PFedMe

__all__ = ["APFL", "ARMUL", "L2GD", "Ditto", "FedMTL", "PFedMe", "PerFedAvg"]
