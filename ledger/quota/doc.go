// Package quota divides what a node has of something among its tenants, so that none keeps
// the others out.
//
// Nobody has a fixed part. A tenant may take more while it has at most its weight times as much
// as is still free: the dynamic threshold of A. K. Choudhury and E. L. Hahne, "Dynamic Queue
// Length Thresholds for Shared-Memory Packet Switches" (IEEE/ACM Transactions on Networking
// 6(2), 1998). One tenant alone so gets a half, two greedy ones a third each, n greedy ones
// 1/(n+1) each, and as much as one of them has is always left for one who comes new.
//
// Read Pool, and Queue for those who wait for what they don't get at once.
package quota
