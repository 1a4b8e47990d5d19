"""linfed: a pure-NumPy theory testbed for federated representation learning on linear models.

Each of n clients has m samples ``x_ij`` in R^d with labels ``y_ij = x_ij' phi_i + noise``; the samples are fixed, or
fresh in every round. Algorithms learn a predictor ``theta_i = B w_i + s_i`` for each client i. B is the shared
representation, w_i is the client's head, and s_i, which only some algorithms learn, is its shortcut. In arrays the axis
of trials comes first, then the axis of clients.

The table lists the names in the code, and the symbols here and in the FedRep and FLUTE papers.

========================  ==========  =======  =======  ==================================================
code                      shape       FedRep   FLUTE    meaning
========================  ==========  =======  =======  ==================================================
``n_clients``             --          n        M        clients
``n_samples``             --          m        N        samples per client (per round when fresh)
``dim``                   --          d        d        ambient dimension
``rank``                  --          k        k        columns of the learned representation
``participation``         --          r        1        share of the clients that participate in a round
``B``                     (d, k)      B        B        representation
``W``                     (n, k)      W        W'       heads, row i = client i
``S``                     (n, d)      --       --       shortcuts: personal regressors in R^d, row i = client i
``step_size``             --          eta      eta_l    step size of the representation
``heads.steps``           --          tau      --       gradient steps on the heads (``lf.GradientHeads``)
``heads.step_size``       --          alpha    --       step size of the heads
``noise_std``             --          1e-1.5   sigma    standard deviation (not variance) of the label noise
========================  ==========  =======  =======  ==================================================

In regression the loss of a client is ``(1/2m) ||X_i theta - y_i||^2``, whose gradient has no factor 2. FedRep averages
over the participants; FLUTE sums over them. In classification with c classes the loss is the mean cross-entropy. A head
then has a row for each class, with the bias as last entry, so W has shape (n, c, k + 1).

Examples
--------
>>> import linfed as lf
>>> problem = lf.SharedRepresentation(n_clients=50, dim=20, rank=2)
>>> result = lf.simulate(lf.FedRep(rank=2, step_size=0.3), problem, data=lf.FreshSamples(n_samples=10), n_rounds=100)
>>> bool(result.metrics["subspace_distance"][0, -1] < 1e-3)
True
"""

from __future__ import annotations

import functools
import importlib
import sys
from typing import TYPE_CHECKING, Any

from linfed import _sources as _sources  # from here on, notes the source of each module that is imported
from linfed._package import __version__ as __version__

