"""The HTTP API and the page: `create_app` makes the application, `serve` runs it.

Talks to `Retinue` and to nothing below it. Loaded by `retinue serve` alone: FastAPI takes a while.
"""

from retinue.server.app import create_app
from retinue.server.security import Access, Role, Token
from retinue.server.serving import serve

__all__ = ["Access", "Role", "Token", "create_app", "serve"]
