// Package fairqueue is a weighted fair queue with two levels: tenants, and flows within them.
//
// A tenant is a workspace. A flow is one verification of a tenant. The items of a flow wait in host queues, one for
// each set of hosts. A HostQueue has one queue for each tenant that waits there, and in it one queue for each flow.
//
// The queue shares out two things, each in its own order, because either may be scarce at a receiver: items to be asked
// (HostQueue.Pop and Queue.Charge), and sessions of host queues (Queue.Next, HostQueue.Opened and HostQueue.Closed). In
// both orders the tenant that was served least for its weight comes first, and within it the flow that was served
// least. Among equals the latest arrival comes first, because it got nothing lately. Once served, equals are in random
// order; in a fixed order a receiver's limit might let the same tenants through each time. A new arrival starts level
// with the first in the order, so that nobody saves up service while idle.
//
// Some things are scarcer than turns, such as the refusals that a receiver tolerates. A use of a scarce thing is
// charged as a number of turns (HostQueue.ChargeScarce; dominant resource fairness, Ghodsi 2011). So heavy users leave
// other users their part.
//
// Items that look invented are suspect. Pop gives out few suspect items in a row while normal items wait.
//
// The package is plain Go: the time is an argument, and nothing is safe for concurrent use.
package fairqueue
