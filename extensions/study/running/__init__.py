"""Running a study: jobs in a folder, worker processes, and what is done so far."""
