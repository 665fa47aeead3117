"""Keys of providers in the keyring of the system, each for one address.

Written by `retinue keys`, read by `providers.keys_of` for the providers that the setting `keyring` names,
once in a process. A key goes to the address that it was kept for and to no other. The keyring is the
system's: no file of ours holds a key, and a keyring that would write one in clear is refused. A keyring may
wait for a person to unlock it: who has an event loop calls `look_up` in a thread first.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from retinue.errors import ConfigError

SERVICE = "retinue"
IN_CLEAR = "keyrings.alt"
"""Keyrings of files that anybody can read who can read the file, or whose password is asked in between."""
_found: dict[str, str | ConfigError] = {}
"""What the keyring has said in this process, by account; or why it has not."""
_asking = threading.Lock()


def account(provider: str, base_url: str) -> str:
    """The name of a key in the keyring: whose it is, and where it may be sent."""
    return f"{provider} {base_url.rstrip('/')}"


def keep(provider: str, base_url: str, secret: str) -> None:
    """Keep a key, and beside it, under the name of the provider, for which addresses there are keys."""
    known = addresses(provider)
    _asked("set_password", account(provider, base_url), secret)
    _asked("set_password", provider, " ".join(dict.fromkeys((*known, base_url.rstrip("/")))))
    _found.clear()


def addresses(provider: str) -> list[str]:
    """The addresses that keys of a provider are kept for."""
    return str(_asked("get_password", provider) or "").split()


def forget(provider: str, *also: str) -> list[str]:
    """Take out every key of a provider, `also` for these addresses. Returns those that there was one for."""
    known = list(dict.fromkeys((*addresses(provider), *(each.rstrip("/") for each in also))))
    gone = [each for each in known if _asked("get_password", account(provider, each))]
    for name in (*(account(provider, each) for each in gone), *([provider] if addresses(provider) else ())):
        _asked("delete_password", name)
    _found.clear()
    return gone


def kept(name: str) -> str:
    """The key of an account, or an empty text. Raises where the keyring could not be used."""
    with _asking:
        found = _found[name] if name in _found else _look(name)
    if isinstance(found, ConfigError):
        raise ConfigError(found.message, fix=found.fix)
    return found


def look_up(names: Iterable[str]) -> None:
    """Ask for keys that are not known yet, so that `kept` need not wait. What goes wrong, `kept` raises."""
    for name in names:
        with _asking:
            if not isinstance(_found.get(name), str) or not _found[name]:
                _look(name)


def all_kept(providers: Iterable[str]) -> list[str]:
    """Every key of these providers, whatever address it is for."""
    return [kept(account(provider, each)) for provider in providers for each in addresses(provider)]


def _look(name: str) -> str | ConfigError:
    try:
        _found[name] = str(_asked("get_password", name) or "")
    except ConfigError as error:
        _found[name] = error
    return _found[name]


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
