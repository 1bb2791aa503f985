package sqlstore_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/sqlstore"
	"rollcall/smtp"
)

// onDisk is a ledger that believes what it is told about its disk, and forgets at once
// what it was told.
func onDisk(t *testing.T, free func(string) (int64, error)) (*ledgertest.Desk, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	s, err := sqlstore.Open(t.Context(), sqlstore.NewFile(t),
		sqlstore.AskDiskEachTime(sqlstore.Options{DiskReserve: 1 << 20, FreeBytes: free, Registerer: registry}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return ledgertest.NewDesk(t, s, 9), registry
}

// TestAReserveOfDiskIsKeptForMoney: without room no file comes in, and what is in is settled.
func TestAReserveOfDiskIsKeptForMoney(t *testing.T) {
	var free atomic.Int64
	free.Store(1 << 20)
	d, registry := onDisk(t, func(string) (int64, error) { return free.Load(), nil })
	ctx := t.Context()
	_, working := d.Prepares(2)
	known := d.Asks(7)
	uploading, _, err := d.Create(ctx, known)
	if err != nil {
		t.Fatal(err)
	}
	u, err := d.OpenUpload(ctx, uploading.ID)
	if err == nil {
		u, err = d.AppendChunk(ctx, uploading.ID, u.Writer, 0, []byte("abc"))
	}
	if err != nil {
		t.Fatal(err)
	}

	free.Store(1<<20 - 1)
	if _, _, err := d.Create(ctx, d.Asks(7)); !errors.Is(err, ledger.ErrNoRoom) {
		t.Errorf("create: %v", err)
	}
	after, err := d.AppendChunk(ctx, uploading.ID, u.Writer, 3, []byte("defg"))
	if !errors.Is(err, ledger.ErrNoRoom) || after.Durable != 3 {
		t.Errorf("append: %+v, %v", after, err)
	}
	if again, created, err := d.Create(ctx, known); err != nil || created || again.ID != uploading.ID {
		t.Errorf("recovered: %v, %v", created, err)
	}
	if _, err := d.AppendChunk(ctx, uploading.ID, u.Writer, 0, []byte("abc")); err != nil {
		t.Errorf("a chunk that is there, again: %v", err)
	}
	d.Settles(working, 1, 0, 1, smtp.Valid)
	d.Grants(1)
	if got := d.Account(); got.Spent != 2 || got.Granted != 10 {
		t.Errorf("account %+v", got)
	}
	if told := gauge(t, registry, "rollcall_ledger_disk_free_bytes"); told != 1<<20-1 {
		t.Errorf("%.0f bytes are told to be free", told)
	}

	free.Store(1 << 20)
	if after, err = d.AppendChunk(ctx, uploading.ID, u.Writer, 3, []byte("defg")); err != nil || after.Status != "preparing" {
		t.Errorf("append with room: %+v, %v", after, err)
	}
	d.Creates(7)
}

// TestWhatWasErasedIsRoom: the file of the ledger does not shrink, it is used again. The
// disk itself must have a quarter, for the write-ahead log.
func TestWhatWasErasedIsRoom(t *testing.T) {
	var free atomic.Int64
	free.Store(1 << 20)
	d, registry := onDisk(t, func(string) (int64, error) { return free.Load(), nil })
	v := d.Creates(2 << 20)
	d.Fills(v)
	free.Store(1 << 18)
	n := d.Asks(7)
	if _, _, err := d.Create(t.Context(), n); !errors.Is(err, ledger.ErrNoRoom) {
		t.Errorf("nothing is erased: %v", err)
	}
	if _, err := d.Cancel(t.Context(), d.Workspace, v.ID); err != nil {
		t.Fatal(err)
	}
	if inside := gauge(t, registry, "rollcall_ledger_file_free_bytes"); inside < 2<<20 || inside > 3<<20 {
		t.Errorf("%.0f bytes are free in the file", inside)
	}
	if _, _, err := d.Create(t.Context(), n); err != nil {
		t.Errorf("2 MiB were erased: %v", err)
	}
	free.Store(1<<18 - 1)
	n.Identity, n.ID = uuid.New(), uuid.New()
	if _, _, err := d.Create(t.Context(), n); !errors.Is(err, ledger.ErrNoRoom) {
		t.Errorf("the log has no room: %v", err)
	}
}

// TestADiskThatCannotBeAskedIsNotInTheWay: a file system may not tell.
func TestADiskThatCannotBeAskedIsNotInTheWay(t *testing.T) {
	fails := errors.New("no such call")
	d, _ := onDisk(t, func(string) (int64, error) { return 0, fails })
	d.Creates(7)
	fails = nil
	if _, _, err := d.Create(t.Context(), d.Asks(7)); !errors.Is(err, ledger.ErrNoRoom) {
		t.Errorf("with nothing free: %v", err)
	}
}

// TestTheDiskIsAskedOnceASecond at most, and not at all without a reserve.
func TestTheDiskIsAskedOnceASecond(t *testing.T) {
	for reserve, most := range map[int64]int64{0: 0, 1: 2} {
		var asked atomic.Int64
		s, err := sqlstore.Open(t.Context(), sqlstore.NewFile(t), sqlstore.Options{
			DiskReserve: reserve, FreeBytes: func(string) (int64, error) { asked.Add(1); return 1 << 40, nil }})
		if err != nil {
			t.Fatal(err)
		}
		d := ledgertest.NewDesk(t, s, 0)
		d.Creates(7)
		d.Creates(7)
		if n := asked.Load(); n > most || (n == 0) != (most == 0) {
			t.Errorf("reserve %d: asked %d times", reserve, n)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func gauge(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no %s", name)
	return 0
}

// TestWhatTheDiskHasNotAnsweredIsNotInTheWay: of two that come together, one asks the disk.
func TestWhatTheDiskHasNotAnsweredIsNotInTheWay(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	s, err := sqlstore.Open(t.Context(), sqlstore.NewFile(t), sqlstore.Options{DiskReserve: 1,
		FreeBytes: func(string) (int64, error) {
			close(asked)
			<-answer
			return 1 << 40, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	d := ledgertest.NewDesk(t, s, 0)
	first := make(chan error)
	go func() {
		_, _, err := s.Create(t.Context(), d.Asks(7))
		first <- err
	}()
	<-asked
	if _, _, err := s.Create(t.Context(), d.Asks(7)); err != nil {
		t.Errorf("beside one that asks the disk: %v", err)
	}
	close(answer)
	if err := <-first; err != nil {
		t.Error(err)
	}
}
