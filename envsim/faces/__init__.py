"""Standard faces of the lake: a Gymnasium environment and a PettingZoo environment.

Importing this package registers the ids below with both libraries; ``gymnasium.make`` imports it by itself if the name
of the package stands before the id.

| id | what it plays |
|---|---|
| ``envsim/Lake-v0`` | two agents on FrozenLake's 4x4 map, or what ``instance``, ``map_name`` or ``config`` say |
| ``envsim/Lake8x8-v0`` | two agents on FrozenLake's 8x8 map |
| ``envsim/GeneratedLake-v0`` | a new certified instance at every reset, 3x3 to 10x10 |

```python
gymnasium.make("envsim.faces:envsim/Lake-v0", map_name="passing", render_mode="ansi")

import envsim.faces
pettingzoo.make("parallel", "envsim/Lake-v0")
```

Needs the extra ``gym``: ``pip install 'envwright[gym]'``.
"""

from typing import Any

try:
    import gymnasium
    import pettingzoo
except ImportError as error:
    raise ImportError("the faces need gymnasium and pettingzoo: pip install 'envwright[gym]'") from error

from envsim.faces.source import MAPS

_IDS: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("envsim/Lake-v0", 100, {}),
    ("envsim/Lake8x8-v0", 200, {"map_name": "8x8"}),
    ("envsim/GeneratedLake-v0", 100, {"config": {}}),
)

for _id, _steps, _arguments in _IDS:
    gymnasium.register(_id, "envsim.faces.gymnasium_env:LakeEnv", max_episode_steps=_steps, kwargs=_arguments)
    pettingzoo.register(
        "parallel", _id, "envsim.faces.pettingzoo_env:parallel_env", max_cycles=_steps, kwargs=_arguments
    )
    pettingzoo.register("aec", _id, "envsim.faces.pettingzoo_env:env", max_cycles=_steps, kwargs=_arguments)

__all__ = ["MAPS"]