if TYPE_CHECKING:
    from linfed import claims as claims
    from linfed import statistics as statistics
    from linfed import theory as theory
    from linfed._values import choice as choice
    from linfed.algorithms import ALGORITHMS as ALGORITHMS
    from linfed.algorithms.averaging import SCAFFOLD as SCAFFOLD
    from linfed.algorithms.averaging import ClusterFedVARP as ClusterFedVARP
    from linfed.algorithms.averaging import FedAvg as FedAvg
    from linfed.algorithms.averaging import FedProx as FedProx
    from linfed.algorithms.averaging import FedRolex as FedRolex
    from linfed.algorithms.averaging import FedSCAVAR as FedSCAVAR
    from linfed.algorithms.averaging import FedVARP as FedVARP
    from linfed.algorithms.baselines.local_only import LocalOnly as LocalOnly
    from linfed.algorithms.baselines.oracle import Oracle as Oracle
    from linfed.algorithms.baselines.personalized import Personalized as Personalized
    from linfed.algorithms.baselines.pooled import PooledLeastSquares as PooledLeastSquares
    from linfed.algorithms.initial import AtDistance as AtDistance
    from linfed.algorithms.initial import GivenFactors as GivenFactors
    from linfed.algorithms.initial import GivenSubspace as GivenSubspace
    from linfed.algorithms.initial import Initial as Initial
    from linfed.algorithms.initial import Moments as Moments
    from linfed.algorithms.initial import RandomSubspace as RandomSubspace
    from linfed.algorithms.initial import SmallRandom as SmallRandom
    from linfed.algorithms.initial import TrueSubspace as TrueSubspace
    from linfed.algorithms.initial import TruncatedAverages as TruncatedAverages
    from linfed.algorithms.one_round.empirical_risk import BurerMonteiro as BurerMonteiro
    from linfed.algorithms.one_round.empirical_risk import NuclearNorm as NuclearNorm
    from linfed.algorithms.one_round.estimators import LocalGram as LocalGram
    from linfed.algorithms.one_round.estimators import LocalSpectral as LocalSpectral
    from linfed.algorithms.one_round.estimators import MethodOfMoments as MethodOfMoments
    from linfed.algorithms.one_round.estimators import TwoReplica as TwoReplica
    from linfed.algorithms.one_round.estimators import UStatistic as UStatistic
    from linfed.algorithms.parts.base import Algorithm as Algorithm
    from linfed.algorithms.parts.base import Requires as Requires
    from linfed.algorithms.parts.base import State as State
    from linfed.algorithms.parts.fine_tuning import AllLayers as AllLayers
    from linfed.algorithms.parts.heads import ExactHeads as ExactHeads
    from linfed.algorithms.parts.heads import GradientHeads as GradientHeads
    from linfed.algorithms.parts.solvers import ClosedForm as ClosedForm
    from linfed.algorithms.parts.solvers import GradientSteps as GradientSteps
    from linfed.algorithms.personal import APFL as APFL
    from linfed.algorithms.personal import ARMUL as ARMUL
    from linfed.algorithms.personal import L2GD as L2GD
    from linfed.algorithms.personal import Ditto as Ditto
    from linfed.algorithms.personal import FedMTL as FedMTL
    from linfed.algorithms.personal import PerFedAvg as PerFedAvg
    from linfed.algorithms.personal import PFedMe as PFedMe
    from linfed.algorithms.representation.altgdmin import AltGDmin as AltGDmin
    from linfed.algorithms.representation.altmin import AltMin as AltMin
    from linfed.algorithms.representation.anil import ANIL as ANIL
    from linfed.algorithms.representation.compressed_fedrep import CompressedFedRep as CompressedFedRep
    from linfed.algorithms.representation.fedbabu import FedBABU as FedBABU
    from linfed.algorithms.representation.fedper import FedPer as FedPer
    from linfed.algorithms.representation.fedrep import FedRep as FedRep
    from linfed.algorithms.representation.fedrod import FedRoD as FedRoD
    from linfed.algorithms.representation.flute import FLUTE as FLUTE
    from linfed.algorithms.representation.general_flute import GeneralFLUTE as GeneralFLUTE
    from linfed.algorithms.representation.lgfedavg import LGFedAvg as LGFedAvg
    from linfed.algorithms.representation.maml import MAML as MAML
    from linfed.algorithms.representation.private_fedrep import PrivateFedRep as PrivateFedRep
    from linfed.algorithms.representation.shortcut import FedRepShortcut as FedRepShortcut
    from linfed.algorithms.representation.tpgd import TPGD as TPGD
    from linfed.cells.run import Run as Run
    from linfed.data.digits import load_digits as load_digits
    from linfed.data.given_classes import GivenClasses as GivenClasses
    from linfed.data.samples import FixedSamples as FixedSamples
    from linfed.data.samples import FreshSamples as FreshSamples
    from linfed.data.samples import GivenSamples as GivenSamples
    from linfed.data.splits import classwise_split as classwise_split
    from linfed.data.splits import dirichlet_split as dirichlet_split
    from linfed.data.splits import feature_split as feature_split
    from linfed.data.splits import random_split as random_split
    from linfed.data.synthetic import synthetic_classes as synthetic_classes
    from linfed.errors import DivergenceWarning as DivergenceWarning
    from linfed.errors import EngineError as EngineError
    from linfed.errors import GridEdgeWarning as GridEdgeWarning
    from linfed.errors import NoPredictionError as NoPredictionError
    from linfed.errors import SizeError as SizeError
    from linfed.errors import StoreWarning as StoreWarning
    from linfed.errors import SweepError as SweepError
    from linfed.errors import ValidationWarning as ValidationWarning
    from linfed.figures.style import save_figure as save_figure
    from linfed.figures.style import style as style
    from linfed.plotting.panels import panels as panels
    from linfed.plotting.panels import plot_curves as plot_curves
    from linfed.plotting.smallest import plot_smallest as plot_smallest
    from linfed.prediction import predict as predict
    from linfed.problems import Classes as Classes
    from linfed.problems import GivenTruth as GivenTruth
    from linfed.problems import Problem as Problem
    from linfed.problems import SharedRepresentation as SharedRepresentation
    from linfed.problems import SharedWithShortcuts as SharedWithShortcuts
    from linfed.problems import SimilarRepresentations as SimilarRepresentations
    from linfed.problems import Truth as Truth
    from linfed.problems import UnderParameterized as UnderParameterized
    from linfed.problems.designs import Design as Design
    from linfed.problems.designs import Gaussian as Gaussian
    from linfed.problems.designs import Rademacher as Rademacher
    from linfed.problems.designs import UniformCube as UniformCube
    from linfed.problems.designs import UniformSphere as UniformSphere
    from linfed.reproduction.default_figure import plot_runs as plot_runs
    from linfed.search.grid_search import TuningResult as TuningResult
    from linfed.search.levels import above as above
    from linfed.search.levels import below as below
    from linfed.search.parts import run_parts as run_parts
    from linfed.search.selection import RoundsTo as RoundsTo
    from linfed.search.tuning import Tuned as Tuned
    from linfed.search.tuning import tune as tune
    from linfed.simulation.error_table import error_table as error_table
    from linfed.simulation.loop import iterate as iterate
    from linfed.simulation.metrics import METRICS as METRICS
    from linfed.simulation.metrics import max_client_error as max_client_error
    from linfed.simulation.metrics import max_inlier_error as max_inlier_error
    from linfed.simulation.metrics import shortcut_error as shortcut_error
    from linfed.simulation.metrics import subspace_distance as subspace_distance
    from linfed.simulation.results import Result as Result
    from linfed.simulation.run import simulate as simulate
    from linfed.simulation.status import Status as Status
    from linfed.statistics.findings import Finding as Finding
    from linfed.statistics.fits import fit_power_law as fit_power_law
    from linfed.sweeps.find_smallest import find_smallest as find_smallest
    from linfed.sweeps.store import Store as Store
    from linfed.sweeps.sweep import sweep as sweep
    from linfed.tables.grid import grid as grid
    from linfed.tables.labeled_array import LabeledArray as LabeledArray
    from linfed.tables.summary import Summary as Summary
    from linfed.tables.table import Table as Table


