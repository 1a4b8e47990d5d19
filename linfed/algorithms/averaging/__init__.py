"""The federated averaging family: one model for all clients, with one or two layers."""

from __future__ import annotations

from linfed.algorithms.averaging.clusterfedvarp import ClusterFedVARP
from linfed.algorithms.averaging.fedavg import FedAvg
from linfed.algorithms.averaging.fedprox import FedProx
from linfed.algorithms.averaging.fedrolex import FedRolex
from linfed.algorithms.averaging.fedscavar import FedSCAVAR
from linfed.algorithms.averaging.fedvarp import FedVARP
from linfed.algorithms.averaging.scaffold import SCAFFOLD

__all__ = ["SCAFFOLD", "ClusterFedVARP", "FedAvg", "FedProx", "FedRolex", "FedSCAVAR", "FedVARP"]
