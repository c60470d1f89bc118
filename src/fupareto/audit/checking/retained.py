"""Checks of what forgetting cost the retained clients."""

from collections.abc import Mapping
from typing import Any

from fupareto.audit import intervals
from fupareto.audit.checking.base import Check, at_least, few, mean, signed, span, together, unheard
from fupareto.audit.exclusivity import compared
from fupareto.audit.thresholds import Thresholds


def useful(first: Mapping[str, Any], last: Mapping[str, Any], limits: Thresholds) -> Check:
    """Check the mean accuracy of the retained clients."""
    claim, pairs = limits.claim("useful"), list(compared(first, last, "retained").values())
    if not pairs:
        text = "no retained client with test data was measured before and after"
        return Check("useful", claim, "open", text, threshold=-limits.r_acc_loss)
    moved, low, high = mean(pairs)
    text = f"mean accuracy of the retained clients changed by {signed(moved)} points ({span(low, high)}; "
    text += f"{sum(pair.samples for pair in pairs)} test samples)"
    result = at_least(low, high, -limits.r_acc_loss)
    return Check("useful", claim, result, text + few(result), moved, -limits.r_acc_loss, low, high)


def exclusive(clients: Mapping[str, Any], missing: list[str], limits: Thresholds) -> Check:
    """Check every retained client's change by the simultaneous intervals of ``exclusivity``."""
    claim, limit = limits.claim("exclusive"), -limits.client_loss
    if not clients:
        text = "no retained client with test data was measured before and after"
        return Check("exclusive", claim, "open", text, threshold=limit)
    ends: dict[str, intervals.Ends] = {
        i: (-1.0, 1.0) if c["low"] is None else (c["low"], c["high"]) for i, c in clients.items()
    }
    results = {i: at_least(*ends[i], limit) for i in clients}
    result = together([*results.values(), *("open" for _ in missing)])
    i = min(clients, key=lambda i: (results[i] != "refuted", clients[i]["change"], ends[i][0]))
    text = f"the largest loss is that of client {i}, whose accuracy changed by {signed(clients[i]['change'])} points "
    text += f"({span(*ends[i])}; {clients[i]['samples'] or 'unknown'} test samples)"
    undecided = sum(r == "open" for r in results.values())
    if undecided and result == "open":
        text += f"; a larger loss than the limit cannot be ruled out for {undecided} of {len(clients)} clients, "
        text += "which have too few test samples"
    text += f"; {unheard(missing)}" if missing else ""
    return Check("exclusive", claim, result, text, clients[i]["change"], limit, *ends[i])
