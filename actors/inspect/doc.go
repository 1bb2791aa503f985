// Package inspect answers what operators want to know of a whole cluster: what every receiver is doing to us and we
// to it, why addresses wait, and what a change would do.
//
// A Query is a question that each node can answer for itself. An Inspector asks it of every node, itself included, and
// puts the answers together. The values are the same everywhere: as JSON they go between nodes, to the admin API and to
// the command line, and the pages draw them. There is no address of a customer in them; texts of receivers are cleaned
// of them (smtp/evidence).
//
// A node that does not answer is named, and nobody waits for it longer than a question takes. Nothing is gathered while
// nobody asks.
//
// Replay computes how the recorded hours would have gone with candidate rules, and changes nothing.
//
// Read Query, Inspector and Replay first.
package inspect
