"""What was measured: results, histograms and their statistics, rounds, events."""
