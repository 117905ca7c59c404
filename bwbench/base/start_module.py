"""Starting a module of this package in a process of its own, without the folder in which the user happens to stand.

``python -m`` and ``python -c`` look for every module in the working directory first. An ordinary ``random.py`` beside
an experiment's file would then be taken for Python's, and a ``json.py`` in a folder that somebody sent would run.
Python has a switch for it from 3.11 on only (``-P``), and ``-I`` leaves out PYTHONPATH and the user's site too. So this
file is run as a script, by its path: it takes its own folder off ``sys.path`` before anything else is imported, and
becomes the module that is named first. It finds the very package that it lies in, installed or not.

Where the path is not known, on another host, ``REMOTELY`` does the same as an argument of ``python -c``.
``bwbench/__init__.py`` serves those who type ``python -m bwbench.…`` themselves.
"""

import sys

WITHOUT_CALLERS_FOLDER = "import sys; sys.path[:] = filter(None, sys.path)"  # at the beginning of code for `python -c`
REMOTELY = f"{WITHOUT_CALLERS_FOLDER}; from bwbench.base.start_module import become; become()"


def module_command(module: str) -> list[str]:
    """Python and the arguments with which it becomes ``module``; those of the module go after them."""
    return [sys.executable, *module_script(module)]


def module_script(module: str) -> list[str]:
    """As above, for what brings a Python of its own, as torchrun does."""
    from pathlib import Path  # not before the path is clean

    return [str(Path(__file__).resolve()), module]


def become() -> None:
    """Run the module that the first argument names as the program, with the arguments after it."""
    import importlib.util  # not before the path is clean
    import os  # not before the path is clean
    import runpy  # not before the path is clean

    if importlib.util.find_spec(sys.argv[1]) is None:
        sys.exit(f"{sys.executable}: No module named {sys.argv[1]}")  # as Python says it
    os.environ["PYTHONSAFEPATH"] = "1"  # for a Python that it starts in turn, as multiprocessing does
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _load_own_package() -> None:
    """Import ``bwbench`` from where this file lies, whatever else is called so."""
    import importlib.util  # not before the path is clean
    import os  # not before the path is clean

    folder = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    spec = importlib.util.spec_from_file_location(
        "bwbench", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None and spec.loader is not None, "a file that ends in .py has a loader"
    package = importlib.util.module_from_spec(spec)
    sys.modules["bwbench"] = package
    spec.loader.exec_module(package)


if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # the folder of this file
    _load_own_package()
    become()
