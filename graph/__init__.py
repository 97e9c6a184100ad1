"""State, nodes, topology, persistence and command line of the stage loop."""
