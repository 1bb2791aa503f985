package ledgertest

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"rollcall/ledger/ledgertest/simulation"
)

// Check looks, for each workspace by itself, for an order of the calls that the model could have answered in the same
// way. It gives up after limit, and then the answer is porcupine.Unknown: undecided, which is no pass. Unless it is
// porcupine.Ok, explain says what could not follow the longest order.
//
// The search is short when few calls are open at once. So it is tried first in times that are narrower than the true
// ones: an order that respects those respects the true ones too. Only the true times say that there is none.
func (h *History) Check(limit time.Duration) (result porcupine.CheckResult, explain func() string) {
	for w := range workspaces {
		part := h.part(w)
		for _, width := range []int{3, 6, 0} {
			if result = h.search(narrowed(part, width), limit); result == porcupine.Ok {
				break
			}
		}
		if result != porcupine.Ok {
			return result, func() string { return h.explain(part, limit) }
		}
	}
	return porcupine.Ok, nil
}

func (h *History) search(list []porcupine.Operation, limit time.Duration) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(h.model(), list, limit)
}

// part is the history of one workspace. A lease takes the oldest files of all of them: in one it must have taken the
// oldest, and all of them when it took fewer than it could. A lease without an answer may have taken any number of the
// oldest. Where leases pass over files, one may have taken any that were free.
func (h *History) part(workspace int) []porcupine.Operation {
	var part []operation
	untold := h.untold()
	for _, op := range h.done {
		if op.call.kind != lease && op.call.kind != renew && op.call.workspace != workspace {
			continue
		}
		if h.Passing && op.call.kind == lease {
			op.call.lease.took = maps.Clone(untold)
			maps.Copy(op.call.lease.took, ranksOf(op.lines))
		}
		part = append(part, op.others()...)
		if op.call.kind == lease || op.call.kind == renew {
			lines := slices.DeleteFunc(slices.Clone(op.lines), func(l listed) bool { return h.files[l.rank] != workspace })
			// What a run before took is answered as it is, though more could be had by then.
			op.call.lease.anew = op.repeats > 0
			op.call.lease.all = len(op.lines) < op.call.limit && !op.call.lease.anew && !h.Passing
			if h.Passing {
				op.call.lease.took = ranksOf(lines)
			}
			op.call.limit = len(lines)
			op.answer.list = textOf(lines)
		}
		if !op.answer.unknown {
			part = append(part, op)
		}
	}
	return operations(part)
}

// untold are the files, by rank, with a lease that no answer names, as a missing epoch shows.
func (h *History) untold() map[int]bool {
	told := make([]map[int64]bool, len(h.files))
	for i := range told {
		told[i] = map[int64]bool{}
	}
	for _, op := range h.done {
		if op.call.kind == lease {
			for _, l := range op.lines {
				told[l.rank][l.epoch] = true
			}
		}
	}
	ranks := map[int]bool{}
	for rank, epochs := range told {
		if int64(len(epochs)) < h.epochs[rank] {
			ranks[rank] = true
		}
	}
	return ranks
}

func ranksOf(lines []listed) map[int]bool {
	ranks := map[int]bool{}
	for _, l := range lines {
		ranks[l.rank] = true
	}
	return ranks
}

// others are the runs of a call besides the one that was answered, as calls that told nothing.
func (op operation) others() []operation {
	unknown := op.answer.unknown
	op.answer = answer{unknown: true}
	list := slices.Repeat([]operation{op}, op.repeats)
	if unknown {
		op.told = never
		list = append(list, op)
	}
	return list
}

// narrowed makes the times narrower, unless width is 0: each call begins no earlier than the width-th last answer
// before its own, since a book tends to answer in the order in which it commits.
func narrowed(list []porcupine.Operation, width int) []porcupine.Operation {
	if width == 0 {
		return list
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	for i := width; i < len(list) && list[i].Return < never; i++ {
		list[i].Call = max(list[i].Call, list[i-width].Return)
	}
	return list
}

// never is when a call returns that told nothing: its effect may come at any time after it, or not at all. A run before
// the one that was answered is over with the answer: what it changed, the later run had to wait for.
const never = math.MaxInt64

// operations is a history in the words of the checker.
func operations(done []operation) []porcupine.Operation {
	list := make([]porcupine.Operation, 0, len(done))
	for _, op := range done {
		list = append(list, porcupine.Operation{ClientId: op.client, Input: &op.call, Call: int64(op.called),
			Output: op.answer, Return: int64(op.told)})
	}
	return list
}

// explain shows the end of the longest order, and the open calls then.
func (h *History) explain(list []porcupine.Operation, limit time.Duration) string {
	_, info := porcupine.CheckOperationsVerbose(h.model(), list, limit)
	var longest []porcupine.Operation
	for _, orders := range info.PartialLinearizationsOperations() {
		for _, order := range orders {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%d of %d calls have an order, which ends with\n", len(longest), len(list))
	placed := map[string]bool{}
	state := h.model().Init()
	for i, op := range longest {
		placed[key(op)] = true
		_, state = h.model().Step(state, op.Input, op.Output)
		if i >= len(longest)-4 {
			fmt.Fprintf(&text, "  %s\n", describe(op))
		}
	}
	open := slices.DeleteFunc(slices.Clone(list), func(op porcupine.Operation) bool { return placed[key(op)] })
	slices.SortFunc(open, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	text.WriteString("and none of these can follow\n")
	for _, op := range open[:min(len(open), 3)] {
		_, must := h.apply(state.([]any)[0].(simulation.Moment), *op.Input.(*call))
		fmt.Fprintf(&text, "  %s\n    the model: %s\n", describe(op), must)
	}
	return text.String()
}

// key tells operations apart; the runs of one call besides its last are alike.
func key(op porcupine.Operation) string {
	return fmt.Sprint(op.ClientId, " ", op.Call, " ", op.Output.(answer).unknown)
}

func describe(op porcupine.Operation) string {
	return fmt.Sprintf("client %d [%d, %d] %s -> %s", op.ClientId, op.Call, op.Return, op.Input, op.Output)
}
