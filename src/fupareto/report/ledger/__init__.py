"""Pages of a ledger: the index of all requests, the letter to a requester, and the record for the file."""
