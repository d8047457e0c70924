"""Descriptions as they were before settings existed."""

import tomli_w

from adiabat.runs.run_config import Job, read_description


def forget(job: Job, *keys: str) -> None:
    """Take settings, or whole tables, by their dotted keys out of what a job says it was asked."""
    found = read_description(job)
    for key in keys:
        *path, last = key.split(".")
        table = found
        for part in path:
            table = table[part]
        del table[last]
    job.config.write_text(tomli_w.dumps(found), encoding="utf-8")
