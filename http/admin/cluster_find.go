package admin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// nodeTextMax is the longest text that may name a node: a host's name (RFC 1035 §2.3.4).
const nodeTextMax = 255

// titlesMax is how many nodes a refusal names: what a person reads.
const titlesMax = 10

// FindNode gives the member that text means: the one with this id, else with this
// name in any case, else with an id that begins so; with an empty text the node
// that answered. Where several nodes fit, those for which likely is true are
// preferred; of a node's sessions, one that has not ended is. Errors:
// ErrNodeUnknown, and ErrNodeAmbiguous; both name the nodes there are to choose from.
func FindNode(members []Member, text string, likely func(Member) bool) (Member, error) {
	fits := fitting(members, strings.ToLower(text), likely)
	switch len(fits) {
	case 1:
		return fits[0], nil
	case 0:
		return Member{}, fmt.Errorf("%w %q; the nodes are: %s", ErrNodeUnknown, text, titles(members))
	}
	return Member{}, fmt.Errorf("%w %q, so give more of the id: %s", ErrNodeAmbiguous, text, titles(fits))
}

// fitting gives one member of each node that a text in lower case may mean.
func fitting(members []Member, text string, likely func(Member) bool) []Member {
	if text == "" {
		return where(members, func(m Member) bool { return m.This })
	}
	for _, fits := range []func(m Member) bool{
		func(m Member) bool { return m.Node.String() == text },
		func(m Member) bool { return strings.ToLower(m.Name) == text },
		func(m Member) bool { return strings.HasPrefix(m.Node.String(), text) },
	} {
		found := where(members, fits)
		if preferred := where(found, likely); len(preferred) > 0 {
			found = preferred
		}
		if len(found) > 0 {
			return found
		}
	}
	return nil
}

// where gives the members that fit, of each node the session that has not ended.
func where(members []Member, fits func(Member) bool) (found []Member) {
	at := map[uuid.UUID]int{}
	for _, m := range members {
		if !fits(m) {
			continue
		}
		i, there := at[m.Node]
		switch {
		case !there:
			at[m.Node], found = len(found), append(found, m)
		case found[i].State.Ended():
			found[i] = m
		}
	}
	return found
}

// title is how a node is named to a person.
func title(m Member) string { return fmt.Sprintf("%s (%s)", m.Name, m.Node) }

// titles names some nodes, each once.
func titles(members []Member) string {
	var texts []string
	for _, m := range members {
		if t := title(m); !slices.Contains(texts, t) {
			texts = append(texts, t)
		}
	}
	if more := len(texts) - titlesMax; more > 0 {
		texts = append(texts[:titlesMax], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, ", ")
}
