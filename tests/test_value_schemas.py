"""Values held against schemas: the short way for objects of texts says nothing else than the library does."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from retinue.delegate.children import PROMPT_SCHEMA
from retinue.tools.schemas import schema_problems

NAMES = st.sampled_from(["prompt", "label", "other"])
FIELDS = st.fixed_dictionaries(
    {"type": st.sampled_from(["string", "integer", ["string", "null"]])},
    optional={
        "minLength": st.integers(0, 3),
        "maxLength": st.integers(0, 3),
        "description": st.just("d"),
        "enum": st.just(["a", "ab"]),
    },
)
SCHEMAS = st.fixed_dictionaries(
    {"type": st.sampled_from(["object", "array"]), "properties": st.dictionaries(NAMES, FIELDS)},
    optional={
        "required": st.lists(NAMES, unique=True),
        "additionalProperties": st.sampled_from([True, False, {"type": "integer"}]),
        "minProperties": st.integers(0, 3),
    },
)
VALUES = st.one_of(
    st.dictionaries(NAMES, st.one_of(st.text(max_size=4), st.integers(), st.none())), st.text(), st.none()
)


@given(schema=SCHEMAS, value=VALUES)
def test_a_value_fits_if_the_library_says_so(schema: dict[str, Any], value: Any) -> None:
    assert (schema_problems(value, schema) == []) == Draft202012Validator(schema).is_valid(value)


def test_what_an_agent_is_asked_needs_no_library() -> None:
    code = (
        "import sys\nfrom retinue.delegate.children import PROMPT_SCHEMA\n"
        "from retinue.tools.schemas import schema_problems\n"
        "assert schema_problems({'prompt': 'look'}, PROMPT_SCHEMA) == []\n"
        "print('jsonschema' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    assert schema_problems({"prompt": ""}, PROMPT_SCHEMA)
    assert schema_problems({}, PROMPT_SCHEMA)
    assert schema_problems({"prompt": "x", "mode": "y"}, PROMPT_SCHEMA)
