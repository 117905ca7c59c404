"""Claims about records: what a text says of them, evaluated and judged, so that no sentence outlives its number."""

from bwbench.report.claims.evaluate import evaluate
from bwbench.report.claims.judge import judge
from bwbench.report.claims.spec import Claim, load_claims
from bwbench.report.claims.value import Value

__all__ = ["Claim", "Value", "evaluate", "judge", "load_claims"]
