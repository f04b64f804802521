"""fio's JSON, of every release since 2.1, read once into neutral records."""
