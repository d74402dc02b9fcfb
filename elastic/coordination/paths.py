"""Every znode path, in one place.

/nimbus/candidates/<n>               ephemeral, sequential: who stands for leader; data: its address
/launcher                            ephemeral: who keeps the nodes running; data: host and process, for people
/nodes/<node>                        ephemeral: NodeInfo
/wanted/<node>                       persistent: WantedNode; the launcher starts what is missing and ends what is gone from here
/wanted                              data: WANTED_SAID once the launcher has said what is wanted at first: nodes start beside it
/drains/<node>                       persistent: the node is to be emptied; then Nimbus removes it from /wanted
/members/entered/<n>, /members/ready/<n>  ephemeral: members of the state stores' own Hazelcast cluster (elastic/cluster/grid_members.py)
/elasticity                          data: ElasticitySettings; empty: nothing has been set
/elasticity/nodes                    NodesMemory (elastic/nimbus/balancing/remembering.py): what the leader knows of nodes that it asked for
/elasticity/topologies/<name>        TopologyMemory: what it remembers of decisions about a topology by load
/topologies                          data: the greatest number of a move of any topology that is no more, as decimal digits
/topologies/<name>/spec              TopologySpec
/topologies/<name>/state             TopologyState: wanted status, drain generation, bundle
/topologies/<name>/assignment        Assignment
/topologies/<name>/workers/<worker>  ephemeral: WorkerInfo of the living incarnation
/topologies/<name>/progress/<worker> persistent: Progress (finished tasks, epoch carried out, drain passed)
/topologies/<name>/plan              Plan (elastic/nimbus/observing/plans.py): the assignment that moves are bringing about, if any
/topologies/<name>/checkpoint        Checkpoints (elastic/model/checkpoints.py), of a topology that takes any
/topologies/<name>/moves             persistent: the number of the newest move, as decimal digits; made with the topology
/topologies/<name>/moves/<epoch>     MoveRecord (elastic/migration/record.py); the epoch in ten digits
/topologies/<name>/moves/<epoch>/<incarnation>  Marks of one worker life, by `encode_marks`
"""

from __future__ import annotations

from collections.abc import Iterable

from elastic.model.ids import Epoch, Incarnation, NodeId, TopologyName, WorkerId

NIMBUS = "/nimbus"
CANDIDATES = "/nimbus/candidates"
LAUNCHER = "/launcher"
NODES = "/nodes"
WANTED = "/wanted"
WANTED_SAID = b"said"
DRAINS = "/drains"
MEMBERS = "/members"
ELASTICITY = "/elasticity"
NODES_MEMORY = "/elasticity/nodes"
MEMORIES = "/elasticity/topologies"
TOPOLOGIES = "/topologies"
ALL = (NIMBUS, CANDIDATES, NODES, WANTED, DRAINS, MEMBERS, ELASTICITY, MEMORIES, TOPOLOGIES)


def node(id: NodeId) -> str:
    return f"{NODES}/{id}"


def wanted(id: NodeId) -> str:
    return f"{WANTED}/{id}"


def drain(id: NodeId) -> str:
    return f"{DRAINS}/{id}"


def memory(name: TopologyName) -> str:
    return f"{MEMORIES}/{name}"


def topology(name: TopologyName) -> str:
    return f"{TOPOLOGIES}/{name}"


def spec(name: TopologyName) -> str:
    return f"{TOPOLOGIES}/{name}/spec"


def state(name: TopologyName) -> str:
    return f"{TOPOLOGIES}/{name}/state"


def assignment(name: TopologyName) -> str:
    return f"{TOPOLOGIES}/{name}/assignment"


def plan(name: TopologyName) -> str:
    return f"{TOPOLOGIES}/{name}/plan"


def checkpoint(name: TopologyName) -> str:
    return f"{TOPOLOGIES}/{name}/checkpoint"


def workers(name: TopologyName) -> str:
    return f"{TOPOLOGIES}/{name}/workers"


def worker(name: TopologyName, id: WorkerId) -> str:
    return f"{workers(name)}/{leaf(id)}"


def progress(name: TopologyName) -> str:
    return f"{TOPOLOGIES}/{name}/progress"


def worker_progress(name: TopologyName, id: WorkerId) -> str:
    return f"{progress(name)}/{leaf(id)}"


def leaf(id: WorkerId) -> str:
    """A WorkerId as one path element: it contains a slash, which becomes a colon."""
    return id.replace("/", ":")


def unleaf(name: str) -> WorkerId:
    """The WorkerId behind a path element."""
    return WorkerId(name.replace(":", "/"))


def moves(name: TopologyName) -> str:
    return f"{TOPOLOGIES}/{name}/moves"


def move(name: TopologyName, epoch: Epoch) -> str:
    return f"{moves(name)}/{epoch:010d}"


def epochs(names: Iterable[str]) -> set[Epoch]:
    """The moves among the children of a `moves` path."""
    return {Epoch(int(n)) for n in names if n.isdigit()}


def move_marks(name: TopologyName, epoch: Epoch, life: Incarnation) -> str:
    return f"{move(name, epoch)}/{life.replace('/', ':')}"


def life(name: str) -> Incarnation:
    """The worker life behind the last element of a `move_marks` path."""
    return Incarnation(name.replace(":", "/"))
