package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/ledger"
)

// diskEvery is how often the disk is asked at most.
const diskEvery = time.Second

// disk is what is known about the disk of an embedded ledger. The zero value, of a ledger on
// a server, always has room.
type disk struct {
	folder  string
	reserve int64
	ask     func(folder string) (int64, error)
	every   time.Duration

	mu     sync.Mutex
	asked  time.Time
	free   int64 // on the disk
	inside int64 // in the file of the ledger, of what was erased
	known  bool  // the disk has answered; what is not known is not in the way
}

// freeBytes asks the system how much is free on the disk of a folder, for any user.
func freeBytes(folder string) (int64, error) {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(folder, &disk); err != nil {
		return 0, fmt.Errorf("read the free space of %s: %w", folder, err)
	}
	return int64(disk.Bavail) * int64(disk.Bsize), nil
}

// watchDisk has the ledger look at the disk of its folder.
func (s *DB) watchDisk(folder string, o Options) {
	s.disk.folder, s.disk.reserve, s.disk.ask, s.disk.every = folder, o.DiskReserve, o.FreeBytes, diskEvery
	if o.Seams.DiskAlways {
		s.disk.every = 0
	}
	if s.disk.ask == nil {
		s.disk.ask = freeBytes
	}
}

// look asks the disk, if that was not done within the last second.
func (s *DB) look(ctx context.Context) {
	d := &s.disk
	if d.ask == nil || !d.due(time.Now()) {
		return
	}
	free, failed := d.ask(d.folder)
	var inside int64
	err := s.View(ctx, func(t *Tx) error {
		return t.Row(`SELECT freelist_count * page_size FROM pragma_freelist_count, pragma_page_size`).Scan(&inside)
	})
	if failed != nil || err != nil {
		s.Log.Warn("free space of the ledger's disk not known", "err", errors.Join(failed, err))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known = failed == nil; d.known {
		d.free = free
	}
	if err == nil {
		d.inside = inside
	}
}

// LookForRoom asks the disk if anything is kept of it.
func (s *DB) LookForRoom(ctx context.Context) {
	if s.disk.reserve > 0 {
		s.look(ctx)
	}
}

// due reports whether it is time to ask, to one caller a second.
func (d *disk) due(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.Sub(d.asked) < d.every {
		return false
	}
	d.asked = now
	return true
}

// room is ledger.ErrNoRoom when less than the reserve is free. What was erased is room inside
// of the file, which never shrinks, but the write-ahead log grows outside of it: a quarter
// of the reserve must be free on the disk itself.
func (d *disk) room() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.known || d.free+d.inside >= d.reserve && d.free >= d.reserve/4 {
		return nil
	}
	return ledger.ErrNoRoom
}

// Room is ledger.ErrNoRoom while the disk of an embedded ledger is nearly full.
func (s *DB) Room() error { return s.disk.room() }

// registerDisk tells of the disk of an embedded ledger.
func (s *DB) registerDisk(to prometheus.Registerer) error {
	for _, g := range []struct {
		name, help string
		value      func(d *disk) int64
	}{
		{"rollcall_ledger_disk_free_bytes", "Free bytes on the disk of the embedded ledger.",
			func(d *disk) int64 { return d.free }},
		{"rollcall_ledger_file_free_bytes", "Free bytes inside the embedded ledger's file. " +
			"They are used before the file grows.",
			func(d *disk) int64 { return d.inside }},
		{"rollcall_ledger_disk_reserve_bytes", "ledger.disk_reserve: with less free, on the disk and in the file together, " +
			"creates and uploads are refused; settlements go on.", func(d *disk) int64 { return d.reserve }},
	} {
		err := to.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: g.name, Help: g.help}, func() float64 {
			s.look(context.Background())
			s.disk.mu.Lock()
			defer s.disk.mu.Unlock()
			return float64(g.value(&s.disk))
		}))
		if err != nil {
			return fmt.Errorf("register the metrics of the ledger's disk: %w", err)
		}
	}
	return nil
}