@functools.cache
def _public() -> dict[str, str]:
    """Return the module of each public name.

    The imports above are the only list of public names. They are read from the compiled module, not executed: the first
    use of a name imports its module, so that ``import linfed`` and ``linfed --help`` take milliseconds.
    """
    import dis

    loader: Any = sys.modules[__name__].__loader__
    names, module = {}, ""
    for step in dis.get_instructions(loader.get_code(__name__)):
        if step.opname == "IMPORT_NAME":
            module = step.argval
        elif step.opname == "IMPORT_FROM" and module.startswith(__name__) and not step.argval.startswith("_"):
            names[step.argval] = f"{module}.{step.argval}" if module == __name__ else module
    return names


if not TYPE_CHECKING:  # type checkers report names that do not exist

    def __getattr__(name: str) -> Any:
        """Return a public name; import its module on first use."""
        if name == "__all__":
            return sorted(_public())
        if name.startswith("_"):
            raise AttributeError(f"module 'linfed' has no attribute {name!r}")
        if name not in _public():
            from linfed.checks import suggestion

            raise AttributeError(f"module 'linfed' has no attribute {name!r}{suggestion(name, _public())}")
        module = importlib.import_module(_public()[name])
        value = module if module.__name__ == f"{__name__}.{name}" else getattr(module, name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted([*_public(), *(name for name in globals() if name.startswith("__"))])
