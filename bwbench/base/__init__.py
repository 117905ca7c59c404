"""What every package may use: errors, units, components and where they are found, reading YAML and text."""
