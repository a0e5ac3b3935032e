"""`record`: runs a job, keeps its output, samples of the node and the outcome in a folder, and never costs the job anything."""
