"""Pools: storage, import and export of demonstrations."""
