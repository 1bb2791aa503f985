package inspect

import (
	"context"

	"rollcall/smtp/throttle"
)

// fileNow is how the throttle file of a node stands.
type fileNow struct {
	Hash  string `json:"hash"` // of the rules of it that hold
	Fault string `json:"fault,omitempty"`
}

var fileQuery = Query[none, fileNow]{"file", func(i *Inspector, _ context.Context, _ none) (fileNow, error) {
	return i.ownFile(), nil
}}

// ownFile says how this node's throttle file stands.
func (i *Inspector) ownFile() fileNow {
	f := fileNow{Hash: throttle.Fingerprint(i.options.Table.Rules(throttle.LayerFile))}
	if i.options.Fault != nil {
		f.Fault = i.options.Fault()
	}
	return f
}

// Files names the nodes with another throttle file than this node, and those whose file cannot be used.
func (i *Inspector) Files(ctx context.Context) ([]OtherFile, []UnreachableNode, error) {
	all, err := fileQuery.askAll(ctx, i, none{})
	if err != nil {
		return nil, nil, err
	}
	own := i.ownFile()
	var out []OtherFile
	for _, r := range all {
		differs := r.value.Hash != own.Hash
		if r.err == nil && (differs || r.value.Fault != "" && r.node != i.name()) {
			out = append(out, OtherFile{Node: r.node, Differs: differs, Fault: r.value.Fault})
		}
	}
	return out, silent(all), nil
}
