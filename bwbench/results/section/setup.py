"""What was run: the paragraph that a reader needs to run it again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bwbench.base.plain_data import mapping_at
from bwbench.base.step_time import recorded_step_times
from bwbench.base.units import DURATION
from bwbench.records import CellFolder
from bwbench.results.analysis.arm_labels import arm_labels
from bwbench.results.analysis.caveats import composed_errors, machines_of
from bwbench.results.analysis.cells import (
    DONE,
    dilation_of,
    is_composed,
    is_reference,
    setting_of,
    shrink_of,
    state_of,
    value_at,
)
from bwbench.results.analysis.results import Results
from bwbench.results.figures.captions import target_words
from bwbench.results.section.content import Block, Paragraph, column_title
from bwbench.results.text import Number, Phrase, joined, percent, phrase


def setup_blocks(groups: Sequence[Results], folders: Sequence[CellFolder]) -> list[Block]:
    """Nodes, model, data, links, arms and seeds; how time was taken; machines and versions."""
    sentences = [_what(groups, folders), _links(folders), _arms(folders), *_clock(folders), *_composed(folders)]
    return [Paragraph(_prose(sentences)), Paragraph(_prose(_machines(folders)))]


def _what(groups: Sequence[Results], folders: Sequence[CellFolder]) -> Phrase:
    settings = [setting_of(folder.cell.config) for folder in folders]
    several = [setting_of(folder.cell.config) for folder in folders if not is_reference(folder.cell)] or settings
    nodes = sorted({one.nodes for one in several})
    works = sorted({f"{one.model} on {one.dataset}" for one in settings})
    batches = sorted({one.batch_size for one in several})
    text = phrase(
        _numbers("nodes", nodes),
        " nodes train " if nodes != [1] else " node trains ",
        joined([(work,) for work in works], ", ", " and "),
    )
    text = phrase(text, ", ", _numbers("batch size", batches), " samples a node and step")
    accumulated = sorted({one.accumulate for one in several})
    if accumulated != [1]:
        text = phrase(text, ", ", _numbers("accumulate", accumulated), " steps accumulated")
    with_target = [group for group in groups if group.done and group.cells["target_metric"].notna().any()]
    targets = sorted({target_words(group) for group in with_target})
    if targets:
        text = phrase(text, "; the target is ", joined([(Number("target", t),) for t in targets], " or "))
    return phrase(text, ".")


def _links(folders: Sequence[CellFolder]) -> Phrase:
    settings = [setting_of(folder.cell.config) for folder in folders]
    rates = sorted({one.bandwidth_bps for one in settings if one.bandwidth_bps is not None})
    if not rates:
        return phrase("No link was shaped.")
    trips = sorted({one.rtt_s for one in settings if one.rtt_s is not None})
    media = sorted({str(value_at(f.cell.config, "link.medium") or "") for f in folders
                    if setting_of(f.cell.config).bandwidth_bps is not None} - {""})  # fmt: skip
    text = phrase("Bandwidths: ", joined([column_title(bps) for bps in rates]))
    text = phrase(text, "; round trip ", joined([(Number("round trip", DURATION.format(s)),) for s in trips]))
    if any(one.num_sites for one in settings):
        text = phrase(text, "; between sites those of the slowest way and of the farthest two")
    return phrase(text, f"; medium: {' and '.join(media)}." if media else ".")


def _arms(folders: Sequence[CellFolder]) -> Phrase:
    arms = [arm if label == arm else f"{label} (recorded as {arm})"
            for arm, label in sorted(arm_labels(folder.cell for folder in folders).items())]  # fmt: skip
    seeds = sorted({setting_of(folder.cell.config).seed for folder in folders})
    what = "arm" if len(arms) == 1 else "arms"
    text = phrase(Number("arms", str(len(arms))), f" {what}: {', '.join(arms)}; ")
    return phrase(text, Number("seeds", str(len(seeds))), " seed." if len(seeds) == 1 else " seeds, the same for each.")


def _clock(folders: Sequence[CellFolder]) -> Iterable[Phrase]:
    yield phrase("Times are those of the training clock, largest over the nodes, which stands while accuracy is taken.")
    every = sorted({str(value_at(f.cell.config, "evaluate.every") or "") for f in folders} - {""})
    if every:
        yield phrase("It is taken every ", joined([(Number("evaluated every", text),) for text in every], " or "), ".")
    padded = {str(recorded_step_times(mapping_at(f.cell.config, "compute"))) for f in folders}
    durations = sorted(padded - {""})
    if durations:
        stated = joined([(Number("step time", text),) for text in durations], " or ")
        yield phrase("The computing of a step is padded to ", stated, ", so that nodes that share cores are alike.")
    several = [dilation_of(folder.cell.config) for folder in folders if not is_reference(folder.cell)]
    dilations = sorted({factor for factor in several if factor != 1.0})
    if dilations:
        stated = joined([(Number("dilation", f"{factor:g}"),) for factor in dilations], " or ")
        number = phrase(Number("dilated cells", str(sum(factor != 1.0 for factor in several))), " cells")
        yield phrase("Time was emulated in ", number, ": a second of training took ", stated, " of the machine.")
    shrinks = [shrink_of(folder.cell.config) for folder in folders if not is_reference(folder.cell)]
    if factors := sorted({factor for factor in shrinks if factor != 1.0}):
        stated = joined([(Number("shrink", f"{factor:g}"),) for factor in factors], " or ")
        number = phrase(Number("shrunk cells", str(sum(factor != 1.0 for factor in shrinks))), " cells")
        text = phrase("Parameters and rates were divided by ", stated, " in ", number)
        yield phrase(text, ": times are those of the whole, bytes are what was sent of the shrunk model.")


def _composed(folders: Sequence[CellFolder]) -> Iterable[Phrase]:
    done = [folder for folder in folders if state_of(folder) == DONE]
    composed = sum(map(is_composed, done))
    errors = [abs(error.error) for error in composed_errors(done)]
    if not composed and not errors:
        return
    share = phrase(Number("composed cells", str(composed)), " of ", Number("cells done", str(len(done))))
    if composed:
        yield phrase(share, " times are composed of a training without the link and steps timed on it (marked †).")
    if not errors:
        yield phrase("None of these cells ran whole as well: how far composed times are off is not known.")
        return
    errors.sort()
    middle = (errors[(len(errors) - 1) // 2] + errors[len(errors) // 2]) / 2
    off = phrase(Number("composed error median", percent(middle)), " (median), ")
    most = phrase(Number("composed error most", percent(errors[-1])), " at most.")
    both = phrase(Number("made both ways", str(len(errors))), " cells were made both ways: composed times are off by ")
    yield phrase(both, off, most)


def _machines(folders: Sequence[CellFolder]) -> list[Phrase]:
    found = machines_of([folder for folder in folders if state_of(folder) == DONE])
    sentences = []
    if found.hosts:
        cores = phrase(", ", _numbers("cores", found.cores), " cores") if found.cores else ()
        processors = f" ({', '.join(found.processors)}" if found.processors else " (processor not recorded"
        what = "Host: " if len(found.hosts) == 1 else "Hosts: "
        sentences.append(phrase(f"{what}{', '.join(found.hosts)}{processors}", cores, ")."))
    for what, values in (("Linux", found.kernels), ("torch", found.torch), ("commit", found.commits)):
        if values:
            sentences.append(phrase(f"{what} {', '.join(values)}."))
    emulated = [*found.backends, *(f"TCP {name}" for name in found.congestion_control)]
    if emulated:
        sentences.append(phrase(f"Links: {', '.join(emulated)}."))
    return sentences


def _numbers(key: str, values: Sequence[int]) -> Phrase:
    return joined([(Number(key, str(value)),) for value in values], ", ", " or ")


def _prose(sentences: Iterable[Phrase]) -> Phrase:
    return joined([sentence for sentence in sentences if sentence], " ")
