// Package clerk answers what operators want to know of a whole cluster: it asks every node,
// itself included, by errands (package cluster), and puts their answers together.
//
//	Survey method -> question -> Node.Errand -> Clerk.Answer on every node -> merged
//
// Questions and answers are JSON, packed when they are long. A node that does not answer is
// named, and nobody waits for it longer than an errand takes. Nothing is gathered while
// nobody asks.
//
// Replay says what candidate rules would have made of the hours that the nodes have kept;
// it computes, and changes nothing.
//
// Read Clerk and Replay first.
package clerk
