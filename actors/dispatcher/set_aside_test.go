package dispatcher

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// TestAFileThatChangedIsSetAside: the bytes of a file are others than those for which credits were held. The
// second crash over it sets it aside, and the credits are back. No lease takes it again.
func TestAFileThatChangedIsSetAside(t *testing.T) {
	o := newOffice(t) // on the real clock, which is the ledger's
	ctx := context.Background()
	id := o.uploads("a@none.test\nb@none.test\n")
	other := uuid.New()
	list, err := o.book.Store.Lease(ctx, other, 1, time.Hour)
	if err != nil || len(list) != 1 {
		t.Fatalf("%d are leased, %v", len(list), err)
	}
	lease := ledger.Lease{Verification: id, Node: other, Epoch: list[0].Epoch}
	if _, err := o.book.Prepare(ctx, lease, 2, 0, 2); err != nil {
		t.Fatal(err)
	}
	if err := o.book.Store.Release(ctx, lease); err != nil {
		t.Fatal(err)
	}
	o.behind(`UPDATE upload_chunks SET data = CAST('a@none.test' || char(10) || 'no address.' || char(10) AS BLOB) RETURNING 1`)
	d := o.starts()
	o.until("the first crash is noted", func() bool { return o.behind(`SELECT crashes FROM verifications`) == 1 })
	if v := o.sees(id); v.Status != ledger.Verifying {
		t.Errorf("after the first crash it is %s", v.Status)
	}
	o.behind(`UPDATE verifications SET wake_at = wake_at - 60000 RETURNING 1`) // the rest between two tries is over
	d.Wake()
	o.until("it is set aside", func() bool { return o.sees(id).Status == ledger.Failed })
	v := o.sees(id)
	if v.Issue == nil || v.Issue.Code != ledger.InternalError || o.book.count("crashed") != 2 {
		t.Errorf("after %d crashes it failed with %+v", o.book.count("crashed"), v.Issue)
	}
	o.until("an operator is told", func() bool { return o.log.has("set aside") && o.log.has("read differently") })
	if b, err := o.book.Balance(ctx, o.workspace); err != nil || b != (ledger.Balance{Granted: 1000, Available: 1000}) {
		t.Errorf("the account is %+v, %v", b, err)
	}
}

// behind runs a statement behind the ledger's back, and gives the number that it answers.
func (o *office) behind(statement string) (n int) {
	o.t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(o.folder, "ledger.db")+"?_pragma=busy_timeout(5000)") // the driver of package sqlstore
	if err == nil {
		err = db.QueryRow(statement).Scan(&n)
		err = errors.Join(err, db.Close())
	}
	if err != nil {
		o.t.Fatal(err)
	}
	return n
}
