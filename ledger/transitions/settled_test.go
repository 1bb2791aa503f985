package transitions

import (
	"testing"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
)

// rowOf is a verification after a number of settlements.
func rowOf(id byte, epoch, settlements int64) *Row {
	return &Row{Verification: ledger.Verification{ID: uuid.UUID{id}, Epoch: epoch, Settlements: settlements,
		Status: ledger.Verifying, Total: 1 << 40}}
}

func newSettledSets(most int) *settledSets {
	return &settledSets{sets: map[uuid.UUID]*settledSet{}, most: most}
}

func TestWhatIsSettledIsKnownAsOfItsRow(t *testing.T) {
	s := newSettledSets(settledBytesMax)
	s.note(rowOf(1, 5, 1), 1, []int64{0, 63, 64, sliceOrdinals, 1 << 39})
	s.note(rowOf(1, 5, 2), 2, []int64{7})
	for ordinal, want := range map[int64]bool{0: true, 1: false, 7: true, 62: false, 63: true, 64: true, 65: false,
		sliceOrdinals - 1: false, sliceOrdinals: true, sliceOrdinals + 63: false, 1 << 39: true, 1<<39 + sliceOrdinals: false} {
		got, twice, err := s.first(rowOf(1, 5, 2), []int64{2, ordinal})
		effort.ErrorIf(t, err != nil || twice != want || twice && got != ordinal,
			"ordinal %d: %d, %v, %v, want %v", ordinal, got, twice, err, want)
	}
	for name, v := range map[string]*Row{"another one": rowOf(2, 5, 2), "another lease": rowOf(1, 6, 2),
		"more settlements": rowOf(1, 5, 3), "fewer settlements": rowOf(1, 5, 1)} {
		effort.Denied(effort.First(s.first(v, []int64{0})))(t, errBehind, name)
	}
	_, twice, err := s.first(rowOf(3, 1, 0), []int64{0})
	effort.ErrorIf(t, twice || err != nil, "before the first settlement: %v, %v", twice, err)
}

// TestAGapIsNotPassedOver: a settlement is not cached if the one before it is not.
func TestAGapIsNotPassedOver(t *testing.T) {
	s := newSettledSets(settledBytesMax)
	s.note(rowOf(1, 5, 1), 1, []int64{0})
	s.note(rowOf(1, 5, 3), 3, []int64{2})
	s.note(rowOf(1, 6, 2), 2, []int64{1})
	effort.Denied(effort.First(s.first(rowOf(1, 5, 3), []int64{1})))(t, errBehind)
	_, twice, err := s.first(rowOf(1, 5, 1), []int64{0})
	effort.ErrorIf(t, !twice || err != nil, "what was known: %v, %v", twice, err)
}

// TestWhatIsRememberedIsBounded: the newest verification stays, however large its set is. A final one is dropped.
func TestWhatIsRememberedIsBounded(t *testing.T) {
	s := newSettledSets(3 * sliceBytes)
	for id := range byte(10) {
		s.note(rowOf(id, 1, 1), 1, []int64{0})
	}
	effort.ErrorIf(t, len(s.sets) != 3 || s.bytes != 3*sliceBytes || s.sets[uuid.UUID{9}] == nil,
		"%d sets of %d bytes are remembered", len(s.sets), s.bytes)
	large := newSettledSet(1)
	large.add([]int64{0, sliceOrdinals, 2 * sliceOrdinals, 3 * sliceOrdinals})
	s.keep(uuid.UUID{77}, large)
	effort.ErrorIf(t, len(s.sets) != 1 || s.bytes != 4*sliceBytes || s.sets[uuid.UUID{77}] != large,
		"%d sets of %d bytes are remembered beside a large one", len(s.sets), s.bytes)
	over := rowOf(77, 1, 2)
	over.Status = ledger.Completed
	s.note(over, 2, []int64{9})
	effort.ErrorIf(t, len(s.sets) != 0 || s.bytes != 0,
		"%d sets of %d bytes are remembered of what is over", len(s.sets), s.bytes)
}
