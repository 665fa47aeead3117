"""The names of files that usually hold secrets. Asked by all who read or show files; looks at names alone."""

from __future__ import annotations

import re
import unicodedata

_NAMES = re.compile(
    r"""(?x)
      \.env | \.env[.~_-].* | .+\.env | \.envrc
    | [._]netrc | \.npmrc | \.pypirc | \.pgpass | \.my\.cnf | \.s3cfg | \.boto | \.htpasswd
    | \.git-credentials | \.dockercfg | \.vault-token | \.terraformrc
    | (?:(?:aws|gcp|google|azure)[._-]?)?credentials?
      (?:\.(?:json|ya?ml|toml|ini|txt|csv|xml|cfg|conf|properties|enc|db|bak|old))?
    | application_default_credentials\.json | client_secrets?.*\.json
    | .*service[._-]?account.*\.json
    | secrets?\.(?:json|ya?ml|toml|ini|env|txt|properties|enc|cfg|conf)
    | kubeconfig(?:\..*)? | .*\.kubeconfig
    | id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?(?:[._~-].*)?
    | .*\.(?:pem|key|p12|pfx|jks|keystore|ppk|kdbx)(?:[.~](?:bak|old|orig|save|\d+)?)?
    """
)
_IN_FOLDERS = re.compile(
    r"(?:^|/)(?:\.aws/(?:credentials|config)|\.docker/config\.json|\.kube/config|\.config/gh/hosts\.yml"
    r"|\.cargo/credentials(?:\.toml)?|\.gem/credentials|\.ssh/(?!known_hosts|config$|authorized_keys)[^/]+"
    r"|\.gnupg/[^/]+)$"
)
_PATTERNS_FOR_PEOPLE = re.compile(r"(?:^|[._-])(?:example|sample|template|tmpl|tpl|dist)(?:$|[._-])")


def is_secret(path: str) -> bool:
    """Whether a file of this name usually holds secrets. Upper and lower case are the same."""
    path = unicodedata.normalize("NFKC", path).casefold().strip()
    name = path.rpartition("/")[2].rstrip(". ")
    if not name or name.endswith(".pub") or _PATTERNS_FOR_PEOPLE.search(name):
        return False
    return _NAMES.fullmatch(name) is not None or _IN_FOLDERS.search(path) is not None
