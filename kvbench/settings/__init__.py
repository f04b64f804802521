"""The engine's own configuration text, written from measurements and checked against what the engine reads.

``keys`` is what each place of a ``--kv-transfer-config`` may hold, dated by the engine's feature table; ``writing`` and
``forms`` make one, ``reading`` finds one in a file, and ``checking`` says what is wrong with it.
"""
