"""From records to answers: analysis, figures, the page, the section of a paper."""
