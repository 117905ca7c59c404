"""From a YAML file to the list of cells: the configuration and the plan."""
