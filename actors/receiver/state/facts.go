package state

import "rollcall/actors/facts"

// Fact is what was learned about a receiver or one of our sources.
type Fact = facts.Fact

// Facts keeps facts beyond the life of an actor and of a node.
type Facts = facts.Store

// KnowWithin is how long an actor waits for what is known about its receiver. Then it begins as after a loss: a ledger
// that takes longer has failed.
const KnowWithin = facts.KnowWithin
