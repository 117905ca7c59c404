"""Claims about records: what a text says of them, evaluated and judged, so that no sentence outlives its number."""

from paper.program.claims.evaluate import evaluate
from paper.program.claims.judge import judge
from paper.program.claims.spec import Claim, load_claims
from paper.program.claims.value import Value

__all__ = ["Claim", "Value", "evaluate", "judge", "load_claims"]
