"""Load, cluster and policy without running tuples: for planning, and for sizes that no desk has.

The same monitor, manager, policies, infrastructure policy and schedulers (`scheduled`) run in it as in Nimbus; only what they measure and
what they cause is computed: by a queueing model (`engine`), and without a scheduler by a plain placer (`placement`).
`python -m elastic.simulation --help`.
"""

from elastic.simulation.model import Cost, Model, fpd, waiting_service
from elastic.simulation.profile import Phase, Profile, fivephase, waitingwave
from elastic.simulation.result import PhaseResult, Result, Sample
from elastic.simulation.run import Simulation, SimulationOptions

__all__ = [
    "Cost",
    "Model",
    "Phase",
    "PhaseResult",
    "Profile",
    "Result",
    "Sample",
    "Simulation",
    "SimulationOptions",
    "fivephase",
    "fpd",
    "waiting_service",
    "waitingwave",
]
