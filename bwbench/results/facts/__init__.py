"""What records say beside times to accuracy: how well links did as asked, and on which machines cells ran."""

from bwbench.results.facts.links import LinkErrors, link_errors
from bwbench.results.facts.machines import Machines, machines_of

__all__ = ["LinkErrors", "Machines", "link_errors", "machines_of"]
