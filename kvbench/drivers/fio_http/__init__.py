"""fio's http engine as a driver for S3: a program of its own beside the fio that reads files."""
