// Package quota divides a node's resource among its tenants, so that none keeps the others out.
//
// No tenant has a fixed part. A tenant may take more while it has at most its weight times the free amount: the
// dynamic threshold of A. K. Choudhury and E. L. Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet
// Switches" (IEEE/ACM Transactions on Networking 6(2), 1998). One tenant alone gets a half, two greedy ones a third
// each, n greedy ones 1/(n+1) each, and the same amount stays free for a new one.
//
// Read Pool, and Slots for tenants that wait.
package quota
