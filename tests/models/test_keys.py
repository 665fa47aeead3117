"""Several keys of one provider."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from retinue.models.keys import Key, KeyPool, find_keys


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def secret(key: Key | None) -> str:
    assert key is not None
    return key.secret


def test_the_first_key_is_used_until_it_is_limited() -> None:
    pool = KeyPool(("a", "b"), clock=Clock())
    assert [secret(pool.take()) for _ in range(3)] == ["a", "a", "a"]


def test_a_resting_key_is_left_alone_and_comes_back() -> None:
    clock = Clock()
    pool = KeyPool(("a", "b"), clock=clock)
    pool.rest(pool.take(), 30)
    assert secret(pool.take()) == "b"
    assert pool.wait() == 0
    pool.rest(pool.take(), 10)
    assert pool.wait() == 10
    clock.now += 11
    assert secret(pool.take()) == "b"
    clock.now += 20
    assert secret(pool.take()) == "a", "limited longer ago than b"


def test_when_all_rest_the_one_that_is_free_first_is_taken() -> None:
    pool = KeyPool(("a", "b", "c"), clock=Clock())
    for seconds in (30, 5, 20):
        pool.rest(pool.take(), seconds)
    assert secret(pool.take()) == "b"


def test_an_empty_pool_gives_no_key_and_never_waits() -> None:
    pool = KeyPool(())
    assert pool.take() is None
    pool.rest(None, 100)
    assert pool.wait() == 0


def test_keys_come_from_commas_and_numbered_variables() -> None:
    environ = {"K": "one, two,,", "K_2": "three", "K_3": "one", "K_5": "not reached", "L": "four"}
    assert find_keys(environ, ("K", "L")) == ("one", "two", "three", "four")
    assert find_keys({}, ("K",)) == ()
    assert find_keys({"K_2": "second alone"}, ("K",)) == ("second alone",)


def test_a_key_appears_in_no_repr() -> None:
    pool = KeyPool(("sk-very-secret-key",), provider="openai")
    assert "secret" not in f"{pool!r} {pool.take()!r} {pool}"


@given(st.text(min_size=8).filter(lambda s: s.strip() == s and "*" not in s), st.text(), st.text())
def test_a_key_is_taken_out_of_any_text(key: str, before: str, after: str) -> None:
    assert key not in KeyPool((key,)).mask(before.replace(key, "") + key + after.replace(key, "")).replace(
        "***", ""
    )


def test_a_key_too_short_to_be_one_makes_no_holes_in_words() -> None:
    assert KeyPool(("s",)).mask("there is no host") == "there is no host"


def test_keys_of_others_are_recognised_by_their_looks() -> None:
    mask = KeyPool(()).mask
    assert (
        mask("Incorrect API key provided: sk-proj-abc********wxyz. See")
        == "Incorrect API key provided: *** See"
    )
    assert "AIza" not in mask("key AIzaSyA1234567890abcdefg is bad")
    assert mask("skip the skeleton key, please") == "skip the skeleton key, please"
