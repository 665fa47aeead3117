"""Keys of providers in the keyring of the system, each for one address.

Written by `retinue keys`, read by `providers.keys_of` for the providers that the setting `keyring` names,
once in a process. A key goes to the address that it was kept for and to no other. The keyring is the
system's: no file of ours holds a key, and a keyring that would write one in clear is refused.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from retinue.errors import ConfigError

SERVICE = "retinue"
IN_CLEAR = "keyrings.alt"
"""Keyrings of files that anybody can read who can read the file, or whose password is asked in between."""


def account(provider: str, base_url: str) -> str:
    """The name of a key in the keyring: whose it is, and where it may be sent."""
    return f"{provider} {base_url.rstrip('/')}"


def keep(name: str, secret: str) -> None:
    _asked("set_password", name, secret)
    kept.cache_clear()


def forget(name: str) -> bool:
    """False if there was none."""
    if not _asked("get_password", name):
        return False
    _asked("delete_password", name)
    kept.cache_clear()
    return True


@cache
def kept(name: str) -> str:
    """The key, or an empty text."""
    return _asked("get_password", name) or ""


def where() -> str:
    """What the keyring of this system is called."""
    return str(getattr(_keyring().get_keyring(), "name", "keyring"))


def _asked(what: str, *words: str) -> Any:
    keyring = _keyring()
    try:
        return getattr(keyring, what)(SERVICE, *words)
    except Exception as error:  # every backend has errors of its own
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(f"the keyring cannot be used: {said}", fix=_INSTEAD) from None


_INSTEAD = "unlock it, or set the key in the environment"


def _keyring() -> Any:
    try:
        import keyring
    except ImportError:
        raise ConfigError(
            "keys in the keyring need the package keyring", fix="pip install 'retinue[keys]'"
        ) from None
    backend: Any = keyring.get_keyring()
    inside = [backend, *getattr(backend, "backends", ())]
    modules = [type(each).__module__ for each in inside]
    if any(module.startswith(IN_CLEAR) for module in modules):
        raise ConfigError(
            "the keyring here is a file, not the system's: keys are not kept there",
            fix="set the key in the environment; or pip uninstall keyrings.alt",
        )
    if modules[0].endswith((".fail", ".null")):
        raise ConfigError(
            "this system has no keyring: no Secret Service, KWallet, Keychain or Credential Locker answers",
            fix="set the key in the environment",
        )
    return keyring
