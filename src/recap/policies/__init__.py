"""The policy: a stateless, batched world-action model conditioned on a retrieved chunk."""
