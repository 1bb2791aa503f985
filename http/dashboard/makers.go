package dashboard

import (
	"cmp"
	"strings"

	"rollcall/ledger"
)

// namer says in few words who did something, by what the ledger calls them.
type namer map[string]string

// of names an actor; "" for nobody.
func (n namer) of(actor string) string {
	kind, id, _ := strings.Cut(actor, ":")
	switch {
	case n[actor] != "":
		return n[actor]
	case kind == "user":
		return "a former member"
	case kind == "key":
		return "key " + id
	case strings.HasPrefix(actor, "operator"):
		return "an operator"
	}
	return ""
}

// namer knows the members of the workspace, and its keys: those that are given, or all of them for nil.
func (d *Dashboard) namer(r *request, keys []ledger.Key) (namer, error) {
	n := namer{}
	members, err := d.o.Book.Members(r.Context(), r.workspace())
	if err == nil && keys == nil {
		keys, err = d.o.Book.Keys(r.Context(), r.workspace())
	}
	for _, m := range members {
		n["user:"+m.User.String()] = cmp.Or(m.Name, m.Email)
	}
	for _, k := range keys {
		n["key:"+k.ID] = "key " + cmp.Or(k.Label, k.ID)
	}
	return n, err
}

// makers names those who made verifications. It asks the ledger only when one of them is a user or a key.
func (d *Dashboard) makers(r *request, of ...ledger.Verification) (namer, error) {
	for _, v := range of {
		if strings.Contains(v.MadeBy, ":") {
			return d.namer(r, nil)
		}
	}
	return namer{}, nil
}
