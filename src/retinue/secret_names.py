"""The names of files that usually hold secrets. Asked by all who read or show files; looks at names alone."""

from __future__ import annotations

import re
import unicodedata

_NAMES = re.compile(
    r"""(?x)
      \.env | \.env[.~_-].* | .+\.env | \.envrc
    | [._]netrc(?:[.~_-].*)? | \.authinfo(?:\.gpg)?
    | \.npmrc | \.pypirc | \.pgpass | \.my\.cnf | \.s3cfg | \.boto | \.htpasswd
    | \.git-credentials | \.dockercfg | \.vault-token | \.terraformrc
    | (?:(?:aws|gcp|google|azure)[._-]?)?credentials?
      (?:\.(?:json|ya?ml|toml|ini|txt|csv|xml|cfg|conf|properties|enc|db|bak|old))?
    | application_default_credentials\.json | client_secrets?.*\.json
    | .*service[._-]?account.*\.json
    | .*firebase[._-]adminsdk.*\.json
    | (?:gcp|gcloud|google|firebase|azure|aws|sa)[._-](?:.*[._-])?keys?\.json
    | secrets?\.(?:json|ya?ml|toml|ini|env|txt|properties|enc|cfg|conf|(?:auto\.)?tfvars)
    | pass(?:words?|wd|phrase)\.(?:txt|csv|tsv|json|ya?ml|ini|xlsx?|ods|enc|db)
    | [._]?vault[._-]?pass(?:word)?(?:\.txt)?
    | (?:(?:api|app|auth|oauth2?|access|refresh|bearer|bot|deploy|id|session|github|gitlab|slack)[._-])?token
      \.(?:txt|json|ya?ml|enc|pickle)
    | (?:api|auth|oauth2?|access|refresh|bearer|bot|deploy|session|github|gitlab|slack)[._-]tokens
      \.(?:txt|json|ya?ml|enc|pickle)
    | auth\.json | \.?rclone\.conf | wp-config\.php | local\.settings\.json | (?:key|keystore)\.properties
    | .*\.tfstate(?:\..*)?
    | (?:.*[._-])?(?:private|secret)(?:[._-]?keys?)?\.(?:asc|gpg|pgp|der|jwk)
    | private[._-]?key\.(?:txt|json|xml)
    | \.(?:bash|zsh|sh|psql|mysql|sqlite|python|rediscli|node_repl|irb|mongo)_history
    | kubeconfig(?:\..*)? | .*\.kubeconfig
    | id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?(?:[._~-].*)?
    | .*\.(?:pem|key|p12|pfx|jks|keystore|ppk|kdbx?|keytab|ovpn|1pif)(?:[.~](?:bak|old|orig|save|\d+)?)?
    """
)
_IN_FOLDERS = re.compile(
    r"(?:^|/)(?:\.aws/(?:credentials|config)|\.docker/config\.json|\.kube/config|\.config/gh/hosts\.yml"
    r"|\.cargo/credentials(?:\.toml)?|\.gem/credentials|\.ssh/(?!known_hosts|config$|authorized_keys)[^/]+"
    r"|\.gnupg/[^/]+|\.m2/settings(?:-security)?\.xml|\.gradle/gradle\.properties|\.oci/config"
    r"|\.config/gcloud/(?:.*/)?[^/]*(?:\.json|\.db|adc)|\.azure/[^/]+\.json|\.config/(?:hub|glab-cli/config\.yml)"
    r"|\.password-store/.+\.gpg|\.subversion/auth/.+)$"
)
_PATTERNS_FOR_PEOPLE = re.compile(r"(?:^|[._-])(?:example|sample|template|tmpl|tpl|dist)(?:$|[._-])")


def is_secret(path: str) -> bool:
    """Whether a file of this name usually holds secrets. Upper and lower case are the same."""
    path = unicodedata.normalize("NFKC", path).casefold().strip()
    name = path.rpartition("/")[2].rstrip(". ")
    if not name or name.endswith(".pub") or _PATTERNS_FOR_PEOPLE.search(name):
        return False
    return _NAMES.fullmatch(name) is not None or _IN_FOLDERS.search(path) is not None
