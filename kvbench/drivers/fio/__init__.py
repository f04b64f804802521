"""The fio driver: job text (job), the process (run), and its output as a point (point)."""
