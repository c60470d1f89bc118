"""A warm process for the ClientApps of a SuperNode.

Flower starts a new Python for every message, which spends seconds on importing PyTorch. Flower starts it by name
(``flwr-clientapp``), so a small command of that name, first on the PATH, can ask a process in which the imports are
done to fork instead. What runs after the fork is Flower's own command; nothing of Flower is changed.
"""
