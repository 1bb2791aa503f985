// Package cutter is a proxy for the PostgreSQL protocol (version 3) that loses,
// delays and falsifies on demand, so that a test can put a fault at any
// statement, and above all at a commit.
//
// It knows the text of each statement that runs, also of prepared ones, and asks
// a Plan what to do with it. An answer that it forges is true: a statement
// answered as failed has failed, its transaction is over, and a commit answered
// as unknown was made or undone, as the plan says. What was done is counted, so
// that a test that injected nothing can tell.
//
// It does not speak TLS, COPY, or Flush without Sync. A server that ends a
// connection in silence is noticed with the next statement.
//
// Start with Start, Proxy.SetPlan, AtStatement and AtCommit.
package cutter
