"""Research tools: sweeps, probes, reports and benchmarks. Not part of the wheel."""
