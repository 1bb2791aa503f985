// Package fairqueue is a weighted fair queue with two levels of waiters.
//
// A tenant is a workspace, a flow is one verification of a tenant. The items of a flow wait
// in host queues, one for each set of hosts. A HostQueue holds one queue for each tenant that
// waits there, and each of these holds one queue for each of its flows.
//
// Two things are given out, each in its own order, since either may be scarce at a receiver: items are asked
// (HostQueue.Pop and Queue.Charge), and host queues get sessions (Queue.Next, HostQueue.Opened and HostQueue.Closed).
// In both orders the tenant that was served least for its weight comes first, and within it the flow that was served
// least. Among equals the latest arrival comes first, because it got nothing lately; once served, they are in a drawn
// order. In a fixed one a receiver's limit might let the same ones through each time. A new arrival starts level with
// the first in the order, so that nobody saves up service while idle.
//
// Something scarcer than turns, such as the refusals that a receiver tolerates, is charged as the turns it is worth
// (HostQueue.ChargeScarce; dominant resource fairness, Ghodsi 2011), so that heavy users leave the others their part.
//
// Items that look invented are suspect: Pop gives out few of them in a row while normal ones wait.
//
// The package is plain Go: the time is an argument, and nothing is safe for concurrent use.
package fairqueue
