// Package dispatcher decides which verifications this node works on.
//
// There is one dispatcher actor per node. It asks the ledger for verifications that nobody works on, takes leases,
// starts a verification actor for each, renews all leases in one statement well before they end, and stops the actor of
// a lease that it could not renew. A hint from package http (an upload is complete, something was cancelled) only makes
// it look sooner: the ledger is the queue.
//
// Read Start and Dispatcher.
package dispatcher
