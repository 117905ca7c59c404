"""A table: what torch's DDP does and what ``bwbench.distribute`` does with what users' scripts do.

Every case is a script in real processes, one a rank, under DDP and under ``distribute``. It is compared with the plain
truth: one process that forms the mean of all ranks' gradients with nothing but torch.

- right: parameters are those of the truth on all ranks, or the same exception as in plain torch
- refused: an exception on all ranks that says what is wrong
- warned: a warning that says what is wrong
- ended: a rank was lost, and all others say so in time
- raises: some other exception, or not on all ranks
- wrong: trains on, off from the truth, or unequal, without a word
- aborted, hangs: a process died of a signal, or had to be killed after a minute

Exit status 1 where a case of ours is neither right nor refused (nor, where it is right, ended or warned).

Usage: python benchmarks/library_table.py [--ranks 2 4] [--only WORDS …] [--case NAME …] [--group GROUP …] [--quick]
                                          [--arm bwbench] [--method NAME] [--json FILE] [--markdown FILE] [--list]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TORCH_CPP_LOG_LEVEL": "ERROR"}

import torch
import torch._dynamo  # before the first fork: importing takes longer than most cases
from library_table_parts import (
    cases_loops,
    cases_models,
    cases_optimizers,
    cases_parameters,
    cases_ranks,
    cases_scaling,
    cases_state,
)  # fmt: skip
from library_table_parts.processes import run
from library_table_parts.rig import BWBENCH, CASES, DDP, METHOD, TRUTH, Case
from library_table_parts.verdicts import Outcome, good, outcome

from bwbench import distribute

GROUPS = (cases_parameters, cases_optimizers, cases_loops, cases_scaling, cases_models, cases_state, cases_ranks)
assert distribute is not None
QUICK = ("frozen later", "tied", "other shape", "infinity on one rank", "deepcopy")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--only", nargs="+", default=[], help="cases whose name contains one of these")
    parser.add_argument("--case", nargs="+", default=[], help="cases of these names")
    parser.add_argument("--group", nargs="+", default=[])
    parser.add_argument("--method", default=METHOD, help=f"of the cases that take {METHOD!r}; another without loss")
    parser.add_argument("--arm", choices=[DDP, BWBENCH], help="one library alone")
    parser.add_argument("--json", "--record", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--quick", action="store_true", help="a few cases on 2 ranks")
    parser.add_argument("--list", action="store_true", help="names of the cases")
    parser.add_argument("--show", action="store_true", help="the last words of every process")
    options = parser.parse_args()
    wanted = options.only or (list(QUICK) if options.quick else [""])
    cases = [
        replace(case, method=options.method) if case.method == METHOD else case
        for case in CASES.values()
        if any(word in case.name for word in wanted)
        and (not options.group or case.group in options.group)
        and (not options.case or case.name in options.case)
    ]
    if options.list:
        print(*(f"{case.group:<12}{case.name}" for case in cases), sep="\n")
        return 0
    torch.set_num_threads(1)
    rows = []
    for num_ranks in [2] if options.quick else options.ranks:
        for case in cases:
            rows.append(row(case, num_ranks, [options.arm] if options.arm else [DDP, BWBENCH], show=options.show))
            print(line(rows[-1]), flush=True)
    bad = [found for found in rows if found.get("good") is False]
    print(f"{len(cases)} cases, {len(rows)} rows; {BWBENCH}: {len(bad)} not right and not refused by name")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"torch": torch.__version__, "rows": rows}, indent=1) + "\n")
    if options.markdown:
        options.markdown.write_text(markdown(rows))
    return 1 if bad else 0


def row(case: Case, num_ranks: int, arms: list[str], *, show: bool) -> dict[str, Any]:
    """One case on so many ranks."""
    began_s = time.monotonic()
    truth = run(case, TRUTH, num_ranks)[0] if case.truth else None
    found: dict[str, Any] = {"case": case.name, "group": case.group, "ranks": num_ranks}
    if truth is not None and truth.report is None:
        raise SystemExit(f"the truth of {case.name!r} cannot be found: {truth.last_words}")
    if truth is not None and truth.report is not None and truth.report.error:
        found["truth"] = truth.report.error
    for arm in arms:
        ends = run(case, arm, num_ranks)
        if show:
            for rank, end in enumerate(ends):
                print(f"--- {arm} rank {rank}: {end.report and end.report.error} {end.last_words}")
        result = outcome(case, truth, ends)
        found[arm] = {"word": result.word, "detail": result.detail}
        if arm == BWBENCH:
            found["good"] = good(case, result)
    return found | {"seconds": round(time.monotonic() - began_s, 1)}


def line(found: dict[str, Any]) -> str:
    """For people at a terminal."""
    arms = " · ".join(f"{arm} {Outcome(**found[arm])}" for arm in (DDP, BWBENCH) if arm in found)
    verdict = {True: "good", False: "BAD", None: ""}[found.get("good")]
    return f"{found['ranks']} ranks · {found['case']} · {arms} · {verdict} ({found['seconds']} s)"


def markdown(rows: list[dict[str, Any]]) -> str:
    """A table a number of ranks."""
    parts = []
    for num_ranks in dict.fromkeys(found["ranks"] for found in rows):
        parts.append(f"## {num_ranks} ranks\n\n| case | torch DDP | bwbench | verdict |\n|---|---|---|---|")
        for found in rows:
            if found["ranks"] == num_ranks:
                cells = [str(Outcome(**found[arm])).replace("|", "/") if arm in found else "" for arm in (DDP, BWBENCH)]
                verdict = {True: "good", False: "**bad**", None: ""}[found.get("good")]
                parts.append(f"| {found['case']} | {cells[0]} | {cells[1]} | {verdict} |")
        parts.append("")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
