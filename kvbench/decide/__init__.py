"""From what was measured to a verdict: restore time, crossover, cost, advice."""
