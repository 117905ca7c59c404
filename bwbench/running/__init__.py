"""Runs cells: a sweep decides which and where, and a cell is run whole or composed, here or on other machines.

From the outside in: ``cluster/`` other machines · ``sweep/`` plan, scheduler and executors · ``composed.py`` a cell put
together from two runs · ``run_cell.py`` one attempt at a cell · ``launch/`` its workers, in namespaces, on hosts, or
beside those that torchrun or Slurm has started. ``tuning/`` is a sweep of its own.

**What Ctrl-C does.** SIGTERM and SIGHUP do the same: ``cli/main.py`` makes a KeyboardInterrupt of all. It comes up
wherever the command waits, and every room that holds something lets go of it on its way out, in ``finally`` or at the
end of a ``with``. Nobody between keeps it, so there is one way, and it is the way of every other error too:

1. The launcher ends what trains. ``launch/local.py`` kills the workers. ``launch/ssh/launcher.py`` has every host's
   keeper end its torchrun and take back what was shaped, waits for that up to a limit, and brings the records. Where
   several cells of virtual nodes train at once, ``this_machine.py`` hands the interruption to all of them.
2. ``network/`` closes: the agent ends, and with it the namespaces, the relay and whatever still ran in them.
3. ``run_cell.py`` writes status.json: ``interrupted``, with what was recorded until then. Checkpoints stay; the next
   attempt goes on from there. A composed cell records nothing: its part is what was interrupted (``composed.py``).
4. The machine's turn (``machine_turn.py``) and the claim of the cell are given back, so that another may go on.
5. ``sweep/scheduler.py`` gives back the claims that it holds for other machines. ``cluster/ray_executor.py`` has Ray
   interrupt the cells there, each of which goes through 1 to 4 on its machine, waits for them up to a limit, and
   ends by force those that are left.
6. The command tells ``--notify``, says that the same command goes on, and ends with exit status 130.

**A second one** within ten seconds of the first says that this is under way, and changes nothing: every step above has
limits of its own, and ``timeout`` and closed terminals send their signal twice. A later one interrupts what the ending
waits for. Ctrl-\\ (SIGQUIT) ends at once, as ``kill -9`` does. A signal that was ignored when the command began stays
ignored, so ``nohup bwbench sweep … &`` survives a logout (``base/interruption.py``).

A worker that torchrun or Slurm has started gets its signal from them. Its companion (``launch/companion.py``) takes
none itself: it ends after the worker, with ``interrupted`` in status.json.

After ``kill -9`` nothing of this runs, and nothing stays either. The kernel ends the agent and with it the workers, and
the locks behind claims go with their process. The keeper of a host ends its run once it has heard nothing for a while.
A task of Ray's ends with the node that ran it. The cell has no status.json then, so it runs again.
"""
