package operate

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"rollcall/ledger"
)

const (
	// slowestShown bounds the register of open files on the first page: it leads to the worst ones, and the page
	// Verifications has all.
	slowestShown = 5

	// slowestWait bounds what the first page waits for the ledger, so that the receivers are shown while it hangs. A guess:
	// as long as nodes are waited for.
	slowestWait = 2 * time.Second
)

// slowestView is the register of open files on the first page, as stuckFirst orders them.
type slowestView struct {
	filesView
	More    bool // others are open, too
	Uploads int  // that wait for their customer's upload: nothing of ours is slow
	Away    bool // the ledger does not answer
}

// receiversPage is the first page: its polled part, and what is read once for each view.
type receiversPage struct {
	receiversView
	Slowest slowestView
}

// readSlowest asks the ledger for the open files. Without an answer it says so: the page has more to show.
func (p *Pages) readSlowest(r *request) (v slowestView) {
	ctx, cancel := context.WithTimeout(r.Context(), slowestWait)
	defer cancel()
	found, err := p.desk.Open(ctx, openRead)
	if err != nil || len(found) == 0 {
		return slowestView{Away: err != nil}
	}
	names, err := p.names(&request{Request: r.WithContext(ctx)})
	if err != nil {
		return slowestView{Away: true}
	}
	now := p.now()
	all := len(found)
	found = slices.DeleteFunc(found, func(f ledger.Verification) bool { return f.Status == ledger.Uploading })
	v.Uploads = all - len(found)
	slices.SortFunc(found, func(a, b ledger.Verification) int { return stuckFirst(a, b, now) })
	v.More = len(found) > slowestShown
	nodes := p.nodeNames(ctx)
	for _, f := range found[:min(len(found), slowestShown)] {
		v.Rows = append(v.Rows, rowOf(f, cmp.Or(names[f.Workspace], f.Workspace.String()), nodes, now))
	}
	return v
}

// receivers answers GET /.
func receivers(p *Pages, w http.ResponseWriter, r *request) {
	v, err := p.readReceivers(r)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	p.show(w, r, http.StatusOK, "receivers", living("Receivers", "receivers", receiversPage{v, p.readSlowest(r)}))
}
