"""Where an arm and one node are equally fast by what is known without a link: samples, nodes, and bytes of a step."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bwbench.records import CellFolder
from bwbench.results.analysis.cells import setting_of_cell
from bwbench.results.analysis.crossover import scale_of
from paper.program.claim import Claim, Value
from paper.program.claimed_cells import MissingRecordsError, Records, cells_of, how_to_make
from paper.program.comparing import crossover_claim, quantities, ratio_claim


def closed_form_claim(claim: Claim, records: Records) -> Value:
    """S/(B·T) = (N·q - 1) / b of an arm with N nodes beside one node that has the same step T and batch.

    A step of the arm takes T + b·S/B, of which b·S is what a node sends in it (frames included), and teaches N batches;
    q is how many of the arm's samples one of the reference's is worth. Nothing overlaps, and no message is waited for:
    both are wrong by as much as they are so. The interval is that of q.

    Raises MissingRecordsError where bytes or the gradient's size are not known.
    """
    samples = ratio_claim(claim.model_copy(update={"kind": "ratio", "of": "samples"}), records)
    arm = cells_of(records.of(claim.experiment), claim.name, claim.experiment, claim.arm, claim.where)
    nodes, share = setting_of_cell(arm[0]).nodes, _sent(claim, arm)

    def at(worth: float | None) -> float | None:
        return None if worth is None else max(0.0, (nodes * worth - 1.0) / share)

    ends = at(samples.low), at(samples.high)
    return Value("scale", at(samples.value), samples.num, *ends, composed=samples.composed, cells=samples.cells)


def measured_beside(claim: Claim, records: Records) -> Value:
    """The crossover, in S/(B·T), that a closed form is of."""
    where = {key: asked for key, asked in claim.where.items() if key != "link.bandwidth"}
    return crossover_claim(claim.model_copy(update={"kind": "crossover", "part": "scale", "where": where}), records)


def _sent(claim: Claim, arm: Sequence[CellFolder]) -> float:
    """Bytes that a node sends in a step, over those of the gradient."""
    of_all, size = quantities(arm, "wire bytes per step"), scale_of(arm).gradient_bytes
    if not of_all or not size:
        raise MissingRecordsError(f"claim {claim.name!r}: bytes are not known; {how_to_make(claim.experiment)}")
    return statistics.fmean(of_all.values()) / setting_of_cell(arm[0]).nodes / size
