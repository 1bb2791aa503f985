package admin_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"rollcall/http/admin"
	"rollcall/smtp/identity"
)

func TestIdentity(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	bad := identity.Report{Checked: at, Findings: []identity.Finding{
		{Check: identity.PTR, Source: "192.0.2.1", State: identity.Fail, Saw: "the address has no PTR", Next: "Ask.",
			At: at},
		{Check: identity.BlockList, Source: "192.0.2.1", List: "bl.test", State: identity.OK, Saw: "not on bl.test",
			At: at}}}
	good := identity.Report{Checked: at}
	now, fails := bad, error(nil)
	r := newRig(t, func(o *admin.Options) {
		o.Identity = func() admin.Identity { return admin.IdentityOf(now, true) }
		o.CheckIdentity = func(context.Context) (admin.Identity, error) { return admin.IdentityOf(good, true), fails }
	})
	const want = `{"fit":false,"enforced":true,"probing":false,"why":"ptr of 192.0.2.1: the address has no PTR",` +
		`"checked_at":"2030-01-02T03:04:05.000Z","findings":[{"check":"ptr","source":"192.0.2.1","state":"fail",` +
		`"saw":"the address has no PTR","next":"Ask.","checked_at":"2030-01-02T03:04:05.000Z"},` +
		`{"check":"block_list","source":"192.0.2.1","list":"bl.test","state":"ok","saw":"not on bl.test",` +
		`"checked_at":"2030-01-02T03:04:05.000Z"}]}` + "\n"
	if status, text := r.raw("GET", "/v1/identity", "", "Bearer "+r.token); status != 200 || text != want {
		t.Errorf("got %d %s, want %s", status, text, want)
	}
	if status, _ := r.raw("GET", "/v1/identity", "", "Bearer wrong"); status != 401 {
		t.Errorf("a stranger gets %d", status)
	}
	if status, text := r.raw("GET", "/readyz", "", ""); status != 200 || !strings.Contains(text, `"probing":"no: run`) {
		t.Errorf("readyz of a node that is not fit: %d %s", status, text)
	}
	status, out := r.call("POST", "/v1/identity/check", "")
	if status != 200 || out["fit"] != true || out["probing"] != true {
		t.Errorf("after a look: %d %v", status, out)
	}
	fails = errors.New("too late")
	if status, text := r.raw("POST", "/v1/identity/check", "", "Bearer "+r.token); status != 503 ||
		!strings.Contains(text, "unavailable") {
		t.Errorf("a look that is too slow: %d %s", status, text)
	}
	now = good
	if _, text := r.raw("GET", "/readyz", "", ""); text != `{"status":"ready"}`+"\n" {
		t.Errorf("readyz of a node that is fit: %s", text)
	}
	now = identity.Report{}
	if _, out := r.call("GET", "/v1/identity", ""); out["checked_at"] != nil || out["fit"] != false {
		t.Errorf("before the first look: %v", out)
	}
}

func TestIdentityOfAProcessThatDoesNotProbe(t *testing.T) {
	r := newRig(t)
	for _, call := range [][2]string{{"GET", "/v1/identity"}, {"POST", "/v1/identity/check"}} {
		if status, text := r.raw(call[0], call[1], "", "Bearer "+r.token); status != 409 ||
			!strings.Contains(text, "no_identity") {
			t.Errorf("%s %s: got %d %s", call[0], call[1], status, text)
		}
	}
	if status, text := r.raw("GET", "/readyz", "", ""); status != 200 || strings.Contains(text, "probing") {
		t.Errorf("readyz: %d %s", status, text)
	}
}
