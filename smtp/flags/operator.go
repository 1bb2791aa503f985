package flags

import (
	"strconv"
	"strings"
	"sync"
)

// Operator is who runs a mail host, by a number of data/operators.txt that stays: the ledger keeps it. 0 is nobody
// known.
type Operator uint8

// operators are the names by number and the numbers by the ends of host names.
type operators struct {
	names [256]string
	ends  map[string]Operator
}

var knownOperators = sync.OnceValue(func() *operators {
	o := &operators{ends: map[string]Operator{}}
	l, err := readList("operators")
	if err != nil {
		return o // a test reads it
	}
	for _, line := range l.words {
		words := strings.Fields(line)
		number, err := strconv.ParseUint(words[0], 10, 8)
		if err != nil {
			continue // as above
		}
		o.names[number] = words[1]
		for _, end := range words[2:] {
			o.ends[end] = Operator(number)
		}
	}
	return o
})

// OperatorOf tells by the name of a mail host, in lower case, who runs it.
func OperatorOf(host string) Operator {
	ends := knownOperators().ends
	for {
		if o := ends[host]; o != 0 {
			return o
		}
		_, rest, more := strings.Cut(host, ".")
		if !more {
			return 0
		}
		host = rest
	}
}

// String returns the name of an operator, such as "google"; "" for nobody known.
func (o Operator) String() string { return knownOperators().names[o] }
