"""Passwords in addresses, however they are written, are not shown."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.masking import has_login, is_masked, masked, without_login


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:hunter2@host/db", "postgresql://me:***@host/db"),
        ("http://hunter2@proxy:3128", "http://***@proxy:3128"),
        ("https://u:p@hunter2@s.corp", "https://u:***@s.corp"),
        ("https://u:hunter2/3@s.corp/x", "https://u:***@s.corp/x"),
        ("https://:hunter2@h", "https://***@h"),
        ("https://a-very-long-token-hunter2:x@h", "https://***@h"),
        ("postgresql://h/db?user=me&password=hunter2&x=1", "postgresql://h/db?user=me&password=***&x=1"),
        ("host=h password='hunter 2' dbname=x", "host=h password=*** dbname=x"),
        ("https://h/v1?api_key=hunter2", "https://h/v1?api_key=***"),
        ("cannot reach http://u:hunter2@h:1/v1: refused", "cannot reach http://u:***@h:1/v1: refused"),
    ],
)
def test_a_password_becomes_stars(text: str, shown: str) -> None:
    assert masked(text) == shown
    assert is_masked(shown)
    assert masked({"a": [text, {"b": (text, 1)}]}) == {"a": [shown, {"b": [shown, 1]}]}


@pytest.mark.parametrize(
    "text",
    [
        "https://medium.com/@bob",
        "http://h:8080/@bob",
        "http://h:8080",
        "https://h/?q=a@b",
        "me@host",
        "a: //b@c",
    ],
)
def test_what_holds_no_password_stays_as_it_is(text: str) -> None:
    assert masked(text) == text
    assert not has_login(text)


@given(st.text(min_size=1), st.text(min_size=1), st.sampled_from(["http", "postgresql", "socks5"]))
def test_no_login_survives_in_any_place(name: str, password: str, scheme: str) -> None:
    login = "".join(c for c in f"{name}:{password}secret" if not c.isspace() and c not in "/?#")
    value: Any = {"deep": [f"{scheme}://{login}@host.example/x"]}
    assert "secret" not in str(masked(value))


@pytest.mark.parametrize(
    ("address", "cited"),
    [
        ("https://bob:hunter2@wiki.corp/wiki/A", "https://wiki.corp/wiki/A"),
        ("https://u:p@hunter2@wiki.corp:8443", "https://wiki.corp:8443"),
        ("https://medium.com/@bob", "https://medium.com/@bob"),
        ("https://h/?q=a@b", "https://h/?q=a@b"),
    ],
)
def test_an_address_is_cited_without_its_login(address: str, cited: str) -> None:
    assert without_login(address) == cited
