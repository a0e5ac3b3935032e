"""Checks documents against JSON schemas."""

from typing import Any


def validator(schema: dict[str, Any], *referenced: dict[str, Any]) -> Any:
    """A validator of a schema, which is checked itself, and of those that it refers to by their `$id`."""
    # Loading it builds forty parsers of addresses, 3 s: only for the workers that have such a test.
    from jsonschema import Draft202012Validator
    from referencing import Registry, Resource

    Draft202012Validator.check_schema(schema)
    registry: Any = Registry().with_resources((one["$id"], Resource.from_contents(one)) for one in referenced)
    return Draft202012Validator(schema, registry=registry)
