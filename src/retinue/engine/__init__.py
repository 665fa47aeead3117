"""Who runs a run: tasks in this process (`workflow`)."""
