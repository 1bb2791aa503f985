// Package receivertest has what tests of receivers and of domains share: receivers, answers, and a ledger of facts.
package receivertest
