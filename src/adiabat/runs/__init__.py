"""Run directories: what was asked, who writes, how a run resumes and ends."""
