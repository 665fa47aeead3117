"""The names of files that usually hold secrets. Asked by all who read or show files; looks at names alone."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

_NAMES = re.compile(
    r"""(?x)
      \.env | \.env[.~_-].* | .+\.env | \.envrc | \.flaskenv | \.renviron | \.dev\.vars(?:\..*)?
    | [._]netrc(?:[.~_-].*)? | \.authinfo(?:\.gpg)?
    | \.npmrc | \.pypirc | \.pgpass | \.my\.cnf | \.mylogin\.cnf | \.s3cfg | \.boto | \.?htpasswd
    | \.git-credentials | \.dockercfg | \.vault-token | \.terraformrc
    | terraform\.rc | credentials\.tfrc\.json | pgpass\.conf
    | \.databrickscfg | \.sentryclirc | kaggle\.json | \.secrets?
    | (?:.*[._-])?api[._-]?keys?(?:\.(?:txt|json|ya?ml|toml|ini|cfg|conf|enc))?
    | (?:.*[._-])?(?:deploy|deployment|ssh|private|signing|encryption|master|age)[._-]?keys?(?:\.txt)?
    | ssh_host_\w+_key
    | wallet\.(?:dat|json|aes|keys) | .+\.wallet | utc--.+ | mnemonics?\.txt
    | (?:seed|recovery)[._-]?(?:phrase|words|codes?|keys?)s?(?:\.txt)?
    | (?:(?:aws|gcp|google|azure)[._-]?)?credentials?
      (?:\.(?:json|ya?ml|toml|ini|txt|csv|xml|cfg|conf|properties|enc|db|bak|old))?
    | application_default_credentials\.json | client_secrets?.*\.json
    | .*service[._-]?account.*\.json
    | .*firebase[._-]adminsdk.*\.json
    | (?:gcp|gcloud|google|firebase|azure|aws|sa)[._-](?:.*[._-])?keys?\.json
    | secrets?\.(?:json|ya?ml|toml|ini|env|txt|properties|enc|cfg|conf)
    | pass(?:words?|wd|phrase)\.(?:txt|csv|tsv|json|ya?ml|ini|xlsx?|ods|enc|db)
    | [._]?vault[._-]?pass(?:word)?(?:\.txt)?
    | (?:(?:api|app|auth|oauth2?|access|refresh|bearer|bot|deploy|id|session|github|gitlab|slack)[._-])?token
      \.(?:txt|json|ya?ml|enc|pickle)
    | (?:api|auth|oauth2?|access|refresh|bearer|bot|deploy|session|github|gitlab|slack)[._-]tokens
      \.(?:txt|json|ya?ml|enc|pickle)
    | auth\.json | \.?rclone\.conf | wp-config\.php | local\.settings\.json | (?:key|keystore)\.properties
    | .*\.tfstate(?:\..*)? | .+\.tfvars(?:\.json)?
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
    r"|\.password-store/.+\.gpg|\.subversion/auth/.+|\.(?:cache/)?huggingface/token|\.fly/config\.yml"
    r"|\.config/doctl/config\.ya?ml|\.config/sops/age/keys\.txt|\.cloudflared/[^/]+\.json|\.snowsql/config)$"
)
_PATTERNS_FOR_PEOPLE = re.compile(r"(?:^|[._-])(?:example|sample|template|tmpl|tpl|dist)(?:$|[._-])")


_COPIES = re.compile(
    r"#(?P<emacs>.+)#|\.#(?P<lock>.+)|\.(?P<vim>.+)\.sw[a-p]"
    r"|(?P<older>.+?)(?:\.?~(?:\d+~)?|\.(?:bak|backup|old|orig|save|saved|swp|tmp|copy|\d+)| copy(?: \d+)?)"
)
"""What editors and people call copies of a file."""
MOST_COPIES = 4


def is_secret(path: str) -> bool:
    """Whether a file of this name usually holds secrets. Upper and lower case are the same."""
    path = unicodedata.normalize("NFKC", path).casefold().strip()
    name = path.rpartition("/")[2].rstrip(". ")
    names = list(_originals(name))
    if not name or any(each.endswith(".pub") or _PATTERNS_FOR_PEOPLE.search(each) for each in names):
        return False
    return any(map(_NAMES.fullmatch, names)) or _IN_FOLDERS.search(path) is not None


def _originals(name: str) -> Iterator[str]:
    """The name, and those of which it says that it is a copy."""
    ahead = [name]
    for _ in range(MOST_COPIES):
        if not ahead:
            return
        yield (each := ahead.pop(0))
        found = _COPIES.fullmatch(each)
        if found is not None:
            inner = next(filter(None, found.groups()))
            ahead += [inner, f".{inner}"] if found["vim"] else [inner]
