package facts

import "rollcall/ledger"

// Fact is what was learned, as bytes that only the package that wrote them understands.
type Fact = ledger.Fact

// Store keeps facts beyond the life of an actor and of a node. Safe for concurrent use.
type Store = ledger.Facts
