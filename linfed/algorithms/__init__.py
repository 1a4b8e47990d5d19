"""Federated algorithms: frozen dataclasses of hyper-parameters with an initial state and a step."""

from __future__ import annotations

from linfed.algorithms.altgdmin import AltGDmin
from linfed.algorithms.altmin import AltMin
from linfed.algorithms.anil import ANIL
from linfed.algorithms.averaging import SCAFFOLD, ClusterFedVARP, FedAvg, FedProx, FedRolex, FedSCAVAR, FedVARP
from linfed.algorithms.base import Algorithm
from linfed.algorithms.compressed_fedrep import CompressedFedRep
from linfed.algorithms.empirical_risk import BurerMonteiro, NuclearNorm
from linfed.algorithms.estimators import LocalGram, MethodOfMoments, TwoReplica, UStatistic
from linfed.algorithms.fedbabu import FedBABU
from linfed.algorithms.fedper import FedPer
from linfed.algorithms.fedrep import FedRep
from linfed.algorithms.fedrod import FedRoD
from linfed.algorithms.flute import FLUTE
from linfed.algorithms.general_flute import GeneralFLUTE
from linfed.algorithms.lgfedavg import LGFedAvg
from linfed.algorithms.local_only import LocalOnly
from linfed.algorithms.maml import MAML
from linfed.algorithms.oracle import Oracle
from linfed.algorithms.personal import APFL, L2GD, Ditto, FedMTL, PerFedAvg, PFedMe
from linfed.algorithms.personalized import Personalized
from linfed.algorithms.pooled import PooledLeastSquares
from linfed.algorithms.private_fedrep import PrivateFedRep
from linfed.algorithms.shortcut import FedRepShortcut
from linfed.algorithms.tpgd import TPGD

ALGORITHMS: dict[str, type[Algorithm]] = {
    cls.__name__: cls
    for cls in (
        *(FedRep, PrivateFedRep, CompressedFedRep, FedRepShortcut, FLUTE, GeneralFLUTE),
        *(FedAvg, FedProx, SCAFFOLD, FedVARP, ClusterFedVARP, FedRolex, FedSCAVAR),
        *(FedPer, FedBABU, LGFedAvg, FedRoD, Ditto, APFL, PFedMe, L2GD, PerFedAvg, FedMTL),
        *(AltGDmin, AltMin, TPGD, ANIL, MAML),
        *(MethodOfMoments, UStatistic, TwoReplica, LocalGram, NuclearNorm, BurerMonteiro),
        *(LocalOnly, PooledLeastSquares, Oracle, Personalized),
    )
}
"""All algorithms by name, for the command line and for results read from files."""

__all__ = [
    "ALGORITHMS",
    "ANIL",
    "APFL",
    "FLUTE",
    "L2GD",
    "MAML",
    "SCAFFOLD",
    "TPGD",
    "Algorithm",
    "AltGDmin",
    "AltMin",
    "BurerMonteiro",
    "ClusterFedVARP",
    "CompressedFedRep",
    "Ditto",
    "FedAvg",
    "FedBABU",
    "FedMTL",
    "FedPer",
    "FedProx",
    "FedRep",
    "FedRepShortcut",
    "FedRoD",
    "FedRolex",
    "FedSCAVAR",
    "FedVARP",
    "GeneralFLUTE",
    "LGFedAvg",
    "LocalGram",
    "LocalOnly",
    "MethodOfMoments",
    "NuclearNorm",
    "Oracle",
    "PFedMe",
    "PerFedAvg",
    "Personalized",
    "PooledLeastSquares",
    "PrivateFedRep",
    "TwoReplica",
    "UStatistic",
]
