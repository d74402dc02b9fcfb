"""Every error that elastic raises, as one tree.

    ElasticError
    ├── TopologyError              the topology itself is wrong: nothing was started
    │   ├── UnknownComponent       a grouping names a component that does not exist
    │   ├── UnknownStream          a grouping names a stream that its source does not declare
    │   ├── UnknownField           a fields grouping names a field that the stream does not have
    │   ├── CyclicTopology         the streams form a circle
    │   ├── InvalidParallelism     more executors than tasks, or fewer than one
    │   └── NotShippable           a component or its code cannot be sent to a worker
    ├── ConfigError                an option or setting has a value that it cannot have
    ├── ExecutionError             user code raised while the topology ran
    │   ├── TupleTooLarge          one tuple is larger than the largest frame
    │   └── Unmovable              a task that cannot be moved, however often it is tried
    ├── RequestError               a request to a running cluster cannot be carried out
    │   ├── NotFound               no such topology, component, worker or node
    │   ├── AlreadyExists          a topology with that name is running
    │   ├── Refused                the request is understood, and not possible in this state
    │   └── DeadlineExceeded       it did not happen in the time given
    ├── Unavailable                a service cannot be reached
    │   ├── NotConnected           coordination is out of reach: nothing is known
    │   └── SessionExpired         the session is gone, and with it what was ephemeral
    ├── Conflict                   somebody else changed it first: read again
    │   └── Superseded             a newer epoch owns it: this writer must stop
    ├── ProtocolViolation          a role of a move met what its state forbids: a fault in elastic
    └── EnvironmentProblem         the machine lacks something (Java, a free port, a package)

Each message says what happened, to which topology, component or task, and what to do about it.
`exit_code` is what the command line ends with; the codes are documented in `docs/cli.md` and stay as they are.
"""

from __future__ import annotations


class ElasticError(Exception):
    """The root of all errors of elastic.

    Args:
        message: What happened, and to what.
        remedy: What the reader can do about it, or an empty string.
    """

    exit_code = 1

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message if not remedy else f"{message}\n  {remedy}")
        self.message = message
        self.remedy = remedy

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.remedy)


def _rebuild(kind: type[ElasticError], message: str, remedy: str) -> ElasticError:
    return kind(message, remedy=remedy)


class TopologyError(ElasticError):
    exit_code = 3


class UnknownComponent(TopologyError):
    pass


class UnknownStream(TopologyError):
    pass


class UnknownField(TopologyError):
    pass


class CyclicTopology(TopologyError):
    pass


class InvalidParallelism(TopologyError):
    pass


class NotShippable(TopologyError):
    pass


class ConfigError(ElasticError):
    exit_code = 2


class ExecutionError(ElasticError):
    exit_code = 10


class TupleTooLarge(ExecutionError):
    pass


class Unmovable(ExecutionError):
    """A task that cannot be moved, however often it is tried."""


class RequestError(ElasticError):
    exit_code = 6


class NotFound(RequestError):
    exit_code = 4


class AlreadyExists(RequestError):
    exit_code = 5


class Refused(RequestError):
    exit_code = 6


class DeadlineExceeded(RequestError):
    exit_code = 8


class Unavailable(ElasticError):
    exit_code = 7


class Begun(Unavailable):
    """What was asked for may have been done, or will be: whoever must not ask twice looks first."""

    LOOK = "Look with: elastic list, elastic moves, elastic nodes list."


class Ended(Unavailable):
    """The cluster has been ended: nobody will answer any more."""


class NotConnected(Unavailable):
    pass


class SessionExpired(Unavailable):
    pass


class Conflict(ElasticError):
    exit_code = 9


class Superseded(Conflict):
    pass


class ProtocolViolation(ElasticError):
    pass


class EnvironmentProblem(ElasticError):
    exit_code = 11
