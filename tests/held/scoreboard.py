"""README's scoreboard."""

from linfed.report.scoreboard import markdown, records, rows

from . import README, held


@held(README, "every experiment")
def scoreboard(results):
    yield from markdown((row for row in rows(records(results.folder)) if row.main), short=True).splitlines()[2:]
