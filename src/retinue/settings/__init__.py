"""Every setting, typed, in one place, and where each value came from.

`tables` declares them, `declare` says what a declaration holds, `load` reads and merges their sources,
`files` finds the files, `trust` says what a repository may set, `trusted_folders` which folders are trusted,
`kept_rules` what was allowed for good in which folder.
"""

from retinue.settings.declare import Group as Group
from retinue.settings.declare import Setting as Setting
from retinue.settings.files import CONFIG_VARIABLE as CONFIG_VARIABLE
from retinue.settings.files import LISTS as LISTS
from retinue.settings.files import find_project_file as find_project_file
from retinue.settings.files import flatten as flatten
from retinue.settings.files import read_user_file as read_user_file
from retinue.settings.files import user_file as user_file
from retinue.settings.load import LoadedSettings as LoadedSettings
from retinue.settings.load import build as build
from retinue.settings.load import load as load
from retinue.settings.load import place_of as place_of
from retinue.settings.load import similar as similar
from retinue.settings.load import similar_setting as similar_setting
from retinue.settings.tables import ApprovalSettings as ApprovalSettings
from retinue.settings.tables import Ceiling as Ceiling
from retinue.settings.tables import CodeSettings as CodeSettings
from retinue.settings.tables import ContextSettings as ContextSettings
from retinue.settings.tables import DelegationSettings as DelegationSettings
from retinue.settings.tables import DelegationTool as DelegationTool
from retinue.settings.tables import ExtraSource as ExtraSource
from retinue.settings.tables import KnowledgeSettings as KnowledgeSettings
from retinue.settings.tables import LimitSettings as LimitSettings
from retinue.settings.tables import McpServerSettings as McpServerSettings
from retinue.settings.tables import McpSettings as McpSettings
from retinue.settings.tables import Price as Price
from retinue.settings.tables import ProviderSettings as ProviderSettings
from retinue.settings.tables import ServerSettings as ServerSettings
from retinue.settings.tables import Settings as Settings
from retinue.settings.tables import SheetSettings as SheetSettings
from retinue.settings.tables import TelemetrySettings as TelemetrySettings
from retinue.settings.tables import TerminalSettings as TerminalSettings
from retinue.settings.tables import UndoSettings as UndoSettings
from retinue.settings.tables import WebSettings as WebSettings
from retinue.settings.tables import WorkspaceSettings as WorkspaceSettings
from retinue.settings.tables import declared as declared
from retinue.settings.tables import tables as tables
from retinue.settings.tables import values_of as values_of
