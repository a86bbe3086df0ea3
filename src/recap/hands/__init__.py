"""Hands of people as demonstrations: cameras, landmarks, the tool that a hand stands for, and its quality."""
