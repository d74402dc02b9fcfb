"""The columns of a pipe, as the topology's side declares them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from elastic.api.fields import Fields
from elastic.errors import ConfigError, ExecutionError
from elastic.model.ids import DEFAULT_STREAM
from elastic.model.topology import StreamSpec
from elastic.worker.tuples.vector import schema_of

if TYPE_CHECKING:
    import pyarrow as pa


def columns(fields: Any) -> pa.Schema:
    """The Arrow schema of fields.

    Raises:
        ConfigError: One has no type, or one that no column has.
    """
    if not isinstance(fields, Fields):
        raise ConfigError(f"The columns of a pipe are declared by Fields with types, not by {fields!r}.")
    try:
        return schema_of(StreamSpec(DEFAULT_STREAM, fields.specs))
    except ExecutionError as e:
        raise ConfigError(f"The columns of a pipe need types. {e.message}", remedy=e.remedy) from None
