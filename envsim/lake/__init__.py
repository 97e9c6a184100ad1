"""MAPF-FrozenLake: several agents on a grid with holes, planned in one answer, graded exactly."""
