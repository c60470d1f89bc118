"""Membership attacks: scores per sample, ROC statistics, and attacks with and without shadow models."""
