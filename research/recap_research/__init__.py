"""The evidence: sweeps, probes, reports and benchmarks; not part of the wheel."""
