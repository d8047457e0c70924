"""The directory of a job: what it was asked to do, how it goes on, how it ends."""
