// Package edge counts what each API key uses of its limits, for all nodes of a
// cluster together: tokens of two rates, and slots of downloads at once.
//
// A virtual actor per key, on the node where the key has its place, holds what is
// used. Each node asks it for what requests need and waits a quarter of a second at
// most. One question of a node per key is under way at a time and asks for all
// requests that wait; nothing is granted in advance, so the count is exact. While
// the actors of a key are one, and answer, all nodes together grant no more than a
// burst and the rate times the time, and no more downloads at once than allowed.
//
// An actor forgets everything when it ends. The one after it, on another node or
// the same, is told: with each question a node says which slots it holds, and what
// it last heard was used. A slot of a node that is silent for half a minute is free.
//
// When the actor cannot be found or does not answer in time, a node counts by
// itself, by its share k/n of the limits as Options.Share gives it, and looks for the
// actor beside that. An actor, too, grants k/n of the limits: two actors of one key
// for some seconds, or for a whole partition, grant in sum what the shares add up to.
// Both grant a floor at least, one token a second after a burst of five and one
// download, so that nobody is shut out.
//
// So, when the shares of all nodes add up to no more than one, what is granted in a
// partition of m nodes is in sum at most the limits and m floors; with the limits of
// the contract and three nodes 23 reads a second. It can be more for a while in
// three cases. An actor that is alive and slow grants what its askers, tired of
// waiting, do not use and count by themselves: at most twice the limits. What a lost
// node granted last and nobody else heard of is granted again: at most one burst.
// What both sides of a partition granted is known to the actor after it only as of
// when each node last heard, or as the greater of what several heard: at most one
// burst. None of it is about money or outcomes.
//
// The package knows nothing of HTTP and of members. Start with Kinds and Limiter.
package edge
