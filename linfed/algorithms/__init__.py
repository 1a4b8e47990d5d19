"""Federated algorithms: frozen dataclasses of hyper-parameters with an initial state and a step."""

from __future__ import annotations

from linfed.algorithms.averaging import SCAFFOLD, ClusterFedVARP, FedAvg, FedProx, FedRolex, FedSCAVAR, FedVARP
from linfed.algorithms.baselines.local_only import LocalOnly
from linfed.algorithms.baselines.oracle import Oracle
from linfed.algorithms.baselines.personalized import Personalized
from linfed.algorithms.baselines.pooled import PooledLeastSquares
from linfed.algorithms.one_round.empirical_risk import BurerMonteiro, NuclearNorm
from linfed.algorithms.one_round.estimators import LocalGram, LocalSpectral, MethodOfMoments, TwoReplica, UStatistic
from linfed.algorithms.parts.base import Algorithm
from linfed.algorithms.personal import APFL, ARMUL, L2GD, Ditto, FedMTL, PerFedAvg, PFedMe
from linfed.algorithms.representation.altgdmin import AltGDmin
from linfed.algorithms.representation.altmin import AltMin
from linfed.algorithms.representation.anil import ANIL
from linfed.algorithms.representation.compressed_fedrep import CompressedFedRep
from linfed.algorithms.representation.fedbabu import FedBABU
from linfed.algorithms.representation.fedper import FedPer
from linfed.algorithms.representation.fedrep import FedRep
from linfed.algorithms.representation.fedrod import FedRoD
from linfed.algorithms.representation.flute import FLUTE
from linfed.algorithms.representation.general_flute import GeneralFLUTE
from linfed.algorithms.representation.lgfedavg import LGFedAvg
from linfed.algorithms.representation.maml import MAML
from linfed.algorithms.representation.private_fedrep import PrivateFedRep
from linfed.algorithms.representation.shortcut import FedRepShortcut
from linfed.algorithms.representation.tpgd import TPGD

ALGORITHMS: dict[str, type[Algorithm]] = {
    cls.__name__: cls
    for cls in (
        *(FedRep, PrivateFedRep, CompressedFedRep, FedRepShortcut, FLUTE, GeneralFLUTE),
        *(FedAvg, FedProx, SCAFFOLD, FedVARP, ClusterFedVARP, FedRolex, FedSCAVAR),
        *(FedPer, FedBABU, LGFedAvg, FedRoD, Ditto, APFL, PFedMe, L2GD, PerFedAvg, FedMTL, ARMUL),
        *(AltGDmin, AltMin, TPGD, ANIL, MAML),
        *(MethodOfMoments, UStatistic, TwoReplica, LocalGram, LocalSpectral, NuclearNorm, BurerMonteiro),
        *(LocalOnly, PooledLeastSquares, Oracle, Personalized),
    )
}
"""All algorithms by name, for the command line and for results read from files."""

__all__ = [
    "ALGORITHMS",
    "ANIL",
    "APFL",
    "ARMUL",
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
    "LocalSpectral",
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
