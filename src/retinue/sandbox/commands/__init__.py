"""How commands are started, sealed off and ended.

`launch` is the side of Retinue. It starts one small process, the spawner, which holds no secrets and forks a
supervisor for every command. The supervisor ends all that its command started, also when Retinue is killed.

The spawner loads this package in a bare interpreter: none but `launch`, `view` and `gitsettings` may
import anything beyond the standard library, or what is slow to load.
"""
