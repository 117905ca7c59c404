"""Where a user's loop is within an optimizer step."""

from __future__ import annotations

import enum


class Moment(enum.Enum):
    """Where the loop is within an optimizer step."""

    BETWEEN = "between two steps"
    BEGUN = "gradients are being collected"
    AVERAGED = "the gradients are those to step with"
    SET_ASIDE = "the same, and the step has been taken for skipped so far"
