"""Standard faces of the lake: a Gymnasium environment and a PettingZoo parallel environment.

Importing this package registers the Gymnasium ids, and ``gymnasium.make`` can import it by itself:

```python
gymnasium.make("envsim.faces:envsim/Lake-v0")             # two agents on FrozenLake's 4x4 map
gymnasium.make("envsim.faces:envsim/Lake8x8-v0")          # and on its 8x8 map
gymnasium.make("envsim.faces:envsim/GeneratedLake-v0")    # a new certified instance at every reset
```

Needs the extra ``gym`` (``pip install 'envwright[gym]'``).
"""

from gymnasium.envs.registration import register

_ENTRY = "envsim.faces.gymnasium_env:LakeEnv"

register("envsim/Lake-v0", entry_point=_ENTRY, max_episode_steps=100)
register("envsim/Lake8x8-v0", entry_point=_ENTRY, max_episode_steps=200, kwargs={"map_name": "8x8"})
register("envsim/GeneratedLake-v0", entry_point=_ENTRY, max_episode_steps=100, kwargs={"config": {}})
