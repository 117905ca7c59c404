"""The one place in which every field of every record is defined: written by training and running, read by everybody.

``record`` says what all records have in common, ``events`` what a rank records while it trains, ``link_json`` what a
link was asked and did, ``documents`` what else stands in a file of its own, ``published`` what stands beside the cells.
docs/results-format.md describes the same fields for people.
"""

from bwbench.base.plain_data import Json as Json
from bwbench.base.plain_data import JsonObject as JsonObject
from bwbench.records.schema.composed_from import ComposedFrom as ComposedFrom
from bwbench.records.schema.composed_from import Kind as Kind
from bwbench.records.schema.documents import OUTCOMES as OUTCOMES
from bwbench.records.schema.documents import PARTS as PARTS
from bwbench.records.schema.documents import CellRecord as CellRecord
from bwbench.records.schema.documents import Composed as Composed
from bwbench.records.schema.documents import CurvePoint as CurvePoint
from bwbench.records.schema.documents import Digest as Digest
from bwbench.records.schema.documents import Environment as Environment
from bwbench.records.schema.documents import GitState as GitState
from bwbench.records.schema.documents import LedgerSummary as LedgerSummary
from bwbench.records.schema.documents import Others as Others
from bwbench.records.schema.documents import Resumed as Resumed
from bwbench.records.schema.documents import Status as Status
from bwbench.records.schema.documents import TargetArrival as TargetArrival
from bwbench.records.schema.documents import TrialSummary as TrialSummary
from bwbench.records.schema.events import Carried as Carried
from bwbench.records.schema.events import CheckpointHead as CheckpointHead
from bwbench.records.schema.events import CheckpointPlace as CheckpointPlace
from bwbench.records.schema.events import Chosen as Chosen
from bwbench.records.schema.events import End as End
from bwbench.records.schema.events import Ending as Ending
from bwbench.records.schema.events import Evaluation as Evaluation
from bwbench.records.schema.events import Event as Event
from bwbench.records.schema.events import Extent as Extent
from bwbench.records.schema.events import LedgerParts as LedgerParts
from bwbench.records.schema.events import RankError as RankError
from bwbench.records.schema.events import Resume as Resume
from bwbench.records.schema.events import Start as Start
from bwbench.records.schema.events import Step as Step
from bwbench.records.schema.events import WireTraffic as WireTraffic
from bwbench.records.schema.events import event_of as event_of
from bwbench.records.schema.events import parse_event as parse_event
from bwbench.records.schema.link_json import Applied as Applied
from bwbench.records.schema.link_json import ComparedClock as ComparedClock
from bwbench.records.schema.link_json import Emulator as Emulator
from bwbench.records.schema.link_json import Lateness as Lateness
from bwbench.records.schema.link_json import LinkRecord as LinkRecord
from bwbench.records.schema.link_json import MeasuredPair as MeasuredPair
from bwbench.records.schema.link_json import Measurement as Measurement
from bwbench.records.schema.link_json import Wire as Wire
from bwbench.records.schema.published import PlanAbout as PlanAbout
from bwbench.records.schema.published import PlannedEntry as PlannedEntry
from bwbench.records.schema.published import PlanOrder as PlanOrder
from bwbench.records.schema.published import PlanRecord as PlanRecord
from bwbench.records.schema.published import PublishedHead as PublishedHead
from bwbench.records.schema.published import PublishedPlan as PublishedPlan
from bwbench.records.schema.published import PublishedRun as PublishedRun
from bwbench.records.schema.record import Record as Record
from bwbench.records.schema.record import finite as finite
from bwbench.records.schema.record import parse_content as parse_content
