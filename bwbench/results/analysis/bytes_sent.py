"""Bytes on the wire at each evaluation of a run: what the nodes had paid for the accuracy that they then had."""

from __future__ import annotations

import pandas as pd

OF_PAYLOAD, OF_STEPS = "payload", "steps"


def with_wire_bytes(curves: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """The evaluations with two columns more: ``wire_bytes`` that all nodes sent until then, and where they are from.

    The wire was counted over the whole run. At an evaluation it is that count by the share of the payload that was
    sent until then (``bytes_from`` is ``payload``); where records do not hold that, by the share of the steps
    (``steps``), as if every step sent the same. NaN where nothing was counted.

    Args:
        curves: rows of ``tables.curves_table``.
        cells: rows of ``tables.cells_table``, of the same cells.
    """
    totals = cells[["id", "wire_bytes", "payload_bytes", "steps"]].drop_duplicates("id")
    totals = totals.rename(columns={"wire_bytes": "whole_wire", "payload_bytes": "whole_payload"})
    joined = curves.merge(totals.rename(columns={"steps": "whole_steps"}), on="id", how="left", validate="many_to_one")
    numbers = joined[["whole_wire", "whole_payload", "whole_steps"]].apply(pd.to_numeric)
    payload = (
        pd.to_numeric(joined["payload_bytes"]) if "payload_bytes" in joined else pd.Series(float("nan"), joined.index)
    )
    recorded = payload.notna().to_numpy() & (numbers["whole_payload"] > 0).to_numpy()
    by_payload = (payload / numbers["whole_payload"]).clip(upper=1.0)
    share = by_payload.where(recorded, joined["step"] / numbers["whole_steps"])
    sent = joined.drop(columns=["whole_wire", "whole_payload", "whole_steps"])
    sent["wire_bytes"] = numbers["whole_wire"] * share
    sent["bytes_from"] = [OF_PAYLOAD if known else OF_STEPS for known in recorded]
    return sent
