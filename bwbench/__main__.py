"""``python -m bwbench``: the ``bwbench`` command."""

from bwbench.cli.main import main

if __name__ == "__main__":
    main()
