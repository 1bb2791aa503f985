// Package fairqueue is a weighted fair queue with two levels of waiters.
//
// A tenant is a workspace, a flow is one verification of a tenant. The items of a flow wait
// in host queues, one for each set of hosts. A HostQueue holds one queue for each tenant that
// waits there, and each of these holds one queue for each of its flows.
//
// Two things are given out, and each has an order of its own, because at some receivers the
// one is scarce and at others the other: items are asked (HostQueue.Pop and Queue.Charge), and
// host queues get sessions (Queue.Next, HostQueue.Opened and HostQueue.Closed). In both
// orders the tenant comes first that was served least, measured by its weight, and then
// the flow of that tenant that was served least. Between equals the latest arrival comes first,
// because it got nothing of late. Who arrives is counted as served as little as the first
// in the order, so that nobody saves up service while it waits for nothing.
//
// What is scarcer than turns, as the refusals that a receiver may have, is charged as the turns it is
// worth (HostQueue.ChargeScarce; dominant resource fairness, Ghodsi 2011). So those who use up
// much of it leave the others their part.
//
// Items that look invented are suspect: Pop gives out few of them in a row while normal
// ones wait.
//
// The package is plain Go: the time is an argument, and nothing is safe for concurrent use.
package fairqueue
